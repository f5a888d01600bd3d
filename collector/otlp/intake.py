"""What happens to an OTLP request behind every door (gRPC, HTTP): measured, stripped of text, checked, made durable.

Requests stay bytes. A door tells its sender what `Intake.take` returns or raises, in its protocol's words.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import BoundedSemaphore, Lock
from typing import Any

from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from collector.otlp.check import Checked, MalformedError, Window, check_logs, check_metrics, check_traces
from collector.otlp.size import ParsedSize
from collector.otlp.text import without_text
from collector.sink import Entry, Sink
from collector.tally import Tally

MALFORMED = "malformed request"
TOKEN_HINT = "send the collector's token as 'authorization: Bearer TOKEN'"  # noqa: S105 - how, not what
CHECKED_AT_ONCE = 2  # a door: more threads only wait for each other, and each takes memory
MOST_PARSED = (
    6  # times `message_bytes` that a request may take when parsed; usual ones take some four times their size
)
TIMES_A_CHECK = (
    MOST_PARSED + 6
)  # and its copies on the way, or 16 bytes for each part of two while they are counted


class OversizedError(Exception):
    """The request is larger, or would become larger, than the door allows; a smaller one may pass."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a door. message_bytes: of one request, after decompression. keep_text: prompts and responses too."""

    message_bytes: int = 8 << 20
    window: Window = field(default_factory=Window)
    keep_text: bool = False


@dataclass(frozen=True)
class Signal:
    """One of OTLP's services: its kind, its names on the wire, its check and how it reports refused rows."""

    kind: str
    service: str
    path: str
    check: Callable[[bytes, Window], Checked]
    request: Any
    response: Any
    rejected_field: str


def _signal(package: str, kind: str, check: Any, request: Any, response: Any, rejected_field: str) -> Signal:
    service = request.DESCRIPTOR.full_name.rpartition(".")[0] + f".{package.title()}Service"
    return Signal(kind, service, f"/v1/{kind}", check, request, response, rejected_field)


SIGNALS = (
    _signal(
        "trace",
        "traces",
        check_traces,
        ExportTraceServiceRequest,
        ExportTraceServiceResponse,
        "rejected_spans",
    ),
    _signal(
        "metrics",
        "metrics",
        check_metrics,
        ExportMetricsServiceRequest,
        ExportMetricsServiceResponse,
        "rejected_data_points",
    ),
    _signal(
        "logs",
        "logs",
        check_logs,
        ExportLogsServiceRequest,
        ExportLogsServiceResponse,
        "rejected_log_records",
    ),
)
_PARSED_SIZE = ParsedSize(signal.request.DESCRIPTOR for signal in SIGNALS)


class Intake:
    """Takes requests from one door into `sink`. token: what senders have to show, None for nothing."""

    def __init__(self, sink: Sink, tally: Tally, limits: Limits, token: str | None) -> None:
        self.limits = limits
        self._sink, self._tally = sink, tally
        self._authorization = f"Bearer {token}".encode() if token else None
        self._checking = BoundedSemaphore(CHECKED_AT_ONCE)
        self._lock = Lock()
        self._withheld = 0
        self._under_way = 0

    @property
    def under_way(self) -> int:
        """Requests that were received and are not answered yet."""
        return self._under_way

    @property
    def withheld(self) -> int:
        """Texts that were taken out of spans and records so far."""
        return self._withheld

    def admits(self, authorization: str) -> bool:
        """Whether a sender with this `authorization` header may send."""
        return self._authorization is None or hmac.compare_digest(authorization.encode(), self._authorization)

    def take(self, signal: Signal, payload: bytes) -> Message:
        """Make a request durable and return the answer to it, which names the rows that were refused.

        Raises MalformedError or OversizedError for a request refused for good, Backpressure for one to be sent again.
        """
        with self._lock:
            self._under_way += 1
        try:
            return self._take(signal, payload)
        except (MalformedError, OversizedError):
            self.refused(signal)
            raise
        finally:
            with self._lock:
                self._under_way -= 1

    def refused(self, signal: Signal) -> None:
        """Count a request that a door refuses for good."""
        self._tally.rejected(signal.kind, MALFORMED, 1)

    def _take(self, signal: Signal, payload: bytes) -> Message:
        with self._checking:
            checked, texts = self._check(signal, payload)
        if checked.rows:
            self._sink.put([Entry(signal.kind, checked.payload, checked.rows)])
        for reason, rows in checked.rejected.items():
            self._tally.rejected(signal.kind, reason, rows)
        with self._lock:
            self._withheld += texts
        return _answer(signal, checked)

    def _check(self, signal: Signal, payload: bytes) -> tuple[Checked, int]:
        most = MOST_PARSED * self.limits.message_bytes
        if _PARSED_SIZE.exceeds(signal.request.DESCRIPTOR, payload, most):
            raise OversizedError(
                f"the request has too many spans, attributes or other parts: they would take more than {most >> 20} MB"
                " of memory; send smaller batches"
            )
        texts = 0
        if not self.limits.keep_text:
            payload, texts = without_text(signal.kind, payload)
        return signal.check(payload, self.limits.window), texts


def _answer(signal: Signal, checked: Checked) -> Message:
    response: Message = signal.response()
    if checked.rejected:
        partial: Any = response
        setattr(partial.partial_success, signal.rejected_field, checked.rejected.total())
        partial.partial_success.error_message = "; ".join(
            f"{n} x {why}" for why, n in checked.rejected.items()
        )
    return response
