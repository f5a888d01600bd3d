"""Requests, spans and probe points as rows of a store, planted at known times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from clickhouse_connect.driver.client import Client

START = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOST, PID = "node-1", 4711
FAULTS = "process.paging.faults"
MAJOR: Mapping[str, str] = {"system.paging.fault.type": "major"}


def moment(ms: float) -> datetime:
    return START + timedelta(milliseconds=ms)


def put_request(client: Client, name: str, start: float, end: float, server: str = "s", **more: Any) -> None:
    """A request in flight from `start` to `end`, ms after START."""
    row: dict[str, Any] = {
        "time": moment(start),
        "server": server,
        "model": "m",
        "dialect": "engine",
        "request_id": name,
        "span_id": 0,
        "ttft_us": round(1000 * (end - start) / 2),
        "e2e_us": round(1000 * (end - start)),
        "run": 1,
        **more,
    }
    client.insert("requests", [list(row.values())], column_names=list(row))
    client.command(
        "INSERT INTO request_keys SELECT sipHash64({id:String}), toDateTime({at:Int64})",
        parameters={"id": name, "at": int(row["time"].timestamp())},
    )


def put_span(
    client: Client, span_id: str, parent: str, name: str, start: float, end: float, **told: Any
) -> None:
    """A span of trace `t`, ms after START. resource: of whoever made it; the rest are its attributes."""
    resource = told.pop("resource", {})
    client.insert(
        "otel_traces",
        [
            [
                moment(start),
                told.pop("trace", "t"),
                span_id,
                parent,
                name,
                told.pop("service", "s"),
                resource,
                {key: str(value) for key, value in told.items()},
                round(1e6 * (end - start)),
            ]
        ],
        column_names=[
            *("Timestamp", "TraceId", "SpanId", "ParentSpanId", "SpanName", "ServiceName"),
            *("ResourceAttributes", "SpanAttributes", "Duration"),
        ],
    )


def put_points(
    client: Client,
    points: Sequence[tuple[float, float, float]],
    metric: str = FAULTS,
    attributes: Mapping[str, str] = MAJOR,
    *,
    pid: int | None = PID,
    host: str = HOST,
    source: str = "procfs",
    **resource: str,
) -> None:
    """Points of a counter: (from, to, counted), ms after START, as `hitmap probe` sends them. pid: None for those of a
    host and its GPUs."""
    whose = {} if pid is None else {"process.pid": str(pid), "process.executable.name": "python3"}
    told = {"host.name": host, **whose, **resource}
    client.insert(
        "otel_metrics_sum",
        [
            [
                told,
                "hitmap-probe",
                metric,
                {**attributes, "hitmap.source": source},
                moment(start),
                moment(end),
                float(value),
                1,
                True,
            ]
            for start, end, value in points
        ],
        column_names=[
            *("ResourceAttributes", "ServiceName", "MetricName", "Attributes", "StartTimeUnix", "TimeUnix"),
            *("Value", "AggregationTemporality", "IsMonotonic"),
        ],
    )


def put_gauge(
    client: Client,
    points: Sequence[tuple[float, float]],
    metric: str,
    attributes: Mapping[str, str],
    *,
    host: str = HOST,
    **resource: str,
) -> None:
    """Points of a gauge: (when, value), ms after START."""
    client.insert(
        "otel_metrics_gauge",
        [
            [
                {"host.name": host, **resource},
                "hitmap-probe",
                metric,
                dict(attributes),
                moment(at),
                float(value),
            ]
            for at, value in points
        ],
        column_names=[
            *("ResourceAttributes", "ServiceName", "MetricName", "Attributes", "TimeUnix", "Value"),
        ],
    )


def watched(client: Client, end: float = 10_000, **resource: Any) -> None:
    """What a probe always tells of a process that it watches."""
    put_points(
        client,
        [(at, at + 1000, 0.1) for at in range(-1000, int(end), 1000)],
        "process.cpu.time",
        {},
        **resource,
    )
