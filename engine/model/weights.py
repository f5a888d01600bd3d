"""A model's weights from safetensors: every name, shape and value is checked before anything is kept."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from cachemodel.errors import UserError
from engine.model.config import ModelConfig, read_json
from engine.model.llama import LayerWeights, Weights

Tensors = dict[str, torch.Tensor]
"""By transformers' names; matrices are [outputs, inputs]."""

_INDEX = "model.safetensors.index.json"
_FLOATS = {"F16", "BF16", "F32", "F64"}


def shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """What tensors a model has."""
    hidden, inner = config.hidden_size, config.intermediate_size
    query, key = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    layer = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (query, hidden),
        "self_attn.k_proj": (key, hidden),
        "self_attn.v_proj": (key, hidden),
        "self_attn.o_proj": (hidden, query),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for number in range(config.num_hidden_layers):
        found |= {f"model.layers.{number}.{name}.weight": shape for name, shape in layer.items()}
    found["model.norm.weight"] = (hidden,)
    if not config.tie_word_embeddings:
        found["lm_head.weight"] = (config.vocab_size, hidden)
    return found


def assemble(config: ModelConfig, tensors: Tensors, device: torch.device, dtype: torch.dtype) -> Weights:
    """Puts tensors in the decoder's order. `tensors` is emptied on the way: both are never in memory as a whole."""

    def take(*names: str) -> torch.Tensor:
        joined = torch.cat([tensors.pop(f"{name}.weight") for name in names])
        return joined.t().contiguous().to(device, dtype)

    def layer(number: int) -> LayerWeights:
        at = f"model.layers.{number}"
        return LayerWeights(
            input_norm=take(f"{at}.input_layernorm"),
            qkv=take(*(f"{at}.self_attn.{one}_proj" for one in "qkv")),
            output=take(f"{at}.self_attn.o_proj"),
            post_attention_norm=take(f"{at}.post_attention_layernorm"),
            gate_up=take(f"{at}.mlp.gate_proj", f"{at}.mlp.up_proj"),
            down=take(f"{at}.mlp.down_proj"),
        )

    embedding = tensors.pop("model.embed_tokens.weight").to(device, dtype)
    head = embedding.t().contiguous() if config.tie_word_embeddings else take("lm_head")
    layers = tuple(layer(number) for number in range(config.num_hidden_layers))
    return Weights(embedding, layers, take("model.norm"), head)


def read_weights(folder: Path, config: ModelConfig) -> Tensors:
    """All of a folder's tensors. Raises UserError that names the file and what is wrong with it."""
    expected = shapes(config)
    with ExitStack() as stack:
        holders: dict[str, tuple[Path, Any]] = {}
        for path in _files(folder):
            file = stack.enter_context(_open(path))
            for name in file.keys():  # noqa: SIM118 (it is no mapping)
                if _is_ignored(name, config):
                    continue
                if name in holders:
                    raise UserError(f"{path}: {name} is in {holders[name][0].name} too")
                holders[name] = path, file
        _compare(folder, expected, holders)
        return {name: _read(path, file, name) for name, (path, file) in holders.items()}


def _files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if index.exists():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not names or not all(_is_plain(name) for name in names.values()):
            raise UserError(f"{index}: weight_map does not map tensors to file names")
        return [folder / name for name in sorted(set(names.values()))]
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return found
    if found:
        raise UserError(f"{folder}: {len(found)} safetensors files and no {_INDEX} that says what is in them")
    raise UserError(f"{folder}: no *.safetensors file; other formats are not read")


def _is_plain(name: object) -> bool:
    return isinstance(name, str) and name.endswith(".safetensors") and name.isprintable() and "/" not in name


def _is_ignored(name: str, config: ModelConfig) -> bool:
    """Frequencies that old files keep can be computed; a tied head is the embedding."""
    return name.endswith(".rotary_emb.inv_freq") or (config.tie_word_embeddings and name == "lm_head.weight")


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except FileNotFoundError:
        raise UserError(f"{path} is missing: the index of the weights names it") from None
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{path} is damaged or no safetensors file: {error}; copy or download it again"
        ) from error


def _compare(
    folder: Path, expected: dict[str, tuple[int, ...]], holders: dict[str, tuple[Path, Any]]
) -> None:
    missing, extra = sorted(expected.keys() - holders.keys()), sorted(holders.keys() - expected.keys())
    if missing:
        raise UserError(f"{folder}: the weights lack {_some(missing)}; copy or download them again")
    if extra:
        raise UserError(
            f"{holders[extra[0]][0]}: {_some(extra)} belongs to no part of the Llama of config.json"
        )
    for name, (path, file) in holders.items():
        piece = file.get_slice(name)
        if tuple(piece.get_shape()) != expected[name]:
            wanted = list(expected[name])
            raise UserError(
                f"{path}: {name} has shape {list(piece.get_shape())}; config.json asks for {wanted}"
            )
        if piece.get_dtype() not in _FLOATS:
            raise UserError(f"{path}: {name} is {piece.get_dtype()}; this engine needs float weights")


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"


def _read(path: Path, file: Any, name: str) -> torch.Tensor:
    tensor: torch.Tensor = file.get_tensor(name)
    if not torch.isfinite(tensor).all():
        raise UserError(f"{path}: {name} holds values that are no finite numbers; copy or download it again")
    return tensor
