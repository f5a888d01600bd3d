"""Exports on their way to a collector, over gRPC or HTTP. What it answers is read as the OTLP specification has it:
https://opentelemetry.io/docs/specs/otlp/
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
import urllib.error
import urllib.request
from typing import IO, NamedTuple, Protocol

import grpc
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from cachemodel.errors import UserError
from probes.daemon.endpoint import Endpoint

TIMEOUT_S = 5.0
_EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_AGAIN_HTTP = (429, 502, 503, 504)  # all others are final
_AGAIN_GRPC = (
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DATA_LOSS,
)
_DETAILS = "grpc-status-details-bin"
_OPTIONS = (  # a collector that is back is found within seconds: gRPC's own limit is two minutes
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5000),
)


class Refused(Exception):
    """The collector did not take it. again: whether it may later; wait_s: after how long, where it says so."""

    def __init__(self, why: str, *, again: bool, wait_s: float | None = None) -> None:
        super().__init__(why)
        self.again, self.wait_s = again, wait_s


class Taken(NamedTuple):
    """rejected: points among them that will not be taken whenever they come. remark: what it says of them."""

    rejected: int
    remark: str


class Channel(Protocol):
    """Sends one ExportMetricsServiceRequest, serialised. Raises Refused and nothing else."""

    def send(self, request: bytes) -> Taken: ...

    def close(self) -> None: ...


def open_channel(to: Endpoint, timeout_s: float = TIMEOUT_S) -> Channel:
    """Connects when something is sent. Raises UserError for a certificate that is none."""
    return _Http(to, timeout_s) if to.url else _Grpc(to, timeout_s)


class _Grpc:
    def __init__(self, to: Endpoint, timeout_s: float) -> None:
        if to.tls:
            credentials = grpc.ssl_channel_credentials(to.certificate)
            self._channel = grpc.secure_channel(to.target, credentials, options=_OPTIONS)
        else:
            self._channel = grpc.insecure_channel(to.target, options=_OPTIONS)
        self._call = self._channel.unary_unary(_EXPORT)  # without (de)serialisers it takes and gives bytes
        self._metadata = tuple(to.headers.items())
        self._timeout_s, self._target = timeout_s, to.target

    def send(self, request: bytes) -> Taken:
        try:
            answer = self._call(request, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            code = error.code()
            raise Refused(
                _why(self._target, code, error.details() or ""),
                again=code in _AGAIN_GRPC,
                wait_s=_retry_delay_s(error),
            ) from None
        except ValueError as error:  # gRPC's word for a channel that was closed meanwhile
            raise Refused(f"{self._target}: {error}", again=True) from None
        return _taken(answer, self._target)

    def close(self) -> None:
        self._channel.close()


def _why(target: str, code: grpc.StatusCode, details: str) -> str:
    """Where nobody listens gRPC says it in a line of its inner workings that ends with the system's word."""
    if "HTTP/2" in details:
        return f"{target} does not speak gRPC: OTLP over HTTP is http://{target}/v1/metrics"
    if code is grpc.StatusCode.UNAVAILABLE and details.startswith("failed to connect"):
        return f"{target} cannot be reached: {details.rpartition(': ')[2]}"
    return f"{target} answers {code.name}: {details}"


def _retry_delay_s(error: grpc.RpcError) -> float | None:
    """RetryInfo among the details of a status. None where there is none, or nothing that reads it is installed."""
    with contextlib.suppress(ImportError, DecodeError):
        from google.rpc import error_details_pb2, status_pb2

        for key, value in error.trailing_metadata() or ():
            for detail in status_pb2.Status.FromString(value).details if key == _DETAILS else ():
                retry = error_details_pb2.RetryInfo()
                if detail.Unpack(retry):
                    return float(retry.retry_delay.ToNanoseconds() / 1e9)
    return None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A POST that is sent elsewhere would become a GET, whose answer says nothing of the points."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        return None


class _Http:
    def __init__(self, to: Endpoint, timeout_s: float) -> None:
        self._url, self._timeout_s = to.url, timeout_s
        self._headers = {"content-type": "application/x-protobuf", **to.headers}
        try:
            context = ssl.create_default_context(cadata=to.certificate.decode() if to.certificate else None)
        except (ssl.SSLError, ValueError):
            raise UserError("OTEL_EXPORTER_OTLP_CERTIFICATE names no certificate in PEM form") from None
        https = urllib.request.HTTPSHandler(context=context)
        self._open = urllib.request.build_opener(_NoRedirect, https).open

    def send(self, request: bytes) -> Taken:
        call = urllib.request.Request(self._url, request, self._headers, method="POST")  # noqa: S310 - http(s), as `endpoint`
        try:
            with self._open(call, timeout=self._timeout_s) as reply:
                answer: bytes = reply.read(1 << 16)
        except urllib.error.HTTPError as error:
            with error:
                after = error.headers.get("Retry-After", "")
            wait_s = float(after) if after.isascii() and after.isdecimal() else None
            why = f"{self._url} answers {error.code} {error.reason}"
            raise Refused(why, again=error.code in _AGAIN_HTTP, wait_s=wait_s) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)  # of a URLError, whose own text wraps it
            raise Refused(f"{self._url} cannot be reached: {reason}", again=True) from None
        return _taken(answer, self._url)

    def close(self) -> None:
        pass


def _taken(answer: bytes, where: str) -> Taken:
    try:
        partial = ExportMetricsServiceResponse.FromString(answer).partial_success
    except DecodeError:
        raise Refused(f"{where} does not answer as an OTLP collector does", again=False) from None
    if not partial.rejected_data_points and not partial.error_message:
        return Taken(0, "")
    said = f"{where} rejected {partial.rejected_data_points:,} points: {partial.error_message}"
    return Taken(partial.rejected_data_points, said)
