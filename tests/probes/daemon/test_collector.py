"""From readings to rows: a real collector on real sockets, a real ClickHouse."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from collector.otlp.grpc import OtlpGrpcReceiver
from collector.otlp.http import OtlpHttpReceiver
from collector.pipeline import Pipeline
from collector.writer import Flush
from probes.daemon.channel import open_channel
from probes.daemon.deltas import Deltas
from probes.daemon.endpoint import endpoint
from probes.daemon.sender import Sender
from probes.reading import Reading
from tests.databases import Database
from tests.probes.daemon.receivers import eventually

TOKEN = "s3cr3t"
STEP = 100_000_000  # ten readings a second
RESOURCES = {
    None: {"service.name": "hitmap-probe", "host.name": "box"},
    7: {"service.name": "hitmap-probe", "host.name": "box", "process.pid": "7", "server.port": "8000"},
}
KIND = (("hitmap.fault.mode", "user"), ("hitmap.fault.access", "read"))
Address = Callable[[Any], str]


@contextmanager
def door(kind: type, pipeline: Pipeline) -> Iterator[Any]:
    receiver = kind(pipeline.sink, pipeline.tally, "127.0.0.1:0", token=TOKEN)
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.stop(0)


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        (OtlpGrpcReceiver, lambda door: door.endpoint),
        (OtlpHttpReceiver, lambda door: f"http://127.0.0.1:{door.port}/v1/metrics"),
    ],
)
def test_every_number_is_a_row_with_its_window(
    kind: type, address: Address, db: Database, tmp_path: Path
) -> None:
    began = time.time_ns() - 60 * 10**9
    deltas, totals, points = Deltas(began), (0, 5, 5, 9), []
    for at, total in enumerate(totals, start=1):
        points += deltas.take(
            [
                Reading("hitmap.page_faults", total, "ebpf", 7, None, KIND),
                Reading("hitmap.pmu.llc.misses", 10 * at, "perf", 7, 71, running=0.25),
                Reading("process.thread.count", 3 + at, "procfs", 7),
                Reading("hw.gpu.utilization", 0.5, "nvml", attributes=(("hw.id", "GPU-1"),)),
            ],
            began + at * STEP,
        )
    with Pipeline(db.dsn, tmp_path, flush=Flush(age_s=0.05)) as pipeline, door(kind, pipeline) as opened:
        to = endpoint(address(opened), [f"Authorization=Bearer {TOKEN}"], {})
        sender = Sender(open_channel(to), "1.2")
        sender.put(points, RESOURCES)
        sender.close()
        assert (sender.sent, sender.lost, sender.trouble) == (len(points), {}, "")
        eventually(lambda: not any(pipeline.stats().pending.values()))

    faults = rows(db, "sum", "hitmap.page_faults")
    windows = [((a - began) // STEP, (b - began) // STEP, value) for a, b, value, *_ in faults]
    assert windows == [(0, 1, 0), (1, 2, 5), (2, 3, 0), (3, 4, 4)]
    assert {row[3:6] for row in faults} == {(1, True, "{fault}")}  # delta
    assert faults[0][6] == {**dict(KIND), "hitmap.source": "ebpf"}
    assert faults[0][7] == RESOURCES[7]
    (misses, *_) = rows(db, "sum", "hitmap.pmu.llc.misses")
    assert misses[6] == {"hitmap.source": "perf", "thread.id": "71", "hitmap.running_ratio": "0.25"}
    threads = rows(db, "gauge", "process.thread.count")
    assert [row[2] for row in threads] == [4, 5, 6, 7]
    (gpu,) = rows(db, "gauge", "hw.gpu.utilization")
    assert (gpu[6]["hw.id"], gpu[7]) == ("GPU-1", RESOURCES[None]), "of no process"


def rows(db: Database, table: str, metric: str) -> list[tuple[Any, ...]]:
    """(from, to, value, temporality, monotonic, unit, attributes, resource) in the order of time."""
    summed = "AggregationTemporality, IsMonotonic" if table == "sum" else "0, false"
    found = db.client.query(
        f"SELECT toUnixTimestamp64Nano(StartTimeUnix), toUnixTimestamp64Nano(TimeUnix), Value, {summed}, "
        f"MetricUnit, Attributes, ResourceAttributes FROM otel_metrics_{table} "
        "WHERE MetricName = {metric:String} AND ServiceName = 'hitmap-probe' AND ScopeName = 'hitmap.probes' "
        "ORDER BY TimeUnix, StartTimeUnix",
        parameters={"metric": metric},
    )
    return [tuple(row) for row in found.result_rows]


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        (OtlpGrpcReceiver, lambda door: door.endpoint),
        (OtlpHttpReceiver, lambda door: f"http://127.0.0.1:{door.port}/v1/metrics"),
    ],
)
def test_a_wrong_token_is_final_counted_and_said(
    kind: type, address: Address, db: Database, tmp_path: Path
) -> None:
    with Pipeline(db.dsn, tmp_path) as pipeline, door(kind, pipeline) as opened:
        sender = Sender(open_channel(endpoint(address(opened), ["authorization=Bearer no"], {})), "1")
        points = Deltas(0).take([Reading("hitmap.page_faults", 1, "ebpf", 7)], time.time_ns())
        sender.put(points, RESOURCES)
        eventually(lambda: sender.lost["refused"] == 1)
        assert "UNAUTHENTICATED" in sender.trouble or "401" in sender.trouble
        sender.close()
