"""The daemon with sensors whose numbers are known: nothing is lost as processes come and go, and all stays bounded."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from probes.daemon import loop
from probes.daemon.deltas import Point
from probes.daemon.loop import Daemon, Watch
from probes.reading import Gap, Reading

FAULTS = "hitmap.page_faults"


class Sink:
    def __init__(self) -> None:
        self.lost: Counter[str] = Counter()
        self.trouble, self.over = "", False
        self.taken: list[tuple[Point, dict[str, str]]] = []

    def put(self, points: list[Point], resources: Any) -> None:
        self.taken += [(point, resources.get(point.reading.pid)) for point in points]

    def total(self, metric: str = FAULTS) -> float:
        return sum(point.value for point, _ in self.taken if point.reading.metric == metric)

    def close(self) -> None:
        self.over = True


class Sensor:
    """Counts `step` at each read, of each process it watches; of one that is dropped it tells nothing any more."""

    def __init__(self, pids: Iterable[int] = (1,), step: int = 1) -> None:
        self.counts = dict.fromkeys(pids, 0)
        self.step, self.reads, self.closed = step, list[float](), False

    def watch(self, pids: Iterable[int]) -> None:
        self.counts = {pid: self.counts.get(pid, 0) for pid in pids}

    def read(self) -> Sequence[Reading]:
        self.reads.append(time.monotonic())
        self.counts = {pid: count + self.step for pid, count in self.counts.items()}
        return [Reading(FAULTS, count, "ebpf", pid) for pid, count in self.counts.items()]

    def gaps(self) -> Sequence[Gap]:
        return [Gap("a", "b"), Gap("a", "b")]

    def close(self) -> None:
        self.closed = True


class Targets:
    """Who is there, as a test says."""

    def __init__(self, *pids: int, everything: bool = False) -> None:
        self.now, self.everything, self.named = set(pids), everything, set[int]()
        self.broken, self._before = False, set(pids)

    @property
    def pids(self) -> list[int] | None:
        return None if self.everything else sorted(self.now)

    @property
    def gone(self) -> bool:
        return not self.everything and not self._before

    def refresh(self) -> bool:
        if self.broken:
            raise OSError(24, "Too many open files")
        self.named &= self.now
        changed, self._before = self._before != self.now, set(self.now)
        return changed

    def resources(self) -> Any:
        pids = self.named if self.everything else self._before
        return {None: {"host.name": "h"}, **{pid: {"process.pid": str(pid)} for pid in pids}}

    def roots(self) -> dict[int, str]:
        return dict.fromkeys(self._before, "p")

    def name(self, pids: Iterable[int]) -> bool:
        new = {pid for pid in pids if pid in self.now} - self.named
        self.named |= new
        return bool(new)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_LOOK_S", 0.05)
    monkeypatch.setattr(
        loop, "_LOOK_SHARE", 0
    )  # a look that others hold up would put off the next one for long
    monkeypatch.setattr(loop, "_HAND_S", 0.05)


def ran(daemon: Daemon, until: Callable[[], bool], each: Callable[[], None] = lambda: None) -> None:
    stop, end = threading.Event(), time.monotonic() + 20

    def tick(_: Daemon) -> None:
        each()
        if until() or time.monotonic() > end:
            stop.set()

    daemon.run(stop, tick)
    assert time.monotonic() < end, "did not happen in time"
    daemon.close()


def test_what_was_counted_is_told_and_no_more() -> None:
    sensor, sink = Sensor(step=3), Sink()
    daemon = Daemon([Watch(sensor, 0.01)], Targets(1), sink)
    ran(daemon, lambda: len(sensor.reads) > 20)
    assert sink.total() == sensor.counts[1] == 3 * len(sensor.reads), "also what was read at the end"
    assert sensor.closed
    assert daemon.points == len(sink.taken)
    assert list(daemon.gaps()) == [Gap("a", "b")]


def test_before_a_process_is_dropped_its_last_numbers_are_told_under_its_name() -> None:
    sensor, targets, sink = Sensor([1, 2]), Targets(1, 2), Sink()
    daemon = Daemon([Watch(sensor, 3600.0)], targets, sink)  # so seldom that only its end is read
    ran(daemon, lambda: 2 not in sensor.counts, lambda: targets.now.discard(2))
    told = [(point, who) for point, who in sink.taken if point.reading.pid == 2]
    assert sum(point.value for point, _ in told) == 2  # the first reading, and the one when it was found gone
    assert {tuple(who.items()) for _, who in told} == {(("process.pid", "2"),)}


def test_it_ends_when_nothing_can_be_watched_any_more() -> None:
    targets, sink = Targets(1), Sink()
    targets.now.clear()
    Daemon([Watch(Sensor(), 0.01)], targets, sink).run(threading.Event())  # returns
    assert sink.total() > 0, "what it did last is told"


def test_it_ends_when_nobody_takes_points_any_more() -> None:
    sink = Sink()
    sink.over = True
    Daemon([Watch(Sensor(), 0.01)], Targets(1), sink).run(threading.Event())  # returns


def test_without_descriptors_it_goes_on_with_those_it_knows() -> None:
    targets, sink, sensor = Targets(1), Sink(), Sensor()
    targets.broken = True
    daemon = Daemon([Watch(sensor, 0.01)], targets, sink)
    ran(daemon, lambda: len(sensor.reads) > 10)
    assert sink.total() == len(sensor.reads)
    (gap,) = [gap for gap in daemon.gaps() if gap.what == "new processes"]
    assert "Too many open files" in gap.why
    assert "ulimit -n" in gap.needs


def test_sensors_are_read_on_time_whatever_the_sink_does() -> None:
    """A sink that takes a moment each time costs no reading its turn but the one that is due then."""
    sensor, sink = Sensor(), Sink()
    put = sink.put
    sink.put = lambda points, resources: (time.sleep(0.02), put(points, resources))[1]  # type: ignore[method-assign]
    ran(Daemon([Watch(sensor, 0.01)], Targets(1), sink), lambda: len(sensor.reads) >= 50)
    assert sink.total() == sensor.counts[1]


def test_a_machine_that_slept_does_not_catch_up() -> None:
    sensor = Sensor()
    watch = Watch(sensor, 0.01)
    watch.due_s = time.monotonic() - 3600
    began = time.monotonic()
    ran(Daemon([watch], Targets(1), Sink()), lambda: time.monotonic() > began + 0.2)
    assert len(sensor.reads) < 60, "360,000 were due"


def test_a_clock_set_back_costs_one_window_and_gives_no_wrong_one(monkeypatch: pytest.MonkeyPatch) -> None:
    offset, real = 0, time.time_ns
    monkeypatch.setattr(loop.time, "time_ns", lambda: real() + offset)
    sensor, sink = Sensor(), Sink()
    daemon = Daemon([Watch(sensor, 0.01)], Targets(1), sink)

    def set_back() -> None:
        nonlocal offset
        if len(sensor.reads) > 10:
            offset = -3600 * 10**9

    ran(daemon, lambda: len(sensor.reads) > 30, set_back)
    windows = [(p.start_ns, p.end_ns) for p, _ in sink.taken if p.reading.metric == FAULTS]
    assert all(0 < end - start < 10**9 for start, end in windows)
    assert sink.total() == len(sensor.reads) - 1
    assert daemon.lost["clock_went_back"] >= 1


def test_of_thousands_that_come_and_go_only_those_there_are_are_kept() -> None:
    """All processes of a host, 40 new ones at each export."""
    targets, sink, sensor = Targets(everything=True), Sink(), Sensor([])
    numbers = iter(range(10, 10**9))

    def churn() -> None:
        targets.now = {next(numbers) for _ in range(40)}
        sensor.counts = dict.fromkeys(targets.now, 0)

    churn()
    daemon = Daemon([watch := Watch(sensor, 0.01)], targets, sink)
    ran(daemon, lambda: max(targets.now) > 5000, churn)
    named = {who["process.pid"] for _, who in sink.taken if who and "process.pid" in who}
    assert len(named) > 3000, "most were named"
    assert len(daemon._resources) < 200
    assert len(watch.deltas._series) <= 40


def test_what_it_takes_and_loses_itself_is_told() -> None:
    sink = Sink()
    sink.lost["dropped"] = 5
    daemon = Daemon([Watch(Sensor(), 0.01)], Targets(1), sink)
    began = time.monotonic()
    ran(daemon, lambda: time.monotonic() - began > 1.2)
    assert sink.total("hitmap.probe.lost") == 5
    (point, who) = next((p, w) for p, w in sink.taken if p.reading.metric == "hitmap.probe.lost")
    assert point.reading.attributes == (("reason", "dropped"),)
    assert who == {"host.name": "h"}
    assert sink.total("hitmap.probe.cpu.time") > 0
