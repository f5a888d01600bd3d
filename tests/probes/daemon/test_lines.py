"""Points as JSON lines, and a reader that goes away."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from cachemodel.errors import UserError
from probes.daemon.deltas import Point
from probes.daemon.lines import Lines
from probes.reading import Reading

HOST = {None: {"service.name": "hitmap-probe", "host.name": "h"}, 7: {"host.name": "h", "process.pid": "7"}}
POINT = Point(
    Reading("hitmap.pmu.llc.misses", 10, "perf", 7, 8, (("a", "b"),), running=0.5), 1_000, 2_000, 4.0
)


def test_a_point_is_a_line_with_all_that_is_known_of_it() -> None:
    out = io.StringIO()
    Lines(out).put([POINT, Point(Reading("process.thread.count", 3, "procfs", 9), 5, 5, 3)], HOST)
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first == {
        "metric": "hitmap.pmu.llc.misses",
        "value": 4.0,
        "unit": "{miss}",
        "start_ns": 1000,
        "end_ns": 2000,
        "attributes": {"a": "b", "hitmap.source": "perf", "thread.id": 8, "hitmap.running_ratio": 0.5},
        "resource": {"host.name": "h", "process.pid": "7"},
    }
    assert second["resource"] == {"host.name": "h", "process.pid": "9"}  # it exited before anybody looked


def test_a_reader_that_went_away_ends_it_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        lines = Lines(out)
        lines.put([POINT], HOST)
        assert lines.over
        lines.put([POINT], HOST)  # and again, to no effect
        out.write("what Python would flush at its end")  # raises nothing any more


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device /dev/full")
def test_a_full_disk_is_said() -> None:
    with (
        Path("/dev/full").open("w") as out,
        pytest.raises(UserError, match="cannot be written: No space left on device"),
    ):
        Lines(out).put([POINT], HOST)
