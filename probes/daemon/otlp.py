"""Points as OTLP, and on their way to a collector over gRPC or HTTP, whichever its address says."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Protocol
from urllib.parse import urlsplit

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, ResourceMetrics

from cachemodel.errors import UserError
from cachemodel.observed import BY_NAME, PID, SCALED, SCOPE, SOURCE, THREAD_ID
from probes.daemon.deltas import Point

_EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_HTTP_PATH = "/v1/metrics"
_AGAIN_HTTP = (429, 502, 503, 504)  # as the OTLP specification has it: all others are final
_AGAIN_GRPC = (
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DATA_LOSS,
)
Attributes = Mapping[str, str]


class Refused(Exception):
    """The collector did not take it. again: whether it may later."""

    def __init__(self, why: str, *, again: bool) -> None:
        super().__init__(why)
        self.again = again


class Channel(Protocol):
    """Sends one export. Raises Refused."""

    def send(self, request: ExportMetricsServiceRequest) -> None: ...

    def close(self) -> None: ...


def export(
    points: Iterable[Point], resources: Mapping[int | None, Attributes], version: str
) -> ExportMetricsServiceRequest:
    """One request of many points. resources: attributes by pid; those of None are of the host and its GPUs."""
    request = ExportMetricsServiceRequest()
    blocks: dict[int | None, ResourceMetrics] = {}
    metrics: dict[tuple[int | None, str], Metric] = {}
    for point in points:
        reading = point.reading
        pid = reading.pid
        if (
            pid not in blocks
        ):  # of a process that exited before anybody looked its number is all that is known
            resource = resources.get(pid) or {**resources[None], PID: str(pid)}
            blocks[pid] = _block(request, resource, version)
        metric = metrics.get((pid, reading.metric))
        if metric is None:
            metric = metrics[pid, reading.metric] = _metric(blocks[pid], reading.metric)
        _add(metric, point)
    return request


def _block(request: ExportMetricsServiceRequest, resource: Attributes, version: str) -> ResourceMetrics:
    block: ResourceMetrics = request.resource_metrics.add()
    block.resource.attributes.extend(_text(key, value) for key, value in resource.items())
    block.scope_metrics.add().scope.CopyFrom(InstrumentationScope(name=SCOPE, version=version))
    return block


def _metric(block: ResourceMetrics, name: str) -> Metric:
    told = BY_NAME[name]
    metric: Metric = block.scope_metrics[0].metrics.add(name=name, unit=told.unit, description=told.meaning)
    if told.kind == "counter":
        metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        metric.sum.is_monotonic = True
    return metric


def _add(metric: Metric, point: Point) -> None:
    reading = point.reading
    if metric.HasField("sum"):
        made = metric.sum.data_points.add(
            start_time_unix_nano=point.start_ns, time_unix_nano=point.end_ns, as_double=point.value
        )
    else:
        made = metric.gauge.data_points.add(time_unix_nano=point.end_ns, as_double=point.value)
    made.attributes.extend(_text(key, value) for key, value in reading.attributes)
    made.attributes.append(_text(SOURCE, reading.source))
    if reading.tid is not None:
        made.attributes.append(KeyValue(key=THREAD_ID, value=AnyValue(int_value=reading.tid)))
    if reading.running < 1.0:
        made.attributes.append(KeyValue(key=SCALED, value=AnyValue(double_value=reading.running)))


def _text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def open_channel(endpoint: str, headers: Attributes, timeout_s: float = 5.0) -> Channel:
    """endpoint: HOST:PORT or http(s)://HOST:PORT for gRPC; one with port 4318 or a path is OTLP over HTTP.

    Raises UserError where it is no address.
    """
    try:
        told = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        known = told.scheme in ("", "http", "https") and told.hostname and told.port
    except ValueError:
        known = False
    if not known or not endpoint.isprintable() or " " in endpoint:
        raise UserError(f"{endpoint} is no address of a collector: give HOST:PORT such as 127.0.0.1:4317")
    if told.port == 4318 or told.path.strip("/"):
        path = told.path.rstrip("/") or _HTTP_PATH
        return _Http(f"{told.scheme or 'http'}://{told.netloc}{path}", headers, timeout_s)
    return _Grpc(told.netloc, told.scheme == "https", headers, timeout_s)


class _Grpc:
    def __init__(self, target: str, tls: bool, headers: Attributes, timeout_s: float) -> None:
        self._channel = (
            grpc.secure_channel(target, grpc.ssl_channel_credentials())
            if tls
            else grpc.insecure_channel(target)
        )
        self._call = self._channel.unary_unary(
            _EXPORT,
            request_serializer=ExportMetricsServiceRequest.SerializeToString,
            response_deserializer=ExportMetricsServiceResponse.FromString,
        )
        self._metadata = [(key.lower(), value) for key, value in headers.items()]
        self._timeout_s, self._target = timeout_s, target

    def send(self, request: ExportMetricsServiceRequest) -> None:
        try:
            answer = self._call(request, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            code = error.code()
            why = f"{self._target} answers {code.name}: {error.details()}"
            raise Refused(why, again=code in _AGAIN_GRPC) from None
        _check(answer)

    def close(self) -> None:
        self._channel.close()


class _Http:
    def __init__(self, url: str, headers: Attributes, timeout_s: float) -> None:
        self._url, self._timeout_s = url, timeout_s
        self._headers = {"content-type": "application/x-protobuf", **headers}

    def send(self, request: ExportMetricsServiceRequest) -> None:
        call = urllib.request.Request(self._url, request.SerializeToString(), self._headers, method="POST")  # noqa: S310
        try:
            with urllib.request.urlopen(call, timeout=self._timeout_s) as reply:  # noqa: S310 - http(s), as open_channel
                answer = ExportMetricsServiceResponse.FromString(reply.read(1 << 16))
        except urllib.error.HTTPError as error:
            why = f"{self._url} answers {error.code} {error.reason}"
            raise Refused(why, again=error.code in _AGAIN_HTTP) from None
        except Exception as error:  # a door that is shut, or speaks something else
            raise Refused(f"{self._url} cannot be reached: {error}", again=True) from None
        _check(answer)

    def close(self) -> None:
        pass


def _check(answer: ExportMetricsServiceResponse) -> None:
    """A partial success names points that will not be taken whenever they come."""
    partial = answer.partial_success
    if partial.rejected_data_points:
        raise Refused(
            f"the collector rejected {partial.rejected_data_points} points: {partial.error_message}",
            again=False,
        )
