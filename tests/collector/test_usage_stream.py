"""Streamed responses put together, and responses that real providers gave."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import yaml

from collector.usage import stream
from collector.usage.style import Usage
from tests.collector.test_usage import details, gemini, read

PROMPT_CACHE = Path(__file__).parents[3] / "shared" / "traces" / "prompt-cache-http"

ANTHROPIC_STREAM = """event: message_start
data: {"type":"message_start","message":{"id":"msg_1","model":"claude","stop_reason":null,"usage":\
{"input_tokens":4,"cache_creation_input_tokens":0,"cache_read_input_tokens":60,"output_tokens":1}}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"secret"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":201}}

data: {"cut":
data: [DONE]
"""


def test_stream_of_anthropic() -> None:
    whole = stream.joined(stream.events(ANTHROPIC_STREAM))
    told = read(whole)
    assert (told.prompt_tokens, told.cached_tokens, told.completion_tokens) == (64, 60, 201)
    assert (whole["id"], whole["model"], whole["stop_reason"]) == ("msg_1", "claude", "end_turn")
    assert "secret" not in json.dumps(whole)


def test_stream_of_openai() -> None:
    common = {"id": "chatcmpl-1", "model": "m", "created": 5}
    chunks = [
        {**common, "choices": [{"delta": {"content": "secret"}, "finish_reason": None}], "usage": None},
        {**common, "choices": [{"delta": {}, "finish_reason": "stop"}]},
        {**common, "choices": [], "usage": details(cached_tokens=64), "metrics": {"queue_time_ms": 2}},
    ]
    whole = stream.joined(chunks)
    assert read(whole) == Usage(prompt_tokens=100, cached_tokens=64, completion_tokens=9, queue_us=2000)
    assert (whole["id"], whole["finish_reason"], whole["created"]) == ("chatcmpl-1", "stop", 5)
    assert "secret" not in json.dumps(whole)


def test_stream_of_responses_and_of_gemini() -> None:
    done = {"id": "resp_1", "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64}}}
    whole = stream.joined(
        [
            {"type": "response.created", "response": {"id": "resp_1", "usage": None}},
            {"type": "response.completed", "response": done},
        ]
    )
    assert whole["id"] == "resp_1"
    assert read(whole) == Usage(prompt_tokens=100, cached_tokens=64)
    whole = stream.joined(
        [
            {"responseId": "g", "usageMetadata": {"promptTokenCount": 100, "cachedContentTokenCount": 60}},
            {"candidates": [{"finishReason": "STOP"}], **gemini()},
        ]
    )
    assert read(whole) == Usage(prompt_tokens=100, cached_tokens=60, completion_tokens=9)
    assert whole["finish_reason"] == "STOP"


# Recorded by traceloop/openllmetry (Apache-2.0); the figures are what the providers billed.
RECORDED = {
    "test_anthropic_prompt_caching_legacy.yaml": [(1167, 0, 1163, 187), (1167, 1163, 0, 202)],
    "test_anthropic_prompt_caching_async_legacy.yaml": [(1169, 0, 1165, 207), (1169, 1165, 0, 224)],
    "test_anthropic_prompt_caching_stream_legacy.yaml": [(1169, 0, 1165, 201), (1169, 1165, 0, 221)],
    "test_invoke_model_cache_tokens.yaml": [(18_135, 0, 18_131, 50), (18_135, 18_131, 0, 50)],
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_prompt_caches(name: str) -> None:
    if not PROMPT_CACHE.exists():
        pytest.skip(f"the recordings {PROMPT_CACHE} are not beside this checkout")
    found = []
    for interaction in yaml.safe_load((PROMPT_CACHE / name).read_text())["interactions"]:
        body = interaction["response"]["body"]["string"]
        text = gzip.decompress(body).decode() if isinstance(body, bytes) else body
        response = json.loads(text) if text.startswith("{") else stream.joined(stream.events(text))
        told = read(response)
        found.append((told.prompt_tokens, told.cached_tokens, told.created_tokens, told.completion_tokens))
    assert found == RECORDED[name]
