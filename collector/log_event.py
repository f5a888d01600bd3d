"""An event read from a server's own log, as the OpenTelemetry log record that is stored."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber

from collector.sink import Entry

MAX_EVENT_LINE = 16_384
"""Characters of a log line: a longer one is content and no event, and patterns need not be safe against it."""

Value = str | bool | int | float
_TOO_LARGE = 2**63
_SEVERITIES = {"DEBUG": 5, "INFO": 9, "WARN": 13, "ERROR": 17}


def event(
    server: str, name: str, time_s: float, attributes: Mapping[str, Value | None], severity: str = "INFO"
) -> Entry:
    """An entry for the sink: one record of the event `name` (`<dialect>.<what happened>`) without a body.

    time_s: Unix seconds, kept to the microsecond; attributes that are None are left out. The same event gives the same
    bytes, so that a log read again adds nothing.
    """
    record = LogRecord(
        time_unix_nano=round(time_s * 1e6) * 1000,
        severity_number=SeverityNumber.ValueType(_SEVERITIES[severity]),
        severity_text=severity,
        event_name=name,
        attributes=[_attribute(key, value) for key, value in attributes.items() if value is not None],
    )
    logs = ResourceLogs(scope_logs=[ScopeLogs(log_records=[record])])
    logs.resource.attributes.append(_attribute("service.name", server))
    logs.scope_logs[0].scope.name = f"hitmap.{name.partition('.')[0]}"
    return Entry("logs", ExportLogsServiceRequest(resource_logs=[logs]).SerializeToString(), 1)


def number(text: str) -> int | float | str:
    """A text from a log line as the number it is; unchanged where it is none, or none that a store has room for."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if abs(value) < _TOO_LARGE else text
    return text


def _attribute(key: str, value: Value) -> KeyValue:
    if isinstance(value, bool):
        return KeyValue(key=key, value=AnyValue(bool_value=value))
    if isinstance(value, int):
        return KeyValue(key=key, value=AnyValue(int_value=value))
    if isinstance(value, float):
        return KeyValue(key=key, value=AnyValue(double_value=value))
    return KeyValue(key=key, value=AnyValue(string_value=value))
