"""What responses say of their tokens and times, in every style, from both sides of what a count may include."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector import usage
from collector.usage import APIS, SERVERS
from collector.usage.style import Record, Style, Usage


def read(response: Record) -> Usage:
    return Usage(**usage.read(response))


def details(**told: Any) -> dict[str, Any]:
    return {"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": told}


def anthropic(hit: Any, written: Any, fresh: int = 4, **more: Any) -> dict[str, Any]:
    counts = {"cache_read_input_tokens": hit, "cache_creation_input_tokens": written}
    return {"usage": {"input_tokens": fresh, "output_tokens": 9, **counts, **more}}


def litellm(prompt: int, hit: int, written: int) -> dict[str, Any]:
    counts = {"cache_read_input_tokens": hit, "cache_creation_input_tokens": written}
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": 9, **counts}}


def bedrock(**parts: int) -> dict[str, Any]:
    return {"usage": {"inputTokens": 4, "outputTokens": 9, **parts}, "metrics": {"latencyMs": 551}}


def gemini(**more: int) -> dict[str, Any]:
    return {"usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 9, **more}}


def langfuse(**told: int) -> dict[str, Any]:
    return {"usageDetails": told}


# name: (response, (prompt, cached, created, completion))
TOKENS: dict[str, tuple[dict[str, Any], tuple[int | None, ...]]] = {
    "openai": ({"usage": details(cached_tokens=64)}, (100, 64, None, 9)),
    "openai, nothing cached": ({"usage": details(cached_tokens=0)}, (100, 0, None, 9)),
    "openai, cache writes": (
        {"usage": details(cached_tokens=64, cache_write_tokens=36)},
        (100, 64, 36, 9),
    ),
    "openai, details null": (
        {"usage": {"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": None}},
        (100, None, None, 9),
    ),
    "vllm, created": ({"usage": details(cached_tokens=0, created_cache_tokens=96)}, (100, 0, 96, 9)),
    "openai, audio only": ({"usage": details(audio_tokens=3)}, (100, None, None, 9)),
    "responses": (
        {"usage": {"input_tokens": 100, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 64}}},
        (100, 64, None, 9),
    ),
    "responses, no details": ({"usage": {"input_tokens": 100, "output_tokens": 9}}, (100, None, None, 9)),
    "anthropic, read": (anthropic(1165, 0), (1169, 1165, 0, 9)),
    "anthropic, written": (anthropic(0, 1165), (1169, 0, 1165, 9)),
    "anthropic, both": (anthropic(1000, 165), (1169, 1000, 165, 9)),
    "anthropic, nulls": (anthropic(None, None), (4, None, None, 9)),
    "anthropic, writes by lifetime too": (
        anthropic(
            0,
            556,
            cache_creation={"ephemeral_5m_input_tokens": 456, "ephemeral_1h_input_tokens": 100},
        ),
        (560, 0, 556, 9),
    ),
    "anthropic, writes by lifetime only": (
        anthropic(
            7,
            None,
            cache_creation={"ephemeral_5m_input_tokens": 456, "ephemeral_1h_input_tokens": 100},
        ),
        (567, 7, 556, 9),
    ),
    "bedrock": (bedrock(cacheReadInputTokens=60, cacheWriteInputTokens=20), (84, 60, 20, 9)),
    "bedrock, count": (
        bedrock(cacheReadInputTokenCount=60, cacheWriteInputTokenCount=20),
        (84, 60, 20, 9),
    ),
    "bedrock, counts": (
        bedrock(cacheReadInputTokensCount=60, cacheWriteInputTokensCount=20),
        (84, 60, 20, 9),
    ),
    "bedrock, two spellings": (
        bedrock(cacheReadInputTokens=60, cacheReadInputTokenCount=60),
        (64, 60, None, 9),
    ),
    "bedrock, no cache": (bedrock(), (4, None, None, 9)),
    "bedrock, end of a stream": (
        {
            "amazon-bedrock-invocationMetrics": {
                **{"inputTokenCount": 4, "outputTokenCount": 9, "cacheReadInputTokenCount": 60},
                **{"invocationLatency": 551, "firstByteLatency": 120},
            }
        },
        (64, 60, None, 9),
    ),
    "gemini": (gemini(cachedContentTokenCount=60), (100, 60, None, 9)),
    "gemini, thoughts": (gemini(thoughtsTokenCount=7, toolUsePromptTokenCount=5), (105, None, None, 16)),
    "gemini, nothing but thoughts": (
        {"usageMetadata": {"promptTokenCount": 100, "thoughtsTokenCount": 7}},
        (100, None, None, 7),
    ),
    "gemini, python": (
        {"usage_metadata": {"prompt_token_count": 100, "cached_content_token_count": 60}},
        (100, 60, None, None),
    ),
    "deepseek": (
        {
            "usage": {
                **{"prompt_tokens": 100, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36},
                "completion_tokens": 9,
            }
        },
        (100, 64, None, 9),
    ),
    "llama.cpp": (
        {"timings": {"cache_n": 22, "prompt_n": 1, "predicted_n": 6}, "usage": {"prompt_tokens": 23}},
        (23, 22, None, 6),
    ),
    "llama.cpp, before cache_n": ({"timings": {"prompt_n": 1, "predicted_n": 6}}, (None, None, None, 6)),
    "llama.cpp, native": (
        {
            **{"tokens_evaluated": 23, "tokens_cached": 28, "tokens_predicted": 6},
            "timings": {"cache_n": 22, "prompt_n": 1, "predicted_n": 6},
        },
        (23, 22, None, 6),
    ),
    "llama.cpp, native, no timings": (
        {"tokens_evaluated": 23, "tokens_cached": 28, "tokens_predicted": 6},
        (23, None, None, 6),
    ),
    "sglang": (
        {"meta_info": {"prompt_tokens": 5, "completion_tokens": 32, "cached_tokens": 2}},
        (5, 2, None, 32),
    ),
    "litellm, both parts in": (litellm(17_111, 15_624, 1_000), (17_111, 15_624, 1_000, 9)),
    "litellm, writes left out": (litellm(120_357, 120_269, 21_002), (141_359, 120_269, 21_002, 9)),
    "litellm, both left out": (litellm(12, 2_495, 300), (2_807, 2_495, 300, 9)),
    "litellm, writes only": (litellm(12, 0, 300), (312, 0, 300, 9)),
    "langfuse, disjoint": (
        langfuse(input=86, input_cached_tokens=17_817, output=9),
        (17_903, 17_817, None, 9),
    ),
    "langfuse, total agrees": (
        langfuse(input=86, input_cached_tokens=17_817, output=9, total=17_912),
        (17_903, 17_817, None, 9),
    ),
    "langfuse, cached inside": (
        langfuse(input=117_231, cache_read_input_tokens=115_584, output=225, total=117_456),
        (117_231, 115_584, None, 225),
    ),
    "nothing": ({}, (None, None, None, None)),
    "a sum beyond belief": (anthropic(2**32 - 1, 2**32 - 1), (None, 2**32 - 1, 2**32 - 1, 9)),
}


@pytest.mark.parametrize("name", TOKENS)
def test_tokens(name: str) -> None:
    response, expected = TOKENS[name]
    told = read(response)
    assert (told.prompt_tokens, told.cached_tokens, told.created_tokens, told.completion_tokens) == expected


# name: (response, what is said of tiers and times)
TIERS_AND_TIMES: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "vllm": (
        {
            "metrics": {
                "time_to_first_token_ms": 361.8107,
                "generation_time_ms": 1533.1428,
                "queue_time_ms": 0.0427,
            }
        },
        {"prefill_us": 361_811, "decode_us": 1_533_143, "queue_us": 43},
    ),
    "vllm, only some": ({"metrics": {"queue_time_ms": 0}}, {"queue_us": 0}),
    "vllm, mad": ({"metrics": {"queue_time_ms": -1, "generation_time_ms": 1e300}}, {}),
    "llama.cpp": (
        {"timings": {"cache_n": 0, "prompt_n": 372, "prompt_ms": 199.887, "predicted_ms": 637.557}},
        {"prompt_tokens": 372, "cached_tokens": 0, "prefill_us": 199_887, "decode_us": 637_557},
    ),
    "sglang, tiers": (
        {"meta_info": {"prompt_tokens": 9, "cached_tokens_details": {"device": 2, "host": 1, "storage": 4}}},
        {"prompt_tokens": 9, "cached_tokens": 7, "device_tokens": 2, "host_tokens": 1, "remote_tokens": 4},
    ),
    "sglang, no storage": (
        {"sglext": {"cached_tokens_details": {"device": 2, "host": 0}}},
        {"cached_tokens": 2, "device_tokens": 2, "host_tokens": 0},
    ),
    "sglang, details null": (
        {"meta_info": {"prompt_tokens": 9, "cached_tokens": 2, "cached_tokens_details": None}},
        {"prompt_tokens": 9, "cached_tokens": 2},
    ),
    "sglang, times": (
        {"meta_info": {"completion_tokens": 1, "e2e_latency": 0.2235169, "queue_time": 0.01}},
        {"completion_tokens": 1, "e2e_us": 223_517, "queue_us": 10_000},
    ),
    "bedrock": (bedrock(), {"prompt_tokens": 4, "completion_tokens": 9, "e2e_us": 551_000}),
    "bedrock, stream": (
        {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 4, "firstByteLatency": 120}},
        {"prompt_tokens": 4, "ttft_us": 120_000},
    ),
}


@pytest.mark.parametrize("name", TIERS_AND_TIMES)
def test_tiers_and_times(name: str) -> None:
    response, expected = TIERS_AND_TIMES[name]
    assert read(response) == Usage(**expected)


@pytest.mark.parametrize("style", [*SERVERS, *APIS], ids=lambda style: style.name)
def test_every_row_says_something(style: Style) -> None:
    for row in style.rows:
        places = [place for place in (*row.needed, *row.also) if not place.startswith("=")]
        response: dict[str, Any] = {}
        for place in places:
            *path, last = place.split(".")
            inner = response
            for name in path:
                inner = inner.setdefault(name, {})
            inner[last] = 1
        if places:
            assert row.value(response, {}) is not None, row
            assert row.value({}, {}) is None, row


def test_the_documentation_has_every_style() -> None:
    page = (Path(__file__).parents[2] / "docs" / "servers" / "usage.md").read_text()
    assert [style.name for style in (*SERVERS, *APIS) if f"| `{style.name}` |" not in page] == []
