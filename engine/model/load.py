"""An engine's model: all of it, or an error that says which file to put right."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from cachemodel.errors import UserError
from engine.config import EngineConfig
from engine.model import demo
from engine.model.config import ModelConfig, read_config
from engine.model.llama import Llama
from engine.model.tokenizer import Tokenizer, read_tokenizer
from engine.model.weights import assemble, read_weights

DEMO = "demo"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Loaded:
    model: Llama
    config: ModelConfig
    tokenizer: Tokenizer


def load(config: EngineConfig) -> Loaded:
    """Raises UserError for a model that is not there, not whole, not a Llama, or not fit for the other settings."""
    device, dtype = _device(config.device), _dtype(config.dtype)
    folder = demo.FOLDER if config.model == DEMO else Path(config.model).expanduser()
    if not folder.is_dir():
        raise UserError(
            f"{folder} is no folder: a model is '{DEMO}' or a folder with config.json and safetensors"
        )
    model = read_config(folder)
    if config.max_model_len > model.max_position_embeddings:
        limit = model.max_position_embeddings
        raise UserError(
            f"max_model_len is {config.max_model_len}; {folder} was made for {limit} tokens at most"
        )
    name = demo.NAME if config.model == DEMO else folder.resolve().name
    tokenizer = read_tokenizer(folder, name, model.eos_token_ids)
    if tokenizer.vocab_size > model.vocab_size:
        have, known = tokenizer.vocab_size, model.vocab_size
        raise UserError(f"{folder}: tokenizer.json has {have} tokens, more than the {known} of config.json")
    model = replace(model, eos_token_ids=tokenizer.eos_token_ids)
    if config.model == DEMO:
        tensors = demo.draw_weights(model, config.seed, demo.unreadable(tokenizer, model.vocab_size))
    else:
        tensors = read_weights(folder, model)
    return Loaded(Llama(model, assemble(model, tensors, device, dtype)), model, tokenizer)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"device {name!r} is not known; cpu and cuda are") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("device is cuda, but torch sees no GPU here; use cpu, or install torch for CUDA")
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device {name!r} is not served; cpu and cuda are")
    return device


def _dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise UserError(f"dtype {name!r} is not served; {', '.join(DTYPES)} are")
    return DTYPES[name]
