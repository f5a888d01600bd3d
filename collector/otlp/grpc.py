"""OTLP over gRPC: traces, metrics and logs, acknowledged once they are on disk (`collector.otlp.intake`).

The codes are those of the OTLP specification: INVALID_ARGUMENT is for good, RESOURCE_EXHAUSTED with RetryInfo means
"again later", a partial success names the rows that were refused.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from cachemodel.errors import UserError
from collector.otlp.check import MalformedError
from collector.otlp.intake import (
    CHECKED_AT_ONCE,
    SIGNALS,
    TIMES_A_CHECK,
    TOKEN_HINT,
    Intake,
    Limits,
    OversizedError,
    Signal,
)
from collector.sink import Backpressure, Sink
from collector.tally import Tally

WORKERS = 4  # each reads one message at a time
# Beyond this gRPC itself refuses, without RetryInfo: exporters other than Python's then give the data up.
MOST_WAITING = 1024
WINDOW_BYTES = 64 << 10  # of a waiting request: what HTTP/2 lets its sender send before somebody reads
MESSAGE_S = 30.0  # for a sender to send its message: it holds a worker meanwhile


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
        limits = limits or Limits()
        self.intake = Intake(sink, tally, limits, token)
        # requests that wait, those that are read (in gRPC's buffers and as bytes), those that are checked
        self.memory_bytes = MOST_WAITING * WINDOW_BYTES + limits.message_bytes * (
            2 * WORKERS + TIMES_A_CHECK * CHECKED_AT_ONCE
        )
        self._reading: dict[grpc.ServicerContext, float] = {}  # since when, by time.monotonic()
        self._stopping = threading.Event()
        self._server = grpc.server(
            ThreadPoolExecutor(WORKERS, thread_name_prefix="otlp-grpc"),
            handlers=[self._service(signal) for signal in SIGNALS],
            options=[
                ("grpc.max_receive_message_length", limits.message_bytes),
                ("grpc.so_reuseport", 0),
                ("grpc.http2.bdp_probe", 0),  # it lets windows grow
            ],
            maximum_concurrent_rpcs=MOST_WAITING,
        )
        host = address.rpartition(":")[0]
        listen(host, int(address.rpartition(":")[2]), "OTLP/gRPC").close()  # gRPC does not say why it cannot
        self.port: int = self._server.add_insecure_port(address)
        self.endpoint = f"{host}:{self.port}"

    def start(self) -> None:
        """Begin to accept exports."""
        self._server.start()
        threading.Thread(target=self._cut_off_slow, name="otlp-grpc-slow", daemon=True).start()

    def stop(self, grace_s: float = 2.0) -> None:
        """Refuse new exports and let those in flight finish."""
        self._server.stop(grace_s).wait()
        self._stopping.set()

    def _cut_off_slow(self) -> None:
        """gRPC itself waits for ever for a message."""
        while not self._stopping.wait(min(1.0, MESSAGE_S)):
            too_late = time.monotonic() - MESSAGE_S
            for context, since in list(self._reading.items()):
                if since < too_late:
                    context.cancel()

    def _service(self, signal: Signal) -> grpc.GenericRpcHandler:
        def export(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            return self._export(signal, messages, context)

        # As a stream of one message, which is the same on the wire: its sender is known before it is read. Without
        # (de)serialisers gRPC hands over and takes back bytes.
        return grpc.method_handlers_generic_handler(
            signal.service, {"Export": grpc.stream_unary_rpc_method_handler(export)}
        )

    def _export(self, signal: Signal, messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        if not self.intake.admits(dict(context.invocation_metadata()).get("authorization", "")):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, TOKEN_HINT)
        try:
            answer: bytes = self.intake.take(signal, self._read(messages, context)).SerializeToString()
            return answer
        except (MalformedError, OversizedError) as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except Backpressure as full:
            _refuse(context, full)
        raise AssertionError("abort always raises")

    def _read(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        self._reading[context] = time.monotonic()
        try:
            return next(messages)
        except StopIteration:
            raise MalformedError("a call without a message") from None
        finally:
            del self._reading[context]


def _refuse(context: grpc.ServicerContext, full: Backpressure) -> NoReturn:
    """RESOURCE_EXHAUSTED with RetryInfo: by the OTLP specification the sender keeps the data and tries again."""
    status = status_pb2.Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message=str(full))
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromNanoseconds(int(full.retry_after_s * 1e9))
    status.details.add().Pack(retry)
    context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("abort_with_status always raises")


def listen(host: str, port: int, what: str) -> socket.socket:
    """A socket that listens; raises UserError that says why it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"cannot listen on {host}:{port} for {what} ({reason}); choose another address"
        ) from None
