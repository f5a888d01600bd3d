"""Prompts out of spans and log records, in each of the shapes in which instrumentations write them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cachemodel.prompts.model import Prompt
from cachemodel.prompts.read import NO_PROMPT, read
from cachemodel.prompts.telemetry import Conversations

MESSAGES = [
    {"role": "user", "parts": [{"type": "text", "content": "Weather?"}]},
    {
        "role": "assistant",
        "parts": [
            {"type": "reasoning", "content": "Look it up."},
            {"type": "tool_call", "id": "c", "name": "weather", "arguments": {"city": "Paris"}},
        ],
    },
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": {"rain": True}}]},
]
ATTRIBUTES: dict[str, Any] = {
    "gen_ai.input.messages": MESSAGES,
    "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
    "gen_ai.tool.definitions": [{"type": "function", "name": "weather"}],
    "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "Rain."}]}],
    "gen_ai.conversation.id": "conv",
    "gen_ai.response.id": "resp",
    "gen_ai.request.model": "m",
    "gen_ai.usage.input_tokens": 50,
    "gen_ai.usage.cache_read.input_tokens": 32,
}
EXPECTED = [
    ("gen_ai.tool.definitions[0]", "tools", "tool", '{"type":"function","name":"weather"}'),
    ("gen_ai.system_instructions[0].content", "system", "text", "Be brief."),
    ("gen_ai.input.messages[0].parts[0].content", "user", "text", "Weather?"),
    ("gen_ai.input.messages[1].parts[0].content", "assistant", "reasoning", "Look it up."),
    (
        "gen_ai.input.messages[1].parts[1]",
        "assistant",
        "call",
        '{"name":"weather","arguments":{"city":"Paris"}}',
    ),
    ("gen_ai.input.messages[2].parts[0].response", "tool", "result", '{"rain":true}'),
]
AS_TEXT = {
    name: json.dumps(value) if isinstance(value, list) else value for name, value in ATTRIBUTES.items()
}
NS = 1_795_954_389_435_248_000


def any_value(value: Any) -> dict[str, Any]:
    """A value as OTLP's JSON has it."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(one) for one in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": key_values(value)}}
    return {"stringValue": value}


def key_values(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": any_value(value)} for key, value in attributes.items()]


def batch(**span: Any) -> dict[str, Any]:
    span = {"traceId": "t", "spanId": "s", "startTimeUnixNano": str(NS), **span}
    resource = {"attributes": key_values({"service.name": "api"})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}


def log(name: str, body: Any, span: str = "s", **more: Any) -> dict[str, Any]:
    return {
        "eventName": name,
        "body": any_value(body),
        "traceId": "t",
        "spanId": span,
        "timeUnixNano": str(NS),
        **more,
    }


def logs(*records: dict[str, Any]) -> dict[str, Any]:
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": list(records)}]}]}


DETAILS = "gen_ai.client.inference.operation.details"
SHAPES: dict[str, dict[str, Any]] = {
    "OTLP span, structured": batch(attributes=key_values(ATTRIBUTES)),
    "OTLP span, JSON text": batch(attributes=key_values(AS_TEXT)),
    "event on a span": batch(
        attributes=key_values({"gen_ai.request.model": "m"}),
        events=[{"name": DETAILS, "attributes": key_values(ATTRIBUTES)}],
    ),
    "OTLP log record": logs(log(DETAILS, {}, attributes=key_values(ATTRIBUTES))),
    "console exporter": {
        "name": "chat m",
        "context": {"trace_id": "0x1", "span_id": "0x2"},
        "start_time": "2026-11-29T12:13:09.435248Z",
        "attributes": AS_TEXT,
    },
    "row of otel_traces": {
        "SpanName": "chat",
        "Timestamp": "2026-11-29 12:13:09.435248",
        "SpanAttributes": AS_TEXT,
    },
    "row of otel_logs": {"EventName": DETAILS, "Timestamp": NS, "LogAttributes": AS_TEXT, "Body": ""},
}


def rows(prompt: Prompt) -> list[tuple[str, str, str, str]]:
    return [(part.path, part.role, part.kind.value, part.text) for part in prompt.parts]


def prompts(record: dict[str, Any], talks: Conversations | None = None) -> list[Prompt]:
    told = read(record, "log:1", "", talks)
    assert isinstance(told, list), told
    return told


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape: str) -> None:
    (prompt,) = prompts(SHAPES[shape])
    assert rows(prompt) == EXPECTED
    assert (prompt.request_id, prompt.session, prompt.model) == ("resp", "conv", "m")
    assert (prompt.prompt_tokens, prompt.cached_tokens, prompt.response) == (50, 32, "Rain.")
    assert (prompt.body, prompt.time) == (None, 1795954389.435248)


def test_time_and_server_of_a_span() -> None:
    (prompt,) = prompts(SHAPES["OTLP span, structured"])
    assert (prompt.time, prompt.server) == (1795954389.435248, "api")


SAID = [
    log("gen_ai.system.message", {"content": "Be brief."}),
    log("gen_ai.user.message", {"content": "Weather?"}),
    log(
        "gen_ai.assistant.message",
        {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]},
    ),
    log("gen_ai.tool.message", {"id": "c", "content": "rain"}),
    log("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"content": "Rain."}}),
]
TALK = [
    ("events[0].content", "system", "text", "Be brief."),
    ("events[1].content", "user", "text", "Weather?"),
    ("events[2].tool_calls[0].function", "assistant", "call", '{"name":"weather","arguments":"{}"}'),
    ("events[3].content", "tool", "result", "rain"),
]


