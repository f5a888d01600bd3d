"""What stands beside a prompt: as the collector reads it where it reads it, too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachemodel.prompts.model import Prompt
from cachemodel.prompts.read import CANARY, REFUSED, read
from collector.chains import prompt as collected
from collector.otlp.check import Window
from collector.request_log import NO_ID, NO_TIME, Rejected, usage_row

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
ANY_TIME = Window(1e15, 1e15)


def one(record: Any) -> Prompt:
    told = read(record, "log:1")
    assert isinstance(told, list), told
    return told[0]


@pytest.mark.parametrize(
    "record",
    [
        {"session_id": "s"},
        {"sessionId": "s"},
        {"conversation_id": "s"},
        {"thread_id": "s"},
        {"chat_id": "s"},
        {"metadata": {"session_id": "s"}},
        {"metadata": {"thread_id": "s"}},
        {"body": {**ASKED, "metadata": {"conversation_id": "s"}}},
        {"body": {**ASKED, "metadata": {"team": "t"}}, "metadata": {"session_id": "s"}},
        {"body": {**ASKED, "conversation": {"id": "s"}}},
        {"headers": {"X-Session-ID": "s"}},
        {"request": {"headers": {"x-conversation-id": ["s"]}, "body": ASKED}},
        {"session_id": None, "thread_id": "s"},
        {"session_id": "x" * 300, "thread_id": "s"},
    ],
)
def test_sessions(record: dict[str, Any]) -> None:
    assert one({**ASKED, **record}).session == "s"


@pytest.mark.parametrize(
    "record",
    [{"user": "u"}, {"user_id": "u"}, {"metadata": {"user_id": "u"}}, {"body": {**ASKED, "user": "u"}}],
)
def test_users(record: dict[str, Any]) -> None:
    assert one({**ASKED, **record}).user == "u"


def test_a_number_is_a_name() -> None:
    assert one({**ASKED, "session_id": 17, "user": 4}).session == "17"


def test_what_is_not_told_is_empty_or_none() -> None:
    prompt = one(ASKED)
    assert (prompt.session, prompt.user, prompt.isolation, prompt.reads_off, prompt.server) == (
        "",
        "",
        "",
        "",
        "",
    )
    assert (prompt.time, prompt.prompt_tokens, prompt.cached_tokens, prompt.response) == (
        None,
        None,
        None,
        None,
    )
    assert prompt.request_id == "log:1"


def test_salt_and_adapter_isolate() -> None:
    assert one({"body": {**ASKED, "cache_salt": "a"}}).isolation == "cache_salt=a"
    both = one({**ASKED, "cache_salt": "a", "lora_path": "b"})
    assert both.isolation == "cache_salt=a lora_path=b"
    assert one({**ASKED, "lora": [{"id": 0, "scale": 0.5}]}).isolation == 'lora=[{"id":0,"scale":0.5}]'


def _chunk(text: str) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text}}]}


@pytest.mark.parametrize(
    ("record", "answer"),
    [
        ({"response_text": "yes"}, "yes"),
        ({"response": {"choices": [{"message": {"content": "yes"}}]}}, "yes"),
        ({"response": {"choices": [{"text": "yes"}]}}, "yes"),
        ({"response": {"content": [{"type": "text", "text": "y"}, {"type": "text", "text": "es"}]}}, "yes"),
        ({"response": {"output": [{"type": "message", "content": [{"type": "output_text", "text": "yes"}]}]}}, "yes"),
        ({"response": {"candidates": [{"content": {"parts": [{"text": "yes"}]}}]}}, "yes"),
        ({"response": [{"id": "r", **_chunk("y")}, _chunk("es")]}, "yes"),
        ({"response": 'data: {"id": "r", "choices": [{"delta": {"content": "yes"}}]}\n\ndata: [DONE]\n'}, "yes"),
        ({"response": "yes"}, "yes"),
        ({"response": {"id": "r"}}, None),
    ],
)  # fmt: skip
def test_answers(record: dict[str, Any], answer: str | None) -> None:
    assert one({"body": ASKED, **record}).response == answer


REFUSALS: list[dict[str, Any]] = [
    {"status": 400},
    {"status": 429, "usage": {"prompt_tokens": 3}},
    {"status": "503"},
    {"response": {"status_code": 500, "body": {}}},
    {"response": {"error": {"message": "no", "code": 400}}},
    {"error": "context length exceeded"},
    {"response": {"object": "error", "message": "no"}},
    {"error": "timed out"},
    {"error": "reset by peer", "status": 499},
    {"status": 504},
    {"error": "no", "ttft_s": 0.1},
    {"error": "no", "client_aborted": True},
    {"status": 200},
    {"response": 'data: {"error": {"message": "no", "code": 503}}\n'},
]


@pytest.mark.parametrize("record", REFUSALS)
def test_refusals_are_those_of_the_collector(record: dict[str, Any]) -> None:
    told = read({"body": ASKED, **record}, "log:1")
    assert (told == REFUSED) == (_collected({"body": ASKED, **record}) == collected.REFUSED)


def test_some_are_refused_and_some_are_not() -> None:
    told = [read({"body": ASKED, **record}, "log:1") == REFUSED for record in REFUSALS]
    assert set(told) == {True, False}


@pytest.mark.parametrize("place", ["request_id", "user", "body", "metadata", "response"])
def test_canaries_are_no_traffic(place: str) -> None:
    mark: dict[str, Any] = {
        "request_id": {"request_id": "hitmap-canary-1"},
        "user": {"user": "hitmap-canary"},
        "body": {"body": {**ASKED, "user": "hitmap-canary"}},
        "metadata": {"metadata": {"user_id": "hitmap-canary"}},
        "response": {"response": {"id": "hitmap-canary-1"}},
    }[place]
    assert read({**ASKED, **mark}, "log:1") == CANARY


def _collected(record: dict[str, Any]) -> Any:
    """What the collector makes of a record that has an id and a time."""
    row = usage_row({"request_id": "own", "time": 1.0, **record}, "", 0.0, (), ANY_TIME)
    return row if isinstance(row, Rejected) else collected.read_prompt(record, row)


# Values as they stand in logs, good and bad, under every name that either side looks at.
_COUNTS = st.one_of(
    st.integers(-1, 500), st.none(), st.floats(0, 9), st.just("7"), st.just(2**40), st.booleans()
)
_USAGES = st.dictionaries(
    st.sampled_from(
        [
            *("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "inputTokens"),
            *("cache_read_input_tokens", "cache_creation_input_tokens", "cacheReadInputTokens"),
            *("cacheWriteInputTokens", "prompt_cache_hit_tokens", "prompt_cache_miss_tokens"),
            *("cacheReadInputTokenCount", "cacheWriteInputTokensCount"),
        ]
    ),
    _COUNTS,
    max_size=5,
)


def _within(names: list[str]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), st.dictionaries(st.sampled_from(names), _COUNTS, max_size=4))


_DETAILS = st.dictionaries(
    st.sampled_from(["prompt_tokens_details", "input_tokens_details", "cache_creation"]),
    _within(["cached_tokens", "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"]),
    max_size=2,
)
_GOOGLE = ["promptTokenCount", "totalTokenCount", "toolUsePromptTokenCount", "cachedContentTokenCount"]
_OPENAI = st.dictionaries(st.sampled_from(["prompt_tokens", "completion_tokens"]), _COUNTS)
_METRICS = ["inputTokenCount", "cacheReadInputTokenCount", "cacheWriteInputTokenCount"]
_LANGFUSE = [
    "input",
    "output",
    "total",
    "input_cached_tokens",
    "cache_read_input_tokens",
    "input_cache_creation",
]
_API = st.fixed_dictionaries(
    {},
    optional={
        "usage": st.builds(lambda *told: {**told[0], **told[1]}, _USAGES, _DETAILS),
        "usageMetadata": _within(_GOOGLE),
        "usage_metadata": _within(["prompt_token_count", "cached_content_token_count", "totalTokenCount"]),
        "usageDetails": _within(_LANGFUSE),
        "amazon-bedrock-invocationMetrics": _within(_METRICS),
    },
)
_SERVER = st.fixed_dictionaries(
    {},
    optional={
        "usage": st.builds(lambda *told: {**told[0], **told[1]}, _OPENAI, _DETAILS),
        "timings": _within(["prompt_n", "cache_n", "predicted_n"]),
        "tokens_evaluated": _COUNTS,
        "meta_info": _within(["prompt_tokens", "completion_tokens", "cached_tokens"]),
        "sglext": st.fixed_dictionaries({"cached_tokens_details": _within(["device", "host", "storage"])}),
    },
)
_RESPONSES = st.one_of(_API, _SERVER)  # in one response a server's words go with OpenAI's only


@settings(max_examples=300)
@given(_RESPONSES, st.booleans())
def test_counts_are_those_of_the_collector(response: dict[str, Any], wrapped: bool) -> None:
    record = {
        "body": ASKED,
        "request_id": "r",
        "time": 1.5,
        **({"response": response} if wrapped else response),
    }
    row = usage_row(record, "s", 0.0, (), ANY_TIME)
    assert not isinstance(row, Rejected)
    prompt = one(record)
    assert (prompt.prompt_tokens, prompt.cached_tokens) == (row.prompt_tokens, row.cached_tokens)


_MOMENTS = st.one_of(
    st.sampled_from(
        [
            *("2026-11-29T12:00:00Z", "2026-11-29T12:00:00.25+02:00", "2026-11-29", "noon", ""),
            *(
                1795954389,
                1795954389.25,
                1795954389435,
                1795954389435248,
                1795954389435248123,
                True,
                None,
                {},
            ),
        ]
    ),
    st.integers(1, 2**62),
)
_NAMES = st.one_of(st.sampled_from(["a", "", "x" * 300, None, 7]), st.text(max_size=4))
_OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "prompt_logprobs": st.sampled_from([None, 0, 1]),
    "echo": st.sampled_from([True, False, 1]),
    "logprobs": st.sampled_from([None, 1]),
    "skip_reading_prefix_cache": st.sampled_from([True, False]),
    "cache_prompt": st.sampled_from([True, False, None]),
}


@settings(max_examples=150)
@given(
    record=st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("time", "timestamp", "startTime", "sent_unix_ns", "created"), _MOMENTS),
            **dict.fromkeys(("request_id", "response_id", "id"), _NAMES),
            "response": st.fixed_dictionaries(
                {}, optional={"id": _NAMES, "model": _NAMES, "created": _MOMENTS, "created_at": _MOMENTS}
            ),
        },
    ),
    options=st.fixed_dictionaries({}, optional=_OPTIONS),
)
def test_ids_times_and_options_are_those_of_the_collector(
    record: dict[str, Any], options: dict[str, Any]
) -> None:
    whole = {"body": {**ASKED, **options}, **record}
    prompt = one(whole)
    row = usage_row(whole, "s", 0.0, (), ANY_TIME)
    if isinstance(row, Rejected):
        assert row.reason in (NO_ID, NO_TIME)  # which a prompt does without
        return
    told = collected.read_prompt(whole, row)
    assert isinstance(told, collected.Prompt)
    assert (prompt.request_id, prompt.time, prompt.model) == (told.request_id, told.time, told.model)
    assert prompt.reads_off == told.reads_off


def test_the_recorded_log_as_the_collector_reads_it(run1: Any) -> None:
    for line in (run1 / "requests.jsonl").read_bytes().splitlines():
        record = json.loads(line)
        told = _collected({**record, "request_id": record["client_request_id"]})
        prompt = one(record)
        assert [part.text for part in prompt.parts] == [message["content"] for message in told.messages]
        assert (prompt.prompt_tokens, prompt.time, prompt.model) == (told.counted, told.time, told.model)
        assert prompt.isolation == (f"cache_salt={told.salt}" if told.salt else "")
        assert prompt.response == record["response_text"]
