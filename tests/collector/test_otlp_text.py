"""Prompt and response text does not get past the door, unless somebody asked for it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.spans import export_request
from collector.otlp.intake import SIGNALS, Intake, Limits
from collector.otlp.text import may_hold_text, without_text
from collector.otlp.text_names import TEXT_KEYS
from collector.spool import Spool
from collector.tally import Tally

SECRET = "the patient's name is"
NOW = time.time_ns()
TRACES, _, LOGS = SIGNALS

# as instrumentations spell it: [key, whether it is text]
SPELLINGS = [
    ("gen_ai.input.messages", True),
    ("gen_ai.output.messages", True),
    ("gen_ai.output.type", False),
    ("gen_ai.system_instructions", True),
    ("gen_ai.system", False),
    ("gen_ai.prompt", True),
    ("gen_ai.prompt.0.content", True),
    ("gen_ai.prompt.0.role", False),
    ("gen_ai.prompt.name", False),
    ("gen_ai.completion.0.content", True),
    ("gen_ai.completion.0.finish_reason", False),
    ("gen_ai.completion.0.tool_calls.0.arguments", True),
    ("gen_ai.usage.prompt_tokens", False),
    ("gen_ai.usage.completion_tokens", False),
    ("gen_ai.request.model", False),
    ("gen_ai.operation.name", False),
    ("gen_ai.tool.name", False),
    ("gen_ai.tool.call.id", False),
    ("gen_ai.tool.call.arguments", True),
    ("gen_ai.tool.call.result", True),
    ("gen_ai.retrieval.query.text", True),
    ("llm.prompts.0.content", True),
    ("llm.input_messages.0.message.content", True),
    ("llm.input_messages.0.message.role", False),
    ("llm.token_count.prompt", False),
    ("input.value", True),
    ("input.mime_type", False),
    ("output.value", True),
    ("retrieval.documents.3.document.content", True),
    ("traceloop.entity.input", True),
    ("traceloop.entity.name", False),
    ("ai.prompt.messages", True),
    ("ai.response.text", True),
    ("ai.usage.promptTokens", False),
    ("ai.value", True),
    ("ai.values", True),
    ("ai.embeddings", True),
    ("ai.result.text", True),
    ("ai.schema", True),
    ("ai.schema.name", False),
    ("ai.prompt.format", False),
    ("ai.model.id", False),
    ("langfuse.observation.input", True),
    ("mlflow.spanInputs", True),
    ("mlflow.spanType", False),
    ("lk.chat_ctx", True),
    ("lk.function_tool.name", False),
    ("lk.response.ttft", False),
    ("llm.tools.0.tool.json_schema", True),
    ("llm.tools.0.tool.name", False),
    ("tool.parameters", True),
    ("tool.name", False),
    ("llm.function_call", True),
    ("llm.model_name", False),
    ("input.audio.transcript", True),
    ("input.audio.mime_type", False),
    ("output.images", True),
    ("message.content", True),
    ("message.content_type", False),
    ("message.role", False),
    ("document.content", True),
    ("document.id", False),
    ("retrieval.documents.3.document.id", False),
    ("traceloop.prompt.template_variables", True),
    ("traceloop.prompt.key", False),
    ("mcp.request.argument", True),
    ("mcp.response.value", True),
    ("mcp.method.name", False),
    ("gen_ai.evaluation.explanation", True),
    ("gen_ai.evaluation.name", False),
    ("gen_ai.tool.description", True),
    ("gen_ai.memory.records", True),
    ("gen_ai.memory.record.id", False),
    ("gen_ai.embeddings.dimension.count", False),
    # an ending that sounds plain does not make it so
    ("input.value.name", True),
    ("gen_ai.input.messages.name", True),
    ("gen_ai.prompt.0.name", True),
    ("gen_ai.prompt.0.content.role", True),
    ("llm.input_messages.0.message.content.id", True),
    ("llm.input_messages.0.message.tool_calls.0.tool_call.id", False),
    ("llm.input_messages.0.message.tool_calls.0.tool_call.function.arguments", True),
    ("gen_ai.prompt.name\nx", True),
    ("http.request.method", False),
    ("exception.message", False),
]


def request_with(keys: list[str], event: str = "", event_keys: list[str] | None = None) -> bytes:
    """A request of one span with these attributes, all of them secret, and one event."""
    request = ExportTraceServiceRequest.FromString(export_request(1, spans=3))
    span = request.resource_spans[0].scope_spans[0].spans[1]
    for key in keys:
        span.attributes.add(key=key).value.string_value = SECRET
    if event:
        added = span.events.add(name=event, time_unix_nano=NOW)
        for key in event_keys or []:
            added.attributes.add(key=key).value.string_value = SECRET
    return bytes(request.SerializeToString())


def middle_span(payload: bytes) -> Any:
    return ExportTraceServiceRequest.FromString(payload).resource_spans[0].scope_spans[0].spans[1]


@pytest.mark.parametrize(("key", "is_text"), SPELLINGS)
def test_text_goes_and_what_is_no_text_stays(key: str, is_text: bool) -> None:
    payload = request_with([key])
    kept, texts = without_text("traces", payload)
    assert texts == int(is_text)
    assert (SECRET.encode() in kept) is not is_text
    if not is_text:
        assert kept is payload
        return
    before, after = middle_span(payload), middle_span(kept)
    assert after.dropped_attributes_count == 1
    assert len(after.attributes) == len(before.attributes) - 1
    assert all(a in before.attributes for a in after.attributes)


@given(st.lists(st.sampled_from(SPELLINGS), max_size=12), st.integers(0, 300))
def test_every_text_is_found_among_others(spellings: list[tuple[str, bool]], filler: int) -> None:
    payload = request_with(["filler." + "x" * filler, *(key for key, _ in spellings)])
    kept, texts = without_text("traces", payload)
    assert texts == sum(is_text for _, is_text in spellings)
    assert [a.key for a in middle_span(kept).attributes][11:] == [
        k for k, is_text in spellings if not is_text
    ]


@pytest.mark.parametrize("name", TEXT_KEYS)
@pytest.mark.parametrize("value", ["", "x", SECRET * 100])
def test_no_name_is_overlooked(name: str, value: str) -> None:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    span.attributes.add(key=name).value.string_value = value
    assert may_hold_text(request.SerializeToString()), "even at the very end"


@pytest.mark.parametrize("length", [100, 126, 127, 128, 129, 500, 16_383, 16_384, 20_000])
def test_long_keys_are_found(length: int) -> None:
    key = "llm.input_messages.0." + "x" * length
    assert without_text("traces", request_with([key[:length]]))[1] == 1


def test_usual_spans_are_not_even_parsed(run1: Path) -> None:
    assert not any(may_hold_text(export_request(seed), spans=True) for seed in range(20))
    assert not any(may_hold_text(file.read_bytes(), spans=True) for file in run1.glob("otlp/*.bin"))


@given(st.binary(max_size=300))
def test_any_bytes_come_back(data: bytes) -> None:
    for kind in ("traces", "logs", "metrics"):
        assert isinstance(without_text(kind, data)[0], bytes)


@pytest.mark.parametrize(
    ("event", "keys", "expected"),
    [
        ("gen_ai.content.prompt", ["gen_ai.prompt"], []),
        ("gen_ai.user.message", ["content", "role", "gen_ai.system"], ["role", "gen_ai.system"]),
        ("gen_ai.choice", ["message", "index", "finish_reason"], ["index", "finish_reason"]),
        ("gen_ai.choice", ["gen_ai.event.content"], []),
        ("gen_ai.choice", ["tool.result", "function_call", "parts", "text", "id"], ["id"]),
        (
            "gen_ai.evaluation.result",
            ["gen_ai.evaluation.explanation", "gen_ai.evaluation.name"],
            ["gen_ai.evaluation.name"],
        ),
        ("message", ["message.content", "message.id"], ["message.id"]),
        ("exception", ["message", "content"], ["message", "content"]),
    ],
)
def test_events_of_spans(event: str, keys: list[str], expected: list[str]) -> None:
    kept, texts = without_text("traces", request_with([], event, keys))
    (after,) = middle_span(kept).events
    assert [a.key for a in after.attributes] == expected
    assert texts == after.dropped_attributes_count == len(keys) - len(expected)


# -- events of logs ----------------------------------------------------------------------------------------------------


def record_with(body: dict[str, Any] | str | None, name: str, **attributes: str) -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=NOW, event_name=name)
    for key, text in attributes.items():
        record.attributes.add(key=key.replace("__", ".")).value.string_value = text
    if isinstance(body, str):
        record.body.string_value = body
    elif body is not None:
        record.body.kvlist_value.SetInParent()
        for key, value in body.items():
            added = record.body.kvlist_value.values.add(key=key).value
            if isinstance(value, dict):
                added.kvlist_value.values.add(key="content").value.string_value = SECRET
            else:
                added.string_value = str(value)
    return request


def record_of(payload: bytes) -> Any:
    return ExportLogsServiceRequest.FromString(payload).resource_logs[0].scope_logs[0].log_records[0]


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (
            record_with({"index": 0, "finish_reason": "stop", "message": {}}, "gen_ai.choice"),
            ["index", "finish_reason"],
        ),
        (record_with({"content": SECRET, "role": "user"}, "gen_ai.user.message"), ["role"]),
        (record_with({"content": SECRET}, "", event__name="gen_ai.system.message"), []),
        (record_with(SECRET, "gen_ai.assistant.message"), []),
        (record_with({"role": {"content": SECRET}, "id": "x"}, "gen_ai.choice"), ["id"]),
        (record_with({"function_call": SECRET, "gen_ai.system": "x"}, "gen_ai.choice"), ["gen_ai.system"]),
        (record_with({"gen_ai.input.messages": SECRET, "content": "x"}, ""), ["content"]),
    ],
)
def test_bodies_of_genai_events_lose_their_text(
    request_: ExportLogsServiceRequest, fields: list[str]
) -> None:
    kept, texts = without_text("logs", request_.SerializeToString())
    record = record_of(kept)
    assert (texts, SECRET.encode() in kept) == (1, False)
    assert [field.key for field in record.body.kvlist_value.values] == fields
    assert record.event_name == record_of(request_.SerializeToString()).event_name


def test_details_of_an_inference_lose_their_messages_only() -> None:
    request = record_with(
        None,
        "gen_ai.client.inference.operation.details",
        gen_ai__input__messages=SECRET,
        gen_ai__output__messages=SECRET,
        gen_ai__system_instructions=SECRET,
        gen_ai__request__model="m",
    )
    kept, texts = without_text("logs", request.SerializeToString())
    assert [a.key for a in record_of(kept).attributes] == ["gen_ai.request.model"]
    assert (texts, record_of(kept).dropped_attributes_count) == (3, 3)


def test_attributes_of_genai_events_in_logs_stay_by_name_only() -> None:
    request = record_with(
        None, "gen_ai.choice", tool__result=SECRET, parts=SECRET, role="user", gen_ai__request__model="m"
    )
    kept, texts = without_text("logs", request.SerializeToString())
    assert [a.key for a in record_of(kept).attributes] == ["role", "gen_ai.request.model"]
    assert (texts, record_of(kept).dropped_attributes_count) == (2, 2)


def test_other_records_stay_as_they_are() -> None:
    for request in (
        record_with(SECRET, "shop.closed"),
        record_with(SECRET, ""),
        record_with(None, "gen_ai.choice"),
    ):
        payload = request.SerializeToString()
        assert without_text("logs", payload) == (payload, 0)


# -- at the door -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_text", [False, True])
def test_text_is_kept_when_asked_for_and_counted_when_not(tmp_path: Path, keep_text: bool) -> None:
    spool = Spool(tmp_path)
    intake = Intake(spool, Tally(), Limits(keep_text=keep_text), None)
    intake.take(TRACES, request_with(["gen_ai.prompt", "input.value", "plain"]))
    intake.take(LOGS, record_with(SECRET, "gen_ai.user.message").SerializeToString())
    assert intake.withheld == (0 if keep_text else 3)
    for kind, count in (("traces", 1), ("logs", 0)):
        batch = spool.seal(kind, 10, 1 << 20)
        assert batch
        assert spool.payload(batch).count(SECRET.encode()) == (
            count if not keep_text else {"traces": 3, "logs": 1}[kind]
        )
