"""Prompts of log lines: the forms of requests, and what of them decides about the cache."""

from __future__ import annotations

from typing import Any

import pytest

from collector.chains.prompt import NO_PROMPT, REFUSED, SEVERAL, Prompt
from collector.request_log import CANARY, Rejected, usage_row
from tests.collector.chains.support import RECORDED_S, read

HI = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"body": {"messages": [HI], "tools": [TOOL]}}, {"messages": [HI], "tools": [TOOL]}),
        ({"request": {"messages": [HI]}}, {"messages": [HI]}),
        ({"messages": [HI]}, {"messages": [HI]}),
        ({"body": {"prompt": "hi"}}, {"text": "hi"}),
        ({"body": {"prompt": ["hi"]}}, {"text": "hi"}),
        ({"body": {"prompt": [1, 2]}}, {"tokens": [1, 2]}),
        ({"body": {"prompt": [[1, 2]]}}, {"tokens": [1, 2]}),
        ({"body": {"prompt": [3]}}, {"tokens": [3]}),
        ({"body": {"messages": [HI]}, "prompt_token_ids": [5]}, {"messages": [HI], "tokens": [5]}),
        (
            {"body": {"messages": [HI]}, "response": {"prompt_token_ids": [5]}},
            {"messages": [HI], "tokens": [5]},
        ),
        ({"body": {"input_ids": [7, 8]}}, {"tokens": [7, 8]}),
        (
            {"body": {"system": "be kind", "messages": [HI]}},
            {"messages": [{"role": "system", "content": "be kind"}, HI]},
        ),
        (
            {"body": {"instructions": "be kind", "input": "hi"}},
            {"messages": [{"role": "system", "content": "be kind"}, HI]},
        ),
    ],
)
def test_forms(record: dict[str, Any], told: dict[str, Any]) -> None:
    found = read(record)
    assert isinstance(found, Prompt)
    assert {name: getattr(found, name) for name in ("messages", "tools", "text", "tokens")} == {
        "messages": None,
        "tools": None,
        "text": None,
        "tokens": None,
    } | told


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({}, NO_PROMPT),
        ({"body": {"messages": []}}, NO_PROMPT),
        ({"body": {"messages": ["hi"]}}, NO_PROMPT),
        ({"body": {"prompt": ["a", "b"]}}, SEVERAL),
        ({"body": {"prompt": [[1], [2]]}}, SEVERAL),
        ({"body": {"prompt": [-1, 2]}}, SEVERAL),
        ({"body": {"messages": [HI]}, "status": 429}, REFUSED),
    ],
)
def test_lines_without_a_prompt(record: dict[str, Any], reason: str) -> None:
    assert read(record) == reason


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"echo": True}, ""),
        ({"skip_reading_prefix_cache": True}, "skip_reading_prefix_cache"),
        ({"cache_prompt": False}, "cache_prompt"),
        ({"logprobs": 1, "echo": False, "cache_prompt": True, "prompt_logprobs": None}, ""),
    ],
)
def test_options_that_switch_reading_off(options: dict[str, Any], name: str) -> None:
    found = read({"body": {"prompt": "x"} | options})
    assert isinstance(found, Prompt)
    assert found.reads_off == name


def test_salt_and_count_come_along() -> None:
    found = read({"body": {"prompt": "x", "cache_salt": "t1"}, "usage": {"prompt_tokens": 4}, "total_s": 2})
    assert isinstance(found, Prompt)
    assert (found.salt, found.counted, found.seconds) == ("t1", 4, 2.0)


@pytest.mark.parametrize(
    "record",
    [
        {"response_id": "chatcmpl-hitmap-canary-1"},
        {"client_request_id": "hitmap-canary-1"},
        {"body": {"user": "hitmap-canary"}},
        {"response": {"id": "cmpl-hitmap-canary-2", "choices": []}},
    ],
)
def test_canaries_are_no_traffic(record: dict[str, Any]) -> None:
    row = usage_row({"response_id": "r", "time": RECORDED_S} | record, "s", RECORDED_S)
    assert row == Rejected(CANARY)


SERVER_ERROR = {"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}


@pytest.mark.parametrize(
    "told",
    [
        {"status": 503},
        {"status": "503"},
        {"status_code": 400},
        {"http_status": 429},
        {"statusCode": 500},
        {"status": "error", "error": {"message": "no such model", "code": "model_not_found"}},
        {"error": {"message": "too long", "code": 400}},
        {"error": "HTTP 503"},
        {"error": True},
        {"response": {"error": {"message": "overloaded", "type": "overloaded_error"}}},
        {"response": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}},
        {"response": SERVER_ERROR},
        {"response": {"object": "error", "message": "too long"}},
        {"response": '{"error": {"message": "too long"}}'},
        {"response": 'data: {"error": {"message": "too long"}}'},
        {"response": [{"error": {"message": "too long"}}]},
        {
            "custom_id": "r1",
            "response": {"status_code": 400, "request_id": "x", "body": {"error": {}}},
            "error": None,
        },
        {"custom_id": "r1", "response": {"status_code": 200, "body": SERVER_ERROR}, "error": None},
        {
            "custom_id": "r1",
            "response": None,
            "error": {"code": "batch_expired", "message": "not run in 24 h"},
        },
        {"status": 503, "client_aborted": True},
    ],
)
def test_what_a_server_refused_has_no_chain(told: dict[str, Any]) -> None:
    assert read({"body": {"messages": [HI]}, **told}) == REFUSED


@pytest.mark.parametrize(
    "told",
    [
        {"status": 200},
        {"status": "ok"},
        {"status": "completed", "error": None},
        {"error": ""},
        {"error": {}},
        {"error": False},
        {"error": "timeout", "status": None},
        {"error": "ClientDisconnect"},
        {"error": {"type": "ReadTimeout", "message": "timed out"}},
        {"status": 200, "error_kind": "timeout", "error": ""},
        {"status": 200, "error_kind": "timeout", "error": "after 600 s"},
        {"status": 200, "ttft_s": 0.2, "error_kind": "error in stream", "error": "engine died"},
        {"status": 499},
        {"status_code": 504, "error": "upstream"},
        {"client_aborted": True, "error": "stopped after 5 chunks"},
        {"response": {"status_code": 200, "body": {"id": "x", "error": None}}, "error": None},
        {"response": [{"id": "x"}, {"error": {"message": "engine died"}}]},
        {"response": {"usage": {"prompt_tokens": 3}}, "error": {"message": "output parser failed"}},
    ],
)
def test_what_was_computed_or_given_up_has_one(told: dict[str, Any]) -> None:
    assert isinstance(read({"body": {"messages": [HI]}, **told}), Prompt)
