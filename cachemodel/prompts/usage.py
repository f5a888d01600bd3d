"""Prompt and cached tokens by the usage of a response, as the collector reads them; and its text.

The forms and their traps are told in collector/usage, one module a provider; a test holds both to the same answers.
None is what a response does not say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cachemodel.prompts.fields import Record, field, number

MAX_TOKENS = 2**32 - 1
Counts = tuple[int | None, int | None]
"""Prompt tokens, cached ones included, and the cached of them."""

_SERVERS = ("timings", "tokens_evaluated", "meta_info", "sglext")
_OTHERS = ("usageDetails", "usageMetadata", "usage_metadata", "amazon-bedrock-invocationMetrics")


def counts(response: Record) -> Counts:
    """A server's own words go before those of an API; of the APIs the first counts whose words these are."""
    prompt, cached = (None, None) if response.keys().isdisjoint(_SERVERS) else _server(response)
    if prompt is not None and cached is not None:
        return prompt, cached
    usage = response.get("usage")
    if not response.keys().isdisjoint(_OTHERS) or (isinstance(usage, dict) and "inputTokens" in usage):
        told = _api(response)
    else:
        told = _openai_or_anthropic(usage) if isinstance(usage, dict) else (None, None)
    return told[0] if prompt is None else prompt, told[1] if cached is None else cached


def _tokens(response: Record, *places: str) -> int | None:
    """The first of some places that holds a believable count."""
    for place in places:
        count = number(field(response, place) if "." in place else response.get(place))
        if count is not None and 0 <= count <= MAX_TOKENS:
            return int(count)
    return None


def _sum(*counts: int | None) -> int | None:
    """The sum of what is told; None where nothing is, or where it is beyond belief."""
    told = [count for count in counts if count is not None]
    return sum(told) if told and sum(told) <= MAX_TOKENS else None


def _first(*counts: int | None) -> int | None:
    return next((count for count in counts if count is not None), None)


def _server(response: Record) -> Counts:
    """llama.cpp's timings and /completion, SGLang's meta_info and sglext."""
    prompt = cached = None
    if _has(response, "timings.prompt_n", "timings.predicted_n", "tokens_evaluated"):
        computed, cached = _tokens(response, "timings.prompt_n"), _tokens(response, "timings.cache_n")
        both = None if computed is None or cached is None else _sum(computed, cached)
        prompt = _first(both, _tokens(response, "tokens_evaluated"))
    if _has(
        response,
        "meta_info.prompt_tokens",
        "meta_info.completion_tokens",
        "sglext.cached_tokens_details",
    ):
        prompt = _first(prompt, _tokens(response, "meta_info.prompt_tokens"))
        tiers = (
            _tokens(
                response, f"meta_info.cached_tokens_details.{tier}", f"sglext.cached_tokens_details.{tier}"
            )
            for tier in ("device", "host", "storage")
        )
        cached = _first(cached, _tokens(response, "meta_info.cached_tokens"), _sum(*tiers))
    return prompt, cached


def _has(response: Record, *places: str) -> bool:
    return any(field(response, place) is not None for place in places)


def _api(response: Record) -> Counts:
    if _has(response, "usageDetails.input", "usageDetails.output"):
        return _langfuse(response)
    if _has(
        response,
        "usageMetadata.promptTokenCount",
        "usageMetadata.totalTokenCount",
        "usage_metadata.prompt_token_count",
    ):
        told = (
            _gemini(response.get("usageMetadata"), _GEMINI),
            _gemini(response.get("usage_metadata"), _PYTHON),
        )
        return _first(told[0][0], told[1][0]), _first(told[0][1], told[1][1])
    if _has(response, "usage.inputTokens", f"{_METRICS}.inputTokenCount"):
        return _bedrock(response)
    usage = response.get("usage")
    return _openai_or_anthropic(usage) if isinstance(usage, dict) else (None, None)


def _gemini(meta: object, names: Sequence[str]) -> Counts:
    """Results of tools that Google ran itself are counted apart."""
    if not isinstance(meta, dict):
        return None, None
    prompt, tools, cached = (_tokens(meta, name) for name in names)
    return None if prompt is None else _sum(prompt, tools), cached


_GEMINI = ("promptTokenCount", "toolUsePromptTokenCount", "cachedContentTokenCount")
_DEEPSEEK = ("prompt_cache_hit_tokens", "prompt_cache_miss_tokens")
_ANTHROPIC = ("cache_read_input_tokens", "cache_creation_input_tokens")
_METRICS = "amazon-bedrock-invocationMetrics"
_PYTHON = ("prompt_token_count", "tool_use_prompt_token_count", "cached_content_token_count")


def _langfuse(response: Record) -> Counts:
    """Disjoint parts, unless the total says otherwise."""
    told: Mapping[str, Any] = response["usageDetails"]
    prompt = _tokens(told, "input")
    cached = _tokens(told, "input_cached_tokens", "cache_read_input_tokens")
    created = _tokens(told, "input_cache_creation", "cache_creation_input_tokens")
    total = _tokens(told, "total")
    if prompt is not None and (total is None or total != prompt + (_tokens(told, "output") or 0)):
        prompt = prompt + (cached or 0) + (created or 0)
    return prompt, cached


def _bedrock(response: Record) -> Counts:
    """What stands under inputTokens leaves out both parts; they are spelt in three ways."""
    spelt = ("usage.cache{}InputTokens", "usage.cache{}InputTokenCount", "usage.cache{}InputTokensCount")
    places = (*spelt, f"{_METRICS}.cache{{}}InputTokenCount")
    cached = _tokens(response, *(place.format("Read") for place in places))
    created = _tokens(response, *(place.format("Write") for place in places))
    computed = _tokens(response, "usage.inputTokens", f"{_METRICS}.inputTokenCount")
    return None if computed is None else _sum(computed, cached, created), cached


def _openai_or_anthropic(usage: Record) -> Counts:
    """What stands under `usage` in DeepSeek's, a gateway's, Anthropic's and OpenAI's two forms."""
    said = {name for name, value in usage.items() if value is not None}
    if not said.isdisjoint(_DEEPSEEK):
        hit, miss = (_tokens(usage, name) for name in _DEEPSEEK)
        return None if hit is None or miss is None else _sum(hit, miss), hit
    marked = not said.isdisjoint(_ANTHROPIC)
    read, written = (_tokens(usage, name) for name in _ANTHROPIC) if marked else (None, None)
    if marked and "prompt_tokens" in said:  # a gateway's: what it includes has to be found out
        prompt = _tokens(usage, "prompt_tokens")
        if prompt is not None and prompt < (read or 0) + (written or 0):
            prompt += (written or 0) + ((read or 0) if prompt < (read or 0) else 0)
        return prompt, read
    if marked or "cache_creation" in said:
        if written is None:
            written = _sum(
                _tokens(usage, "cache_creation.ephemeral_5m_input_tokens"),
                _tokens(usage, "cache_creation.ephemeral_1h_input_tokens"),
            )
        after = _tokens(usage, "input_tokens")
        return None if after is None else _sum(after, read, written), read
    if not said.isdisjoint(("prompt_tokens", "completion_tokens", "prompt_tokens_details")):
        return _tokens(usage, "prompt_tokens"), _tokens(usage, "prompt_tokens_details.cached_tokens")
    return _tokens(usage, "input_tokens"), _tokens(usage, "input_tokens_details.cached_tokens")
