"""Lines of request logs: the shapes of three APIs, normalised; what is missing or mad."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.request_log import (
    CANARY,
    IMPLAUSIBLE,
    MAX_LINE_BYTES,
    NO_ID,
    NO_TIME,
    NOT_AN_OBJECT,
    NOT_JSON,
    TOO_LONG,
    Rejected,
    UsageRow,
    parse_line,
)
from tests.collector.spans import log_rows

NOW_S = 1_795_954_000.0


def parsed(record: Any, **more: Any) -> UsageRow:
    row = parse_line(json.dumps(record).encode(), "s", NOW_S, **more)
    assert isinstance(row, UsageRow), row
    return row


def record(usage: Any, **more: Any) -> UsageRow:
    return parsed({"response_id": "r", "sent_unix_ns": int(NOW_S * 1e9), "usage": usage, **more})


def test_recorded_log(run1: Path) -> None:
    rows = log_rows(run1)
    assert len(rows) == 175
    assert sum(row.prompt_tokens or 0 for row in rows) == 94_499
    assert sum(row.cached_tokens or 0 for row in rows) == 56_480
    assert [row.prompt_tokens for row in rows if row.finish_reason == "abort"] == [None, None]
    first = rows[0]
    assert first.request_id == "chatcmpl-r1-shared-0001"
    assert (first.time, first.client_ttft_us, first.client_e2e_us) == (1795953914.379837, 388_045, 1_918_512)
    assert (first.model, first.finish_reason, first.labels) == ("tiny-llama", "length", {"phase": "shared"})
    assert (first.queue_us, first.prefill_us, first.decode_us) == (43, 361_811, 1_533_143)
    assert (first.created_tokens, first.ttft_us, first.e2e_us) == (352, None, None)


def test_no_text_is_kept(run1: Path) -> None:
    (line, *_) = (run1 / "requests.jsonl").read_bytes().splitlines()
    payload = b"".join(row.entry().payload for row in log_rows(run1))
    told = json.loads(line)
    assert told["response_text"][:20].encode() not in payload
    assert b"Harbor Books" in line
    assert b"Harbor Books" not in payload


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 2}, (10, None, 2)),
        ({"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": None}, (10, None, 2)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {}}, (10, None, None)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": None}}, (10, None, None)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0}}, (10, 0, None)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 8}}, (10, 8, None)),
        ({"input_tokens": 10, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 8}}, (10, 8, 3)),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6}, (10, 4, None)),
        (
            {"input_tokens": 4, "cache_read_input_tokens": 1165, "cache_creation_input_tokens": 0},
            (1169, 1165, None),
        ),
        (
            {"input_tokens": 4, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 1165},
            (1169, 0, None),
        ),
        ({"input_tokens": 4, "cache_read_input_tokens": None, "output_tokens": 1}, (4, None, 1)),
        ({"cache_read_input_tokens": 5}, (None, 5, None)),
        ({"prompt_tokens": -1, "completion_tokens": 2**40}, (None, None, None)),
        ({"prompt_tokens": "10", "completion_tokens": True}, (None, None, None)),
        ({"prompt_tokens": 10**400}, (None, None, None)),
        (None, (None, None, None)),
        ([], (None, None, None)),
    ],
)
def test_usage_is_normalised(usage: Any, expected: tuple[int | None, ...]) -> None:
    row = record(usage)
    assert (row.prompt_tokens, row.cached_tokens, row.completion_tokens) == expected


def test_response_of_openai() -> None:
    row = parsed(
        {
            **{"id": "chatcmpl-1", "object": "chat.completion", "created": int(NOW_S), "model": "m"},
            "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 1},
        }
    )
    assert (row.request_id, row.time, row.model, row.finish_reason) == ("chatcmpl-1", NOW_S, "m", "stop")


def test_response_of_anthropic_within_a_record() -> None:
    response = {
        **{"id": "msg_1", "model": "claude", "stop_reason": "end_turn"},
        "usage": {"input_tokens": 4, "cache_read_input_tokens": 60, "output_tokens": 2},
    }
    row = parsed({"timestamp": "2026-11-29T12:00:00Z", "total_s": 1.5, "response": response, "tenant": "t"})
    assert (row.request_id, row.model, row.finish_reason) == ("msg_1", "claude", "end_turn")
    assert (row.prompt_tokens, row.cached_tokens, row.client_e2e_us) == (64, 60, 1_500_000)
    assert row.labels == {"tenant": "t"}


def test_response_of_gemini() -> None:
    usage = {"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 5}
    response = {
        **{"responseId": "g1", "modelVersion": "gemini", "createTime": "2026-11-29T12:00:00.5+00:00"},
        **{"candidates": [{"finishReason": "STOP"}], "usageMetadata": {**usage, "thoughtsTokenCount": 7}},
    }
    row = parsed(response)
    assert (row.request_id, row.model, row.finish_reason) == ("g1", "gemini", "STOP")
    assert (row.prompt_tokens, row.cached_tokens, row.completion_tokens) == (100, 60, 12)


def test_response_of_sglang_and_of_bedrock() -> None:
    meta = {"id": "g1", "finish_reason": {"type": "length"}, "prompt_tokens": 9, "cached_tokens": 2}
    row = parsed({"time": NOW_S, "response": {"text": "hi", "meta_info": {**meta, "e2e_latency": 0.5}}})
    assert (row.request_id, row.finish_reason, row.e2e_us) == ("g1", "length", 500_000)
    assert (row.prompt_tokens, row.cached_tokens) == (9, 2)
    response = {
        **{"ResponseMetadata": {"RequestId": "b1"}, "stopReason": "end_turn", "metrics": {"latencyMs": 551}},
        "usage": {"inputTokens": 4, "cacheReadInputTokens": 60, "outputTokens": 2},
    }
    row = parsed({"time": NOW_S, "response": response})
    assert (row.request_id, row.finish_reason, row.prompt_tokens, row.e2e_us) == (
        "b1",
        "end_turn",
        64,
        551_000,
    )


def test_response_of_a_batch() -> None:
    body = {"id": "chatcmpl-1", "created": NOW_S, "usage": {"prompt_tokens": 5, "completion_tokens": 1}}
    row = parsed({"id": "batch_req_1", "custom_id": "x", "response": {"status_code": 200, "body": body}})
    assert (row.request_id, row.time, row.prompt_tokens) == ("chatcmpl-1", NOW_S, 5)


CHUNKS = [
    {"id": "c1", "model": "m", "created": NOW_S, "choices": [{"delta": {"content": "secret"}}]},
    {"id": "c1", "choices": [{"delta": {}, "finish_reason": "stop"}]},
    {"id": "c1", "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2}},
]


@pytest.mark.parametrize(
    "streamed",
    [CHUNKS, "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in CHUNKS) + "data: [DONE]\n\n"],
    ids=["chunks", "text"],
)
def test_streamed_response(streamed: Any) -> None:
    row = parsed({"response": streamed, "ttft_s": 0.25})
    assert (row.request_id, row.model, row.finish_reason, row.time) == ("c1", "m", "stop", NOW_S)
    assert (row.prompt_tokens, row.completion_tokens, row.client_ttft_us) == (10, 2, 250_000)
    assert b"secret" not in row.entry().payload


@pytest.mark.parametrize("response", ["plain text", [], {}, None, 5, ["no chunk", None, {}]])
def test_a_record_whose_response_tells_nothing_speaks_for_itself(response: Any) -> None:
    assert record({"prompt_tokens": 10}, response=response).prompt_tokens == 10


def test_labels_are_short_scalars() -> None:
    fields = {"phase": "p", "arm": 2, "tenant": True, "tag": "x" * 257, "template": ["no"], "experiment": ""}
    assert record({}, **fields).labels == {"phase": "p", "arm": "2", "tenant": "true"}
    line = json.dumps({"response_id": "r", "time": NOW_S, "run": "a", "phase": "p"}).encode()
    row = parse_line(line, "s", NOW_S, label_fields=["run"])
    assert isinstance(row, UsageRow)
    assert row.labels == {"phase": "p", "run": "a"}


@pytest.mark.parametrize("seconds", [-1, 1e7, "1", None, True, 10**400])
def test_unbelievable_durations_are_unknown(seconds: Any) -> None:
    assert record({}, total_s=seconds).client_e2e_us is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", NOT_JSON),
        (b"\xff", NOT_JSON),
        (b"[" * 100_000, NOT_JSON),
        (b'{"response_id": NaN}', NOT_JSON),
        (b"[]", NOT_AN_OBJECT),
        (b"null", NOT_AN_OBJECT),
        (b"{}", NO_ID),
        (b'{"id": 5}', NO_ID),
        (b'{"id": "%s"}' % (b"x" * 300), NO_ID),
        (b'{"id": "r"}', NO_TIME),
        (b'{"id": "r", "time": "yesterday"}', NO_TIME),
        (b'{"id": "r", "time": 5}', IMPLAUSIBLE),
        (b'{"id": "r", "time": 9e99}', IMPLAUSIBLE),
        (b'{"id": "r", "time": "0001-01-01T00:00:00+14:00"}', IMPLAUSIBLE),
        (b" " * (MAX_LINE_BYTES + 1), TOO_LONG),
    ],
)
def test_lines_that_are_no_good(line: bytes, reason: str) -> None:
    assert parse_line(line, "s", NOW_S) == Rejected(reason)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
NAMES = (
    "id response_id response usage usageMetadata choices candidates finish_reason stop_reason model body time"
    " created sent_unix_ns ttft_s total_s phase client_aborted prompt_tokens input_tokens prompt_tokens_details"
    " cache_read_input_tokens promptTokenCount timings cache_n prompt_n prompt_ms metrics queue_time_ms meta_info"
    " cached_tokens_details device sglext usageDetails input total message delta"
)
fields = st.sampled_from(NAMES.split())
nested = st.dictionaries(fields, json_values | st.dictionaries(fields, json_values), max_size=8)


@given(nested)
def test_any_object_makes_a_row_that_can_be_written_or_a_reason(drawn: dict[str, Any]) -> None:
    row = parse_line(json.dumps(drawn).encode(), "s", NOW_S)
    if isinstance(row, UsageRow):
        told = json.loads(row.entry().payload)
        counts = [value for name, value in told.items() if name.endswith("_tokens")]
        assert len(counts) == 7
        assert all(value is None or 0 <= value < 2**32 for value in counts)
        times = [value for name, value in told.items() if name.endswith("_us")]
        assert len(times) == 7
        assert all(value is None or 0 <= value <= 10**12 for value in times)


@given(st.binary(max_size=200))
def test_any_bytes_make_no_exception(line: bytes) -> None:
    assert isinstance(parse_line(line, "s", NOW_S), Rejected | UsageRow)


@pytest.mark.parametrize(
    ("told", "time"),
    [
        ({"time": NOW_S + 0.25}, NOW_S + 0.25),
        ({"timestamp": int(NOW_S) * 1000 + 250}, int(NOW_S) + 0.25),
        ({"start_time": int(NOW_S) * 10**6 + 250_000}, int(NOW_S) + 0.25),
        ({"sent_at": int(NOW_S) * 10**9 + 250_000_000}, int(NOW_S) + 0.25),
        ({"time": int(NOW_S), "start_time": int(NOW_S) - 0.75}, int(NOW_S) - 0.75),
        ({"time": int(NOW_S) - 5}, int(NOW_S) - 5),
        ({"time": "yesterday"}, int(NOW_S)),
        ({}, int(NOW_S)),
    ],
)
def test_the_finest_time_of_a_record_goes_before_the_whole_seconds_of_a_response(
    told: dict[str, Any], time: float
) -> None:
    record = {"response": {"id": "c1", "created": int(NOW_S)}, **told}
    row = parse_line(json.dumps(record).encode(), "s", NOW_S)
    assert isinstance(row, UsageRow)
    assert row.time == pytest.approx(time, abs=1e-6)


@pytest.mark.parametrize(
    "told",
    [
        {"user": "hitmap-canary"},
        {"end_user": "hitmap-canary"},
        {"request": {"user": "hitmap-canary"}},
        {"metadata": {"user": "hitmap-canary"}},
        {"body": {"metadata": {"user_id": "hitmap-canary"}}},
        {"request": {"body": {"user": "hitmap-canary"}}},
    ],
)
def test_a_canary_is_known_by_who_asked_where_the_server_names_requests_itself(told: Any) -> None:
    line = {"response_id": "chatcmpl-1", "sent_unix_ns": int(NOW_S * 1e9), "usage": {"prompt_tokens": 1}}
    assert parse_line(json.dumps(line | told).encode(), "s", NOW_S) == Rejected(CANARY)
    named = json.loads(json.dumps(told).replace("hitmap-canary", "hitmap"))
    assert parsed(line | named).request_id == "chatcmpl-1"
