"""The rules of caches by the names that people know them by."""

from __future__ import annotations

from typing import NamedTuple

from analysis.prefix_replay.rules import ANTHROPIC, BlockRule, ProviderRule, RadixRule, Rule, SlotRule
from cachemodel.errors import UsageError

CACHES = ("vllm", "sglang", "llama.cpp", "openai", "anthropic")
_SIZED = {"vllm": 16, "sglang": 1}


_BY_DIALECT = {"sglang": "sglang", "llama_cpp": "llama.cpp"}


def of_dialect(dialect: str) -> str:
    """The one of CACHES that servers of a dialect have; of those that are not named here, blocks as vLLM's."""
    return _BY_DIALECT.get(dialect, "vllm")


class Named(NamedTuple):
    """A rule without limits of room, and what to call the cache in a sentence."""

    rule: Rule
    words: str


def named(cache: str, block_size: int | None = None) -> Named:
    """The rule of one of CACHES. Raises UsageError for a block size where there are no blocks."""
    if block_size is not None and cache not in _SIZED:
        raise UsageError(f"{cache} has no blocks of a size; --block-size is for vllm and sglang")
    size = block_size or _SIZED.get(cache, 1)
    if cache == "vllm":
        return Named(BlockRule(block_size=size), f"vLLM's prefix cache in blocks of {size} tokens")
    if cache == "sglang":
        words = f"SGLang's radix cache in pages of {size} token{'s' * (size > 1)}"
        return Named(RadixRule(page_size=size), words)
    if cache == "llama.cpp":
        return Named(SlotRule(), "the slots of llama.cpp's server")
    return (
        Named(ProviderRule(), "OpenAI's cache")
        if cache == "openai"
        else Named(ANTHROPIC, "Anthropic's cache")
    )
