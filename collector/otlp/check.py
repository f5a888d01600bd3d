"""Is an export request sound? What ClickHouse must never see is refused here, row by row, and said why.

The protobuf library (upb, in C) decides whether the bytes are a request at all, UTF-8 included. After that only
what would do harm in the store is looked at: ids of a wrong size, times far off (each opens a partition of its
own), durations below zero (they would wrap around).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.otlp.values import flatten, has_nested

DAY_S = 86_400
BAD_TRACE_ID, BAD_SPAN_ID = "trace id is not 16 bytes", "span id is not 8 bytes"
TOO_OLD, TOO_NEW, NEGATIVE = "time is too long ago", "time is in the future", "ends before it starts"


class MalformedError(Exception):
    """The bytes are no such request."""


@dataclass(frozen=True)
class Window:
    """Which points in time are plausible, in seconds before and after now."""

    max_age_s: float = 400 * DAY_S
    max_ahead_s: float = DAY_S

    def holds(self, time_s: float, now_s: float) -> bool:
        """Whether a time is plausible; both in Unix seconds."""
        return -self.max_age_s <= time_s - now_s <= self.max_ahead_s

    def bounds(self) -> tuple[int, int]:
        """Oldest and newest accepted time, in Unix nanoseconds."""
        now = time.time_ns()
        return max(0, now - int(self.max_age_s * 1e9)), now + int(self.max_ahead_s * 1e9)


DEFAULT_WINDOW = Window()
"""What holds unless somebody says otherwise. Each day is a partition, and an insert may touch no more than 1000."""


@dataclass(frozen=True)
class Checked:
    """What may go on: `payload` with `rows` rows in it. `rejected`: rows taken out, by reason."""

    payload: bytes
    rows: int
    rejected: Counter[str] = field(default_factory=Counter)


def check_traces(payload: bytes, window: Window) -> Checked:
    """Check an ExportTraceServiceRequest; raises MalformedError. Usually it costs one parse and one short loop."""
    request = _parse(ExportTraceServiceRequest, payload)
    oldest, newest = window.bounds()
    rows = 0
    for spans in _span_lists(request):
        rows += len(spans)
        for span in spans:
            if not (
                oldest <= span.start_time_unix_nano <= span.end_time_unix_nano <= newest
                and len(span.trace_id) == 16
                and len(span.span_id) == 8
            ):
                return _filtered(request, _span_lists(request), partial(_span_fault, oldest, newest))
    if has_nested(payload):
        flatten(request)
        payload = request.SerializeToString()
    return Checked(payload, rows)


def check_logs(payload: bytes, window: Window) -> Checked:
    """Check an ExportLogsServiceRequest; raises MalformedError."""
    request = _parse(ExportLogsServiceRequest, payload)
    lists = (scope.log_records for resource in request.resource_logs for scope in resource.scope_logs)
    return _filtered(request, lists, partial(_log_fault, *window.bounds()))


def check_metrics(payload: bytes, window: Window) -> Checked:
    """Check an ExportMetricsServiceRequest; raises MalformedError. A row is a data point."""
    request = _parse(ExportMetricsServiceRequest, payload)
    return _filtered(request, _point_lists(request), partial(_point_fault, *window.bounds()))


def _parse(message: Any, payload: bytes) -> Any:
    try:
        return message.FromString(payload)
    except DecodeError as error:
        raise MalformedError(f"not an {message.DESCRIPTOR.name}: {error}") from None


def _filtered(request: Message, lists: Iterator[Any], fault_of: Callable[[Any], str | None]) -> Checked:
    """Take the faulty rows out of a request."""
    rejected: Counter[str] = Counter()
    rows = 0
    for items in lists:
        faults = [fault_of(item) for item in items]
        if any(faults):
            kept = [item for item, fault in zip(items, faults, strict=True) if not fault]
            del items[:]
            items.extend(kept)
        rejected.update(fault for fault in faults if fault)
        rows += len(items)
    flatten(request)
    return Checked(request.SerializeToString(), rows, rejected)


def _span_lists(request: ExportTraceServiceRequest) -> Iterator[Any]:
    return (scope.spans for resource in request.resource_spans for scope in resource.scope_spans)


def _point_lists(request: ExportMetricsServiceRequest) -> Iterator[Any]:
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                if kind:
                    yield getattr(metric, kind).data_points


def _span_fault(oldest: int, newest: int, span: Any) -> str | None:
    if len(span.trace_id) != 16:
        return BAD_TRACE_ID
    if len(span.span_id) != 8:
        return BAD_SPAN_ID
    if span.end_time_unix_nano < span.start_time_unix_nano:
        return NEGATIVE
    if span.start_time_unix_nano < oldest:
        return TOO_OLD
    return TOO_NEW if span.end_time_unix_nano > newest else None


def _log_fault(oldest: int, newest: int, record: Any) -> str | None:
    return _time_fault(oldest, newest, record.time_unix_nano or record.observed_time_unix_nano)


def _point_fault(oldest: int, newest: int, point: Any) -> str | None:
    return _time_fault(oldest, newest, point.time_unix_nano)


def _time_fault(oldest: int, newest: int, time_ns: int) -> str | None:
    if time_ns < oldest:
        return TOO_OLD
    return TOO_NEW if time_ns > newest else None
