"""Points as OTLP. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, ResourceMetrics

from cachemodel.observed import BY_NAME, PID, SCALED, SCOPE, SOURCE, THREAD_ID
from probes.daemon.deltas import Point

Attributes = Mapping[str, str]
Resources = Mapping[int | None, Attributes]
"""Attributes by pid; those of None are of the host and its GPUs, and always there."""


def resource_of(pid: int | None, resources: Resources) -> Attributes:
    """Of a process that exited before anybody looked its number is all that is known."""
    return resources.get(pid) or {**resources[None], PID: str(pid)}


def export(points: Iterable[Point], resources: Resources, version: str) -> ExportMetricsServiceRequest:
    """One request of many points."""
    request = ExportMetricsServiceRequest()
    blocks: dict[int | None, ResourceMetrics] = {}
    metrics: dict[tuple[int | None, str], Metric] = {}
    for point in points:
        pid, name = point.reading.pid, point.reading.metric
        metric = metrics.get((pid, name))
        if metric is None:
            if pid not in blocks:
                blocks[pid] = _block(request, resource_of(pid, resources), version)
            metric = metrics[pid, name] = _metric(blocks[pid], name)
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
