"""Prompt and response text in spans and logs: found fast, taken out unless somebody asked to keep it.

hitmap keeps no text of prompts and responses. Instrumented applications send it all the same, under the names below.
The attribute goes as a whole and is counted in the `dropped_attributes_count` of its span, event or record. Most
requests have none: numpy looks for the names where a key can begin, and only a request in which one is found is
parsed.

Names: OpenTelemetry's GenAI conventions (spans and events, 1.27 to 1.41 and their own repository since), OpenLLMetry,
OpenInference, Vercel's AI SDK and Langfuse, as their public documentation lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

# Keys that begin so hold text ...
TEXT_KEYS = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.prompt",  # .0.content and so on; whole until 1.36
    "gen_ai.completion",
    "gen_ai.content.",
    "gen_ai.event.content",
    "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.retrieval.documents",
    "gen_ai.retrieval.query",
    "llm.prompts",
    "llm.completions",
    "llm.choices",
    "llm.input_messages",
    "llm.output_messages",
    "llm.prompt_template",
    "input.value",
    "output.value",
    "retrieval.documents",
    "reranker.query",
    "reranker.input_documents",
    "reranker.output_documents",
    "embedding.text",
    "embedding.embeddings",
    "traceloop.entity.input",
    "traceloop.entity.output",
    "ai.prompt",
    "ai.response.text",
    "ai.response.object",
    "ai.response.reasoning",
    "ai.response.toolCalls",
    "ai.toolCall.args",
    "ai.toolCall.result",
    "langfuse.observation.input",
    "langfuse.observation.output",
    "langfuse.trace.input",
    "langfuse.trace.output",
)
# ... but not those that end so.
PLAIN_ENDS = (".role", ".name", ".id", ".version", ".finish_reason", "_tokens")
# What a GenAI event may say beside its text, in its body or attributes.
PLAIN_FIELDS = frozenset({"index", "finish_reason", "role", "id", "type"})
GEN_AI = "gen_ai."  # events of this namespace carry text in their bodies
EVENT_TEXT = frozenset({"content", "message", "tool_calls"})  # attributes of span events of this namespace

_KEY = 0x0A  # KeyValue.key = 1, length-delimited: its tag, a byte with its length, the key
_WORD = 8
_LOOKED_AT = 2 * _WORD  # bytes of a key
_SHORTEST = 3 + _LOOKED_AT  # what is looked at behind a tag
_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(64 - 14)
# the first bytes of each name; a short one is followed by the tag of its value
_BEGINNINGS = tuple(name[:_LOOKED_AT].encode() for name in TEXT_KEYS) + tuple(
    name.encode() + b"\x12" for name in sorted(EVENT_TEXT)
)


def _slot(words: np.ndarray) -> np.ndarray:
    """A number below 2 ** 14 for each word of eight bytes."""
    return (words * _MIX) >> _SHIFT


_IS_FIRST_WORD = np.zeros(1 << 14, bool)
_IS_FIRST_WORD[_slot(np.frombuffer(b"".join(name[:_WORD] for name in _BEGINNINGS), "<u8"))] = True


def may_hold_text(payload: bytes) -> bool:
    """Whether a serialised OTLP message has an attribute whose key begins like one of the names.

    No such key is missed, given a length in its shortest form, as all encoders write it.
    """
    padded = np.frombuffer(payload + bytes(_SHORTEST), np.uint8)
    at = np.flatnonzero(padded[: len(payload)] == _KEY) + 2
    at += padded[at - 1] > 0x7F  # the length has a second byte
    words = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded, 0, (1,))  # one at every byte
    at = at[_IS_FIRST_WORD[_slot(words[at])]]
    # few different keys are left, each in many spans
    _, first = np.unique(words[at] ^ words[at + _WORD] * _MIX, return_index=True)
    return any(padded[i : i + _LOOKED_AT].tobytes().startswith(_BEGINNINGS) for i in at[first].tolist())


def without_text(kind: str, payload: bytes) -> tuple[bytes, int]:
    """An export request of `kind` without the text in it, and in how many places there was some.

    A request without text, or one that cannot be parsed, comes back as it is.
    """
    if kind == "traces" and may_hold_text(payload):
        return _stripped(ExportTraceServiceRequest, payload, _strip_spans)
    if kind == "logs" and (GEN_AI.encode() in payload or may_hold_text(payload)):
        return _stripped(ExportLogsServiceRequest, payload, _strip_records)
    return payload, 0


def _stripped(message: Any, payload: bytes, strip: Any) -> tuple[bytes, int]:
    try:
        request = message.FromString(payload)
    except DecodeError:
        return payload, 0
    places = sum(strip(request))
    return (request.SerializeToString() if places else payload), places


def _strip_spans(request: ExportTraceServiceRequest) -> Iterator[int]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield _strip_attributes(span)
                for event in span.events:
                    yield _strip_attributes(
                        event, EVENT_TEXT if event.name.startswith(GEN_AI) else frozenset()
                    )


def _strip_records(request: ExportLogsServiceRequest) -> Iterator[int]:
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            for record in scope.log_records:
                is_event = _event_name(record).startswith(GEN_AI)
                yield _strip_attributes(record, EVENT_TEXT if is_event else frozenset())
                if is_event:
                    yield _strip_body(record)


def _strip_attributes(holder: Any, also: frozenset[str] = frozenset()) -> int:
    """Take the text out of the attributes of a span, event or record; how many there were."""
    attributes = holder.attributes
    text = [i for i, attribute in enumerate(attributes) if _is_text(attribute.key) or attribute.key in also]
    for i in reversed(text):
        del attributes[i]
    if text:
        holder.dropped_attributes_count += len(text)
    return len(text)


def _is_text(key: str) -> bool:
    return key.startswith(TEXT_KEYS) and not key.endswith(PLAIN_ENDS)


def _event_name(record: Any) -> str:
    """Before LogRecord had a field for it, the name of an event was an attribute."""
    if record.event_name:
        return str(record.event_name)
    return next((a.value.string_value for a in record.attributes if a.key == "event.name"), "")


def _strip_body(record: Any) -> int:
    """Leave of a GenAI event's body what is not text: 1 if there was any."""
    if record.body.WhichOneof("value") != "kvlist_value":
        found = record.HasField("body")
        record.ClearField("body")
        return int(found)
    fields = record.body.kvlist_value.values
    text = [i for i, field in enumerate(fields) if field.key not in PLAIN_FIELDS]
    for i in reversed(text):
        del fields[i]
    return int(bool(text))
