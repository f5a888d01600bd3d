"""OTLP over gRPC: traces, metrics and logs, acknowledged once they are on disk.

Requests stay bytes: they are checked (`collector.otlp_check`), put into the sink as they came and answered. The codes
are those of the OTLP specification: INVALID_ARGUMENT is for good, RESOURCE_EXHAUSTED with RetryInfo means "again
later", a partial success names the rows that were refused.
"""

from __future__ import annotations

import hmac
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NoReturn

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from cachemodel.errors import UserError
from collector.otlp_check import Checked, MalformedError, Window, check_logs, check_metrics, check_traces
from collector.sink import Backpressure, Entry, Sink
from collector.tally import Tally

WORKERS = 4
CONCURRENT_REQUESTS = 32  # beyond this gRPC itself refuses, before it reads the message
MALFORMED = "malformed request"


@dataclass(frozen=True)
class Limits:
    """Bounds of the receiver. message_bytes: of one request, after decompression."""

    message_bytes: int = 8 << 20
    window: Window = field(default_factory=Window)

    @property
    def memory_bytes(self) -> int:
        """What requests in flight can take at most: received bytes, and parsed ones (some four times the size)."""
        return self.message_bytes * (CONCURRENT_REQUESTS + 4 * WORKERS)


@dataclass(frozen=True)
class Signal:
    """One of OTLP's services: its kind, its check and how it reports refused rows."""

    kind: str
    service: str
    check: Callable[[bytes, Window], Checked]
    response: Any
    rejected_field: str


SIGNALS = tuple(
    Signal(kind, f"opentelemetry.proto.collector.{package}.v1.{name}Service", check, response, field)
    for kind, package, name, check, response, field in (
        ("traces", "trace", "Trace", check_traces, ExportTraceServiceResponse, "rejected_spans"),
        (
            "metrics",
            "metrics",
            "Metrics",
            check_metrics,
            ExportMetricsServiceResponse,
            "rejected_data_points",
        ),
        ("logs", "logs", "Logs", check_logs, ExportLogsServiceResponse, "rejected_log_records"),
    )
)


class OtlpGrpcReceiver:
    """Listens on `address` (host:port, port 0 for any). Raises UserError when it cannot."""

    def __init__(
        self,
        sink: Sink,
        tally: Tally,
        address: str,
        *,
        limits: Limits | None = None,
        token: str | None = None,
    ) -> None:
        self._sink, self._tally = sink, tally
        self._limits = limits or Limits()
        self._authorization = f"Bearer {token}".encode() if token else None
        self._server = grpc.server(
            ThreadPoolExecutor(WORKERS, thread_name_prefix="otlp"),
            handlers=[self._service(signal) for signal in SIGNALS],
            options=[
                ("grpc.max_receive_message_length", self._limits.message_bytes),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=CONCURRENT_REQUESTS,
        )
        host = address.rpartition(":")[0]
        _try_to_listen(host, int(address.rpartition(":")[2]))
        self.port: int = self._server.add_insecure_port(address)
        self.endpoint = f"{host}:{self.port}"

    def start(self) -> None:
        """Begin to accept exports."""
        self._server.start()

    def stop(self, grace_s: float = 2.0) -> None:
        """Refuse new exports and let those in flight finish."""
        self._server.stop(grace_s).wait()

    def _service(self, signal: Signal) -> grpc.GenericRpcHandler:
        def export(payload: bytes, context: grpc.ServicerContext) -> bytes:
            return self._export(signal, payload, context)

        # without (de)serialisers gRPC hands over and takes back bytes
        return grpc.method_handlers_generic_handler(
            signal.service, {"Export": grpc.unary_unary_rpc_method_handler(export)}
        )

    def _export(self, signal: Signal, payload: bytes, context: grpc.ServicerContext) -> bytes:
        self._authorise(context)
        try:
            checked = signal.check(payload, self._limits.window)
        except MalformedError as error:
            self._tally.rejected(signal.kind, MALFORMED, 1)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if checked.rows:
            try:
                self._sink.put([Entry(signal.kind, checked.payload, checked.rows)])
            except Backpressure as full:
                _refuse(context, full)
        for reason, rows in checked.rejected.items():
            self._tally.rejected(signal.kind, reason, rows)
        return _answer(signal, checked)

    def _authorise(self, context: grpc.ServicerContext) -> None:
        if self._authorization is None:
            return
        offered = dict(context.invocation_metadata()).get("authorization", "")
        if not hmac.compare_digest(offered.encode(), self._authorization):
            context.abort(
                grpc.StatusCode.UNAUTHENTICATED, "send the collector's token as 'authorization: Bearer TOKEN'"
            )


def _answer(signal: Signal, checked: Checked) -> bytes:
    response = signal.response()
    if checked.rejected:
        setattr(response.partial_success, signal.rejected_field, checked.rejected.total())
        response.partial_success.error_message = "; ".join(
            f"{n} x {why}" for why, n in checked.rejected.items()
        )
    data: bytes = response.SerializeToString()
    return data


def _refuse(context: grpc.ServicerContext, full: Backpressure) -> NoReturn:
    """RESOURCE_EXHAUSTED with RetryInfo: by the OTLP specification the sender keeps the data and tries again."""
    status = status_pb2.Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message=str(full))
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromNanoseconds(int(full.retry_after_s * 1e9))
    status.details.add().Pack(retry)
    context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("abort_with_status always raises")


def _try_to_listen(host: str, port: int) -> None:
    """gRPC does not say why it cannot listen: a plain socket does."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host.strip("[]"), port), family=family).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"cannot listen on {host}:{port} for OTLP/gRPC ({reason}); choose another address"
        ) from None
