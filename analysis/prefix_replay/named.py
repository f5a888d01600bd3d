"""The rules of caches by the names that people know them by, and their limits by the names that the rules have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from analysis.prefix_replay.rules import ANTHROPIC, BlockRule, ProviderRule, RadixRule, Rule, SlotRule
from cachemodel.errors import UsageError, UserError

CACHES = ("vllm", "sglang", "llama.cpp", "openai", "anthropic")
_SIZED = {"vllm": 16, "sglang": 1}
_PROVIDERS = ("minimum", "granularity", "breakpoints", "look_back", "lifetime")
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "vllm": ("capacity", "chunk", "max_num_seqs"),
    "sglang": ("capacity", "chunk", "max_running_requests"),
    "llama.cpp": ("slots", "similarity", "cache_reuse", "host_tokens"),
    "openai": _PROVIDERS,
    "anthropic": _PROVIDERS,
}
"""What of each cache can be set, see its rule."""
_FRACTIONS = ("similarity", "lifetime")

_BY_DIALECT = {"sglang": "sglang", "llama_cpp": "llama.cpp"}


def of_dialect(dialect: str) -> str:
    """The one of CACHES that servers of a dialect have; of those that are not named here, blocks as vLLM's."""
    return _BY_DIALECT.get(dialect, "vllm")


class Named(NamedTuple):
    """A rule, and what to call the cache in a sentence."""

    rule: Rule
    words: str


def named(cache: str, block_size: int | None = None, settings: Mapping[str, str] | None = None) -> Named:
    """The rule of one of CACHES, without limits of room unless `settings` has some, by name as text. Raises UsageError
    for a block size where there are no blocks, and for settings that the cache does not have."""
    if block_size is not None and cache not in _SIZED:
        raise UsageError(f"{cache} has no blocks of a size; --block-size is for vllm and sglang")
    plain = _plain(cache, block_size or _SIZED.get(cache, 1))
    if not settings:
        return plain
    numbers = {name: _number(cache, name, text) for name, text in settings.items()}
    try:
        rule = replace(plain.rule, **numbers)  # type: ignore[arg-type]
    except UserError as error:
        raise UsageError(str(error)) from None
    return Named(rule, f"{plain.words} with {', '.join(f'{name} {text}' for name, text in settings.items())}")


def _plain(cache: str, size: int) -> Named:
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


def _number(cache: str, name: str, text: str) -> float:
    if name not in SETTINGS[cache]:
        raise UsageError(f"{cache} has no {name!r} to set; it has {', '.join(SETTINGS[cache])}")
    try:
        number = float(text) if name in _FRACTIONS else int(text)
    except ValueError:
        kind = "number" if name in _FRACTIONS else "whole number"
        raise UsageError(f"{name} is {text!r}: give a {kind}") from None
    if not number < float("inf"):
        raise UsageError(f"{name} is {text!r}: leave it out where there is no limit")
    return number
