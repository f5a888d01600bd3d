"""Stock receivers of OTLP metrics on real sockets, which answer what a test tells them to."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

OK = ExportMetricsServiceResponse()
Answer = Callable[["Receiver", grpc.ServicerContext], ExportMetricsServiceResponse]


def rejecting(points: int, why: str = "too old") -> ExportMetricsServiceResponse:
    return ExportMetricsServiceResponse(
        partial_success=ExportMetricsPartialSuccess(rejected_data_points=points, error_message=why)
    )


class Receiver(metrics_service_pb2_grpc.MetricsServiceServicer):
    """OpenTelemetry's own stubs. taken: requests that it accepted; asked: all calls, by time.monotonic()."""

    def __init__(self) -> None:
        self.taken: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.asked: list[float] = []
        self.answer: Answer = lambda _, __: OK

    def Export(self, request: Any, context: Any) -> Any:
        self.asked.append(time.monotonic())
        self.headers.append(dict(context.invocation_metadata()))
        answer = self.answer(self, context)
        self.taken.append(request)
        return answer

    def values(self) -> list[float]:
        """Of all sums that were taken."""
        return [
            point.as_double
            for request in self.taken
            for block in request.resource_metrics
            for scope in block.scope_metrics
            for metric in scope.metrics
            for point in metric.sum.data_points
        ]

    @contextmanager
    def listening(self, port: int = 0, credentials: grpc.ServerCredentials | None = None) -> Iterator[int]:
        """On that port, or any free one."""
        server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(self, server)
        where = f"localhost:{port}" if credentials else f"127.0.0.1:{port}"
        bound = server.add_secure_port(where, credentials) if credentials else server.add_insecure_port(where)
        server.start()
        try:
            yield bound
        finally:
            server.stop(0).wait()


class HttpReceiver:
    """answers: (status, headers, body) of the next requests, then 200. taken: bodies by path."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.taken: list[tuple[str, str, dict[str, str], bytes]] = []

    @contextmanager
    def listening(self, tls: ssl.SSLContext | None = None) -> Iterator[int]:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
            headers = {key.lower(): value for key, value in handler.headers.items()}
            self.taken.append((handler.command, handler.path, headers, body))
            status, told, said = self.answers.pop(0) if self.answers else (200, {}, b"")
            handler.send_response(status)
            for key, value in {**told, "content-length": str(len(said))}.items():
                handler.send_header(key, value)
            handler.end_headers()
            handler.wfile.write(said)

        made = {"do_POST": answer, "do_GET": answer, "log_message": lambda *_: None}
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (BaseHTTPRequestHandler,), made))
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()


def eventually(check: Callable[[], bool], timeout_s: float = 20) -> None:
    end = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)
