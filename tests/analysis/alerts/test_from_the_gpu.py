"""The tensor kernels' rule from end to end: a double of CUPTI, the sensor, the probe's sender, a real collector and a
real store. What the card counts is planted, since there is none; all behind it is what runs beside one."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from collector.otlp.grpc import OtlpGrpcReceiver
from collector.pipeline import Pipeline
from collector.writer import Flush
from hitmap.commands.alerts import command
from probes.daemon.channel import open_channel
from probes.daemon.deltas import Deltas, Point
from probes.daemon.endpoint import endpoint
from probes.daemon.sender import Sender
from probes.gpu.bursts import CuptiSensor
from probes.gpu.counters import SETS, Burst, Kernel, Sample
from tests.databases import Database
from tests.probes.daemon.receivers import eventually
from tests.probes.gpu.conftest import Clock
from tests.probes.gpu.test_bursts import GPU, L1, Planted

RESOURCES = {None: {"service.name": "hitmap-probe", "host.name": "box"}}
MISSED = (0.20, 0.31, 0.50, 0.45, 0.20)
"""By round of bursts, what the tensor kernel missed of its sectors; the threshold is 0.32."""
ROUND_S = 10.0 * len(SETS)


def burst(missed: float) -> Burst:
    """gemm for half of the time, with tensor instructions; then a copy that misses nearly all, without."""
    ms = 1_000_000
    samples = [
        Sample(
            at * ms, (at + 1) * ms, (100 * (1 - missed), 100 * missed, 50.0) if at < 4 else (5.0, 95.0, 0.0)
        )
        for at in range(8)
    ]
    return Burst(samples, (Kernel("gemm", 0, 4 * ms), Kernel("copy", 4 * ms, 8 * ms)), (0, 8 * ms))


def probed(began_ns: int) -> list[Point]:
    """What a probe tells of these rounds, read a second after each burst."""
    clock = Clock()
    collector, deltas, points = Planted(clock), Deltas(began_ns), []
    sensor = CuptiSensor(collector, GPU, clock=clock)
    start = clock.now
    for missed in MISSED:
        collector.bursts[L1] = burst(missed)
        for _ in SETS:
            clock.now += sensor.due_in()
            sensor.once()
            clock.now += 1.0
            points += deltas.take(sensor.read(), began_ns + round(1e9 * (clock.now - start)))
    return points


def test_a_tensor_kernel_that_misses_more_than_a_third_fires_and_no_other(
    db: Database, tmp_path: Path
) -> None:
    began_ns = (time.time_ns() // 10**9 - 3600) * 10**9
    with Pipeline(db.dsn, tmp_path, flush=Flush(age_s=0.05)) as pipeline:
        receiver = OtlpGrpcReceiver(pipeline.sink, pipeline.tally, "127.0.0.1:0")
        receiver.start()
        sender = Sender(open_channel(endpoint(receiver.endpoint, [], {})), "1")
        sender.put(probed(began_ns), RESOURCES)
        sender.close()
        eventually(lambda: not any(pipeline.stats().pending.values()))
        receiver.stop(0)
    began = datetime.fromtimestamp(began_ns / 1e9, UTC)
    span = ("--from", began.isoformat(), "--to", (began + timedelta(minutes=10)).isoformat())
    shown = CliRunner().invoke(
        command, ["--store", db.dsn, *span, "--rule", "tensor-miss-ratio-high", "--json"]
    )
    assert shown.exit_code == 1, shown.output
    (alert,) = json.loads(shown.output)["alerts"]
    labels = alert["labels"]
    assert (labels["kernel"], labels["host"], labels["gpu"]) == ("gemm", "box", GPU[0])
    assert (alert["windows"], alert["worst"]) == (2, pytest.approx(0.50))
    first = (datetime.fromisoformat(alert["start"]) - began).total_seconds()
    assert first <= 2 * ROUND_S + 1.1 < first + 10, "a second after the third round's first burst"
