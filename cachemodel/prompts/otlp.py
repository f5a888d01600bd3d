"""Spans and log records out of JSON: OTLP's own, one span of an SDK's console exporter, rows of otel_traces, otel_logs.

Sources: OTLP specification (JSON encoding: attributes are lists of key and typed value, ids hexadecimal, 64-bit numbers
texts), OpenTelemetry's Python SDK (ReadableSpan.to_json), the clickhouseexporter's tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cachemodel.prompts.answer import decoded
from cachemodel.prompts.fields import Record, moment, nanoseconds

_ATTRIBUTES = ("attributes", "SpanAttributes", "LogAttributes")
_CONTAINERS = (
    ("resourceSpans", "scopeSpans", "spans"),
    ("resourceLogs", "scopeLogs", "logRecords"),
    ("resource_spans", "scope_spans", "spans"),
    ("resource_logs", "scope_logs", "log_records"),
)
_TELLING = {*_ATTRIBUTES, *(container[0] for container in _CONTAINERS)}


@dataclass(frozen=True, slots=True)
class Item:
    """A span, an event on one, or a log record. name: of the span or event; body: of a log record."""

    name: str
    attributes: Mapping[str, Any]
    time: float | None
    trace: str = ""
    span: str = ""
    service: str = ""
    body: Any = None
    events: tuple[Item, ...] = field(default=())


def has_items(record: Record) -> bool:
    """Whether a record is of telemetry at all."""
    return not record.keys().isdisjoint(_TELLING)


def items(record: Record) -> Iterator[Item]:
    """The spans and log records of a record, in their order."""
    batches = False
    for outer, middle, inner in _CONTAINERS:
        for resource in _dicts(record.get(outer)):
            batches = True
            told = resource.get("resource")
            attributes = _attributes(told.get("attributes") if isinstance(told, dict) else None)
            for scope in _dicts(resource.get(middle)):
                for one in _dicts(scope.get(inner)):
                    yield _item(one, attributes)
    if not batches:
        told = record.get("resource", record.get("ResourceAttributes"))
        nested = told.get("attributes", told) if isinstance(told, dict) else None
        yield _item(record, _attributes(nested))


def _item(one: Record, resource: Mapping[str, Any]) -> Item:
    context = one.get("context")
    ids = context if isinstance(context, dict) else one
    body = one.get("body", one.get("Body"))
    return Item(
        name=_text(one, "eventName", "event_name", "EventName", "name", "SpanName"),
        attributes=_attributes(next((one[name] for name in _ATTRIBUTES if one.get(name)), None)),
        time=_time(one),
        trace=_text(ids, "traceId", "trace_id", "TraceId"),
        span=_text(ids, "spanId", "span_id", "SpanId"),
        service=_string(resource.get("service.name")) or _text(one, "ServiceName"),
        body=(decoded(body) or body) if isinstance(body, str) else _any(body),
        events=tuple(_events(one)),
    )


def _events(one: Record) -> Iterator[Item]:
    """The events on a span; ClickHouse keeps them as three lists."""
    for event in _dicts(one.get("events")):
        yield Item(_text(event, "name"), _attributes(event.get("attributes")), _time(event))
    names, attributes = one.get("Events.Name"), one.get("Events.Attributes")
    if isinstance(names, list) and isinstance(attributes, list):
        for name, told in zip(names, attributes, strict=False):
            yield Item(_string(name), _attributes(told), None)


def _time(one: Record) -> float | None:
    for name in (
        "startTimeUnixNano",
        "timeUnixNano",
        "observedTimeUnixNano",
        "start_time_unix_nano",
        "time_unix_nano",
    ):
        if (told := nanoseconds(one.get(name))) is not None:
            return told
    for name in ("start_time", "startTime", "timestamp", "Timestamp"):
        if (told := moment(one.get(name))) is not None:
            return round(told, 6)
    return None


def _attributes(told: object) -> Mapping[str, Any]:
    """Attributes as one object, whether they came as one or as a list of keys and typed values."""
    if isinstance(told, dict):
        return told
    return {key: _any(one.get("value")) for one in _dicts(told) if isinstance(key := one.get("key"), str)}


_SCALARS = (
    "stringValue",
    "boolValue",
    "doubleValue",
    "string_value",
    "bool_value",
    "double_value",
    "bytesValue",
)


def _any(value: object) -> Any:
    """The value that OTLP's AnyValue holds; a value that is none as it is."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((name, told),) = value.items()
    if name in _SCALARS:
        return told
    if name in ("intValue", "int_value"):
        return (
            int(told) if isinstance(told, str) and told.lstrip("-").isdecimal() and len(told) < 21 else told
        )
    if name in ("arrayValue", "array_value") and isinstance(told, dict):
        return [_any(one) for one in _list(told.get("values"))]
    if name in ("kvlistValue", "kvlist_value") and isinstance(told, dict):
        return dict(_attributes(told.get("values")))
    return value


def _list(told: object) -> list[Any]:
    return told if isinstance(told, list) else []


def _dicts(told: object) -> Iterator[dict[str, Any]]:
    return (one for one in _list(told) if isinstance(one, dict))


def _string(told: object) -> str:
    return told if isinstance(told, str) else ""


def _text(one: Record, *names: str) -> str:
    return next((told for name in names if isinstance(told := one.get(name), str) and told), "")
