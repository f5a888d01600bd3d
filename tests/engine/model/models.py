"""Small models for tests: transformers writes them, the engine loads them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers

from engine.config import EngineConfig
from engine.model import demo
from engine.model.batch import Batch, Chunk
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.model.load import Loaded, load

torch.set_num_threads(1)

BLOCK = 4
SIZES: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "eos_token_id": 1,
    "bos_token_id": 0,
}


def write(folder: Path, seed: int = 0, **changes: Any) -> transformers.LlamaForCausalLM:
    """A folder as transformers saves it, with the demo's tokenizer beside it."""
    torch.manual_seed(seed)
    settings = transformers.LlamaConfig(**SIZES | changes)
    # Weights far from zero, so that a wrong one shows.
    settings.initializer_range = 0.2
    reference = transformers.LlamaForCausalLM(settings).eval()
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
    reference.save_pretrained(folder)
    shutil.copy(demo.FOLDER / "tokenizer.json", folder)
    return reference


def change(path: Path, **values: Any) -> None:
    """Set keys of a JSON file; None removes one."""
    content = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def loaded(folder: Path, **settings: Any) -> Loaded:
    return load(EngineConfig(model=str(folder), **settings))


def empty_pool(config: ModelConfig, blocks: int, block_size: int = BLOCK) -> torch.Tensor:
    """KV that poisons whatever reads a slot before it was written."""
    shape = (config.num_hidden_layers, 2, blocks, block_size, config.num_key_value_heads, config.head_dim)
    return torch.full(shape, torch.nan)


def one_shot(model: Llama, ids: list[int]) -> torch.Tensor:
    """float32[vocab]: the logits after a prompt computed at once, alone."""
    blocks = -(-len(ids) // BLOCK)
    batch = Batch(torch.tensor(ids), (Chunk(0, len(ids), range(blocks)),))
    return model.forward(batch, empty_pool(model.config, blocks))[0]