def test_messages_told_one_by_one_in_a_batch() -> None:
    other = [log("gen_ai.user.message", {"content": "Else?"}, span="s2")]
    first, second = prompts(logs(SAID[0], *other, *SAID[1:]))
    assert (rows(first), first.response, first.time) == (TALK, "Rain.", 1795954389.435248)
    assert (rows(second), second.response) == ([("events[0].content", "user", "text", "Else?")], None)


def test_messages_told_one_by_one_in_lines() -> None:
    talks = Conversations()
    told = [prompts(logs(record), talks) for record in SAID]
    assert [len(one) for one in told] == [0, 0, 0, 0, 1]
    assert rows(told[-1][0]) == TALK
    assert talks.rest() == []


def test_open_conversations_are_bounded_and_none_is_lost() -> None:
    talks = Conversations(most=3)
    told = []
    for number in range(10):
        told += prompts(logs(log("gen_ai.user.message", {"content": str(number)}, span=str(number))), talks)
    assert [prompt.parts[0].text for prompt in told + talks.rest()] == [str(number) for number in range(10)]
    assert len(told) == 7


def test_messages_as_events_on_a_span() -> None:
    events = [
        {"name": "gen_ai.system.message", "attributes": key_values({"content": "Be brief."})},
        {
            "name": "gen_ai.user.message",
            "attributes": key_values({"gen_ai.event.content": '{"content": "Weather?"}'}),
        },
        {"name": "gen_ai.choice", "attributes": key_values({"message": '{"content": "Rain."}'})},
    ]
    (prompt,) = prompts(batch(attributes=key_values({"gen_ai.request.model": "m"}), events=events))
    assert rows(prompt) == TALK[:2]


@pytest.mark.parametrize(
    ("attributes", "texts"),
    [
        ({"gen_ai.prompt": "Once"}, ["Once"]),
        ({"gen_ai.prompt": '[{"role": "user", "content": "Once"}]'}, ["Once"]),
        (
            {
                "gen_ai.prompt.0.role": "system",
                "gen_ai.prompt.0.content": "S",
                "gen_ai.prompt.1.content": "U",
                "gen_ai.prompt.10.content": "last",
            },
            ["S", "U", "last"],
        ),
        ({"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "U"}, ["U"]),
        ({"langfuse.observation.input": '[{"role": "user", "content": "hi"}]'}, ["hi"]),
        ({"langfuse.observation.input": '{"messages": [{"role": "user", "content": "hi"}]}'}, ["hi"]),
        ({"gen_ai.input.messages": "not JSON but a text"}, ["not JSON but a text"]),
        ({"gen_ai.input.messages": "[broken"}, ["[broken"]),
    ],
)
def test_other_names(attributes: dict[str, Any], texts: list[str]) -> None:
    (prompt,) = prompts({"name": "chat", "attributes": attributes})
    assert [part.text for part in prompt.parts] == texts


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"gen_ai.usage.input_tokens": 4, "gen_ai.usage.cache_read_input_tokens": 1165}, (1169, 1165)),
        ({"gen_ai.usage.input_tokens": "50", "gen_ai.usage.cache_read.input_tokens": "32"}, (50, 32)),
        (
            {
                "gen_ai.usage.input_tokens": 40,
                "gen_ai.usage.output_tokens": 9,
                "gen_ai.usage.cache_read_input_tokens": 30,
                "gen_ai.usage.total_tokens": 79,
            },
            (70, 30),
        ),
        ({"gen_ai.usage.input_tokens": -1}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_counts(counts: dict[str, Any], expected: tuple[int | None, int | None]) -> None:
    (prompt,) = prompts({"attributes": {"gen_ai.prompt": "x", **counts}})
    assert (prompt.prompt_tokens, prompt.cached_tokens) == expected


def test_a_batch_of_several_spans_names_each() -> None:
    record = batch(attributes=key_values({"gen_ai.prompt": "a"}))
    scope = record["resourceSpans"][0]["scopeSpans"][0]
    scope["spans"] = [
        {"spanId": "", "attributes": key_values({"gen_ai.prompt": "a"})},
        {"spanId": "", "attributes": key_values({"http.route": "/"})},
        {"spanId": "x", "attributes": key_values({"gen_ai.prompt": "b"})},
        {"spanId": "", "attributes": key_values({"gen_ai.prompt": "c"})},
    ]
    assert [prompt.request_id for prompt in prompts(record)] == ["log:1", "x", "log:1#3"]


@pytest.mark.parametrize(
    "record",
    [
        batch(attributes=key_values({"gen_ai.request.model": "m", "gen_ai.tool.definitions": "[{}]"})),
        {"resourceSpans": []},
        {"resourceSpans": [{}, None, {"scopeSpans": [{"spans": [None, 3]}]}]},
        logs(log("gen_ai.choice", {"message": {"content": "nobody asked"}})),
    ],
)
def test_telemetry_without_content(record: dict[str, Any]) -> None:
    assert read(record, "log:1") == NO_PROMPT


def test_a_request_with_attributes_of_its_own_is_read_as_one() -> None:
    (prompt,) = prompts({"attributes": {"team": "a"}, "messages": [{"role": "user", "content": "Hi"}]})
    assert rows(prompt) == [("messages[0].content", "user", "text", "Hi")]
