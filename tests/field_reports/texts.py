"""Texts of /metrics and KV events, as short as a report needs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cachemodel.kv_events import BlockRemoved, BlockStored

Values = float | Sequence[float]

VLLM = {"enable_prefix_caching": "True", "block_size": "16", "num_gpu_blocks": "1000"}
"""What a vLLM says of its cache."""


def metrics(
    *,
    counters: Mapping[str, Values] | None = None,
    gauges: Mapping[str, Values] | None = None,
    scrapes: int = 2,
) -> tuple[str, ...]:
    """Scrapes of some families, with the labels they are written with. A counter given one value begins at 0 and grows
    to it evenly; a gauge given one value stays."""
    texts = []
    for at in range(scrapes):
        lines = []
        for name, values in (counters or {}).items():
            lines += _family(
                name, "counter", values[at] if isinstance(values, Sequence) else values * at / (scrapes - 1)
            )
        for name, values in (gauges or {}).items():
            lines += _family(name, "gauge", values[at] if isinstance(values, Sequence) else values)
        texts.append("\n".join(lines))
    return tuple(texts)


def _family(name: str, kind: str, value: float) -> list[str]:
    family, brace, labels = name.partition("{")
    suffix = "_total" if kind == "counter" else ""
    return [f"# TYPE {family} {kind}", f"{family}{suffix}{brace}{labels} {value:.17g}"]


def stored(
    *blocks: int, parent: int | None = None, tokens: int = 0, size: int = 16, **more: Any
) -> BlockStored:
    """A chain of blocks. tokens: which ones, the same number meaning the same tokens; by default every block has its
    own."""
    first = tokens or (blocks[0] if blocks else 0)
    ids = [first * 1000 + n for n in range(size * len(blocks))]
    return BlockStored(
        block_hashes=list(blocks),
        parent_block_hash=parent,
        token_ids=ids,
        block_size=size,
        **{"medium": "GPU", **more},
    )


def removed(*blocks: int, medium: str = "GPU") -> BlockRemoved:
    """Blocks that left a medium."""
    return BlockRemoved(block_hashes=list(blocks), medium=medium)


def response(id: str, prompt: int, cached: int | None, **more: Any) -> dict[str, Any]:
    """A line of a request log: an OpenAI response with its usage; `cached` None is what a server sends that does not
    tell."""
    details = None if cached is None else {"cached_tokens": cached}
    usage = {"prompt_tokens": prompt, "completion_tokens": 8, "prompt_tokens_details": details}
    return {"response": {"id": id, "model": more.pop("model", "m"), "usage": usage}, **more}


def llm_request(
    id: str, prompt: int, *, prefill_s: float = 0.1, queue_s: float = 0.0, decode_s: float = 1.0
) -> dict[str, Any]:
    """Attributes of a span of vLLM's."""
    return {
        "gen_ai.request.id": id,
        "gen_ai.usage.prompt_tokens": prompt,
        "gen_ai.usage.completion_tokens": 8,
        "gen_ai.latency.time_in_queue": queue_s,
        "gen_ai.latency.time_in_model_prefill": prefill_s,
        "gen_ai.latency.time_in_model_decode": decode_s,
        "gen_ai.latency.time_to_first_token": queue_s + prefill_s,
        "gen_ai.latency.e2e": queue_s + prefill_s + decode_s,
    }


TWICE = [[stored(1, 2, 3)], [stored(1, 2, 3)]]
"""The same prompt, computed again while it was held."""
