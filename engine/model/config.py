"""What a Llama-style model looks like, from its config.json in transformers' words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachemodel.errors import UserError

ARCHITECTURE = "LlamaForCausalLM"


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama 3's: low frequencies are slowed by `factor`, high ones kept, those between blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes in elements. eos_token_ids: any of them ends a sequence; empty where the model has none."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = False
    eos_token_ids: tuple[int, ...] = ()


def read_config(folder: Path) -> ModelConfig:
    """The config.json of a model's folder, with the end-of-sequence ids of its generation_config.json where it has one.

    Raises UserError for what is not a Llama or cannot be one.
    """
    values = read_json(folder / "config.json")
    return _Reader(folder / "config.json", values).model(_eos_token_ids(folder, values))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object. Raises UserError."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path} is missing: a model's folder has one") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} holds no JSON object")
    return value


def _eos_token_ids(folder: Path, values: Mapping[str, Any]) -> tuple[int, ...]:
    generation = folder / "generation_config.json"
    found: list[int] = []
    for path, source in (
        (folder / "config.json", values),
        (generation, read_json(generation) if generation.exists() else {}),
    ):
        ids = source.get("eos_token_id")
        for one in ids if isinstance(ids, list) else [] if ids is None else [ids]:
            if type(one) is not int or one < 0:
                raise UserError(f"{path}: eos_token_id is {ids!r}, not a token id or a list of them")
            found.append(one)
    return tuple(dict.fromkeys(found))


class _Reader:
    """Takes values out of a config.json and says which one is wrong."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self._path, self._values = path, values

    def model(self, eos_token_ids: tuple[int, ...]) -> ModelConfig:
        self._refuse_other_architectures()
        hidden, heads = self._size("hidden_size"), self._size("num_attention_heads", limit=4096)
        kv_heads = self._size("num_key_value_heads", heads, limit=4096)
        head_dim = self._size("head_dim", hidden // heads, limit=4096)
        if heads % kv_heads:
            raise self._wrong(f"{heads} attention heads cannot share {kv_heads} key-value heads evenly")
        if head_dim % 2:
            raise self._wrong(f"head_dim is {head_dim}; rotary embedding needs an even one")
        theta, scaling = self._rope()
        vocab = self._size("vocab_size")
        if any(one >= vocab for one in eos_token_ids):
            raise self._wrong(
                f"an eos_token_id of {list(eos_token_ids)} lies outside the {vocab} tokens of vocab_size"
            )
        return ModelConfig(
            vocab_size=vocab,
            hidden_size=hidden,
            intermediate_size=self._size("intermediate_size"),
            num_hidden_layers=self._size("num_hidden_layers", limit=1024),
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            rms_norm_eps=self._number(self._values, "rms_norm_eps", 1e-6),
            rope_theta=theta,
            rope_scaling=scaling,
            max_position_embeddings=self._size("max_position_embeddings", 2048, limit=1 << 28),
            tie_word_embeddings=self._values.get("tie_word_embeddings") is True,
            eos_token_ids=eos_token_ids,
        )

    def _refuse_other_architectures(self) -> None:
        names = self._values.get("architectures")
        if names != [ARCHITECTURE]:
            raise self._wrong(f"architectures is {names!r}; this engine runs {ARCHITECTURE}")
        for key, wanted in {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}.items():
            if self._values.get(key, wanted) != wanted:
                raise self._wrong(
                    f"{key} is {self._values[key]!r}; this engine runs Llamas with {wanted!r} only"
                )
        if self._values.get("quantization_config") is not None:
            raise self._wrong("the weights are quantised; this engine needs float weights")

    def _rope(self) -> tuple[float, RopeScaling | None]:
        """transformers 5 keeps both in rope_parameters, 4 in rope_theta and rope_scaling."""
        scaling = self._values.get("rope_parameters") or self._values.get("rope_scaling") or {}
        if not isinstance(scaling, dict):
            raise self._wrong(f"rope_scaling is {scaling!r}, not an object")
        theta = self._number(scaling if "rope_theta" in scaling else self._values, "rope_theta", 10_000.0)
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        if kind == "default":
            return theta, None
        if kind != "llama3":
            raise self._wrong(f"rope scaling of type {kind!r} is not known here; 'default' and 'llama3' are")
        low, high = self._number(scaling, "low_freq_factor"), self._number(scaling, "high_freq_factor")
        if not low < high:
            raise self._wrong(f"low_freq_factor {low} is not below high_freq_factor {high}")
        original = self._number(scaling, "original_max_position_embeddings")
        return theta, RopeScaling(self._number(scaling, "factor"), low, high, int(original))

    def _size(self, key: str, default: int | None = None, *, limit: int = 1 << 24) -> int:
        value = self._values.get(key)
        value = default if value is None else value
        if type(value) is not int or not 0 < value <= limit:
            raise self._wrong(f"{key} is {value!r}, not a whole number from 1 to {limit}")
        return value

    def _number(self, values: Mapping[str, Any], key: str, default: float | None = None) -> float:
        value = values.get(key)
        value = default if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e12:
            raise self._wrong(f"{key} is {value!r}, not a positive number")
        return float(value)

    def _wrong(self, what: str) -> UserError:
        return UserError(f"{self._path}: {what}")
