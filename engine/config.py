"""Every setting of an engine, named once; `hitmap engine serve` has an option for each, in vLLM's words where it has
some."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """model: "demo" (seeded random weights, own tokenizer) or a folder with config.json, safetensors and
    tokenizer.json. served_model_name: what clients call it, empty for what `model` says. dtype: float32 or bfloat16.
    device: cpu or cuda. seed: of random weights. max_model_len: tokens of a prompt and its answer together at most.
    block_size: tokens a block. device_blocks, host_blocks, disk_blocks: capacity of the tiers, 0 for no such tier.
    disk_path: folder of the disk tier, None for a temporary one. prefix_caching: whether KV is used again.
    cache_unit: tokens that are used again together, a multiple of block_size, as with hybrid models; 0 for a block.
    drop_last_unit: compute the last unit that was found all the same, as with EAGLE and MTP. cache_ttl: seconds after
    its last use for which a block stays cached, 0 for ever.
    max_num_batched_tokens: tokens a step computes at most, prompt and decode together: longer prompts go in chunks.
    max_num_seqs: requests that run at once. max_waiting: requests that may queue before others are refused.
    max_load_blocks: blocks a step moves from the host to the device at most, so that loading does not stop decoding.
    hash_seed: PYTHONHASHSEED of vLLM's block-hash law, "random" for another one each time.
    threads: of torch, 0 for its own choice.
    """

    model: str = "demo"
    served_model_name: str = ""
    dtype: str = "float32"
    device: str = "cpu"
    seed: int = 0
    max_model_len: int = 4096
    block_size: int = 16
    device_blocks: int = 1024
    host_blocks: int = 2048
    disk_blocks: int = 0
    disk_path: Path | None = None
    prefix_caching: bool = True
    cache_unit: int = 0
    drop_last_unit: bool = False
    cache_ttl: float = 0.0
    max_num_batched_tokens: int = 512
    max_num_seqs: int = 16
    max_waiting: int = 4096
    max_load_blocks: int = 64
    hash_seed: str = "0"
    threads: int = 0
