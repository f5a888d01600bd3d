"""Caches and TLB: unsupported is a gap and never 0; what is told is scaled."""

from __future__ import annotations

import errno
import os
import struct

import pytest

from cachemodel import observed
from probes.kernel.thread import ThreadCounters
from probes.perf.events import CACHE, Syscalls
from probes.pmu import events
from probes.pmu.group import ThreadGroup
from probes.pmu.sensor import PmuSensor
from probes.pmu.support import support
from probes.support import State
from tests.probes.conftest import Worker, child
from tests.probes.perf.fake import FakeKernel, Opened

METRICS = {event.metric for event in events.EVENTS}


def test_every_metric_of_the_pmu_has_its_event() -> None:
    assert {name for name in observed.BY_NAME if name.startswith("hitmap.pmu.")} == METRICS
    assert len({(event.type, event.config) for event in events.EVENTS}) == 8


def test_configs_are_the_kernels() -> None:
    """PERF_COUNT_HW_CACHE_*: cache | operation << 8 | result << 16, as perf_event_open(2) has it."""
    configs = {event.metric: (event.type, event.config) for event in events.EVENTS}
    assert configs["hitmap.pmu.l1d.loads"] == (CACHE, 0x00000)
    assert configs["hitmap.pmu.l1d.misses"] == (CACHE, 0x10000)
    assert configs["hitmap.pmu.llc.misses"] == (CACHE, 0x10002)
    assert configs["hitmap.pmu.dtlb.misses"] == (CACHE, 0x10003)
    assert configs["hitmap.pmu.cycles"] == (0, 0)
    assert configs["hitmap.pmu.instructions"] == (0, 1)


def test_without_a_pmu_all_are_gaps_and_nothing_is_read(worker: Worker) -> None:
    kernel = FakeKernel(refuse=lambda event: errno.ENOENT)
    sensor = PmuSensor([worker.pid], kernel=kernel)
    assert sensor.read() == []
    assert {gap.what for gap in sensor.gaps()} == METRICS
    assert {row.state for row in support(kernel)} == {State.NEVER}
    assert ThreadGroup(kernel).metrics == ()
    sensor.close()


def test_this_host_says_what_it_has(worker: Worker) -> None:
    """Whatever PMU there is: each metric is either read or a gap."""
    sensor = PmuSensor([worker.pid])
    worker.do("read", 5000)
    readings = sensor.read()
    told = {one.metric for one in readings}
    missing = {name for gap in sensor.gaps() for name in gap.what.split(", ")}
    sensor.close()
    assert told | missing >= METRICS
    assert not told & missing
    rows = support()
    assert len(rows) == 4
    assert all(row.needs for row in rows if row.state is State.NO)


def test_readings_are_scaled_and_carry_the_share(worker: Worker) -> None:
    kernel = FakeKernel()
    sensor = PmuSensor([worker.pid], kernel=kernel)
    kernel.run(1000, share=0.5)
    readings = sensor.read()
    assert {one.metric for one in readings} == METRICS
    assert {(one.value, one.running, one.source, one.pid, one.tid) for one in readings} == {
        (2000, 0.5, "perf", worker.pid, None)
    }
    kernel.run(1000, share=0.0)
    assert {(one.value, one.running) for one in sensor.read()} == {(2000, 0.25)}, (
        "less is known, nothing is taken"
    )
    sensor.close()
    assert not kernel.open_now


def test_a_pair_without_its_other_half_is_counted_alone() -> None:
    kernel = FakeKernel(refuse=lambda event: errno.ENOENT if event.config == 0x10002 else 0)
    sensor = PmuSensor([os.getpid()], kernel=kernel)
    kernel.run(10)
    told = {one.metric for one in sensor.read()}
    assert told == METRICS - {"hitmap.pmu.llc.misses"}
    assert [gap.what for gap in sensor.gaps()] == ["hitmap.pmu.llc.misses"]
    sensor.close()


def test_never_its_turn_is_a_gap(worker: Worker) -> None:
    kernel = FakeKernel()
    sensor = PmuSensor([worker.pid], kernel=kernel)
    kernel.run(1000, share=0.0)
    assert sensor.read() == []
    assert {name for gap in sensor.gaps() for name in gap.what.split(", ")} == METRICS
    assert all("no turn" in gap.why for gap in sensor.gaps())
    sensor.close()


def test_by_thread_and_new_threads(worker: Worker) -> None:
    kernel = FakeKernel()
    worker.do("idle", 2)
    sensor = PmuSensor([worker.pid], threads=True, kernel=kernel)
    kernel.run(100)
    first = sensor.read()
    assert len({one.tid for one in first}) == 4, "three threads, and the process"
    worker.do("idle", 2)
    sensor.read()
    kernel.run(100)
    last = [one for one in sensor.read() if one.metric == "hitmap.pmu.cycles"]
    assert {one.tid: one.value for one in last}[None] == 3 * 400 + 2 * 200
    assert len(last) == 6
    sensor.close()


def test_without_privilege_the_kernels_part_is_a_gap(worker: Worker) -> None:
    def refuse(event: Opened) -> int:
        return 0 if event.flags & 1 << 5 else errno.EACCES

    kernel = FakeKernel(refuse=refuse)
    sensor = PmuSensor([worker.pid], kernel=kernel)
    kernel.run(10)
    assert sensor.read()
    assert any("CAP_PERFMON" in gap.needs for gap in sensor.gaps())
    assert {row.state for row in support(FakeKernel(refuse=refuse))} <= {State.NO, State.LESS}
    sensor.close()


def test_few_descriptors(worker: Worker) -> None:
    worker.do("idle", 20)
    kernel = FakeKernel(limit=40)
    sensor = PmuSensor([worker.pid], threads=True, kernel=kernel)
    kernel.run(10)
    readings = sensor.read()
    assert {one.tid for one in readings if one.value} > {None}
    assert any("ulimit -n" in gap.needs for gap in sensor.gaps())
    sensor.close()


def test_a_process_that_ends_is_told_once_more(worker: Worker) -> None:
    kernel = FakeKernel()
    sensor = PmuSensor([worker.pid], kernel=kernel)
    kernel.run(10)
    worker.end()
    assert {one.value for one in sensor.read()} == {20}
    assert sensor.read() == []
    assert [gap.why for gap in sensor.gaps()] == ["it exited"]
    assert not kernel.open_now
    sensor.watch([])
    assert sensor.gaps() == []


def test_an_unprivileged_user_is_told_the_truth(root: None) -> None:
    """Where there is no PMU at all, that is said, and not that a privilege is missing."""
    said = child(
        "from probes.pmu.support import support\nfor row in support(): print(row.state, row.needs, sep='|')",
        unprivileged=True,
    )
    for line, row in zip(said.splitlines(), support(), strict=True):
        assert (line.split("|")[0] == "never") is (row.state is State.NEVER)


def test_a_thread_reads_its_own_group() -> None:
    kernel = FakeKernel()
    group = ThreadGroup(kernel)
    assert set(group.metrics) == METRICS
    counters = ThreadCounters(group)
    before = counters.read()
    kernel.run(1000, share=0.5)
    spent = counters.delta(before, counters.read())
    assert spent.pmu == dict.fromkeys(METRICS, 2000.0)
    still = counters.read()
    kernel.run(1000, share=0.0)
    assert counters.delta(still, counters.read()).pmu == dict.fromkeys(METRICS, None)
    assert {event.tid for event in kernel.open_now.values()} == {0}
    group.close()
    group.close()
    assert not kernel.open_now
    assert ThreadCounters(group).read().pmu == ()


def test_a_group_that_is_gone_is_none() -> None:
    kernel = FakeKernel()
    group = ThreadGroup(kernel)
    before = ThreadCounters(group).read()
    kernel.open_now.clear()
    after = ThreadCounters(group).read()
    assert after.pmu is None
    assert ThreadCounters(group).delta(before, after).pmu == {}


def test_the_real_system_call_answers() -> None:
    """An event of no known type: the kernel is asked for real, and says no."""
    with pytest.raises(OSError) as refused:  # noqa: PT011  which errno depends on the kernel
        Syscalls().open(struct.pack("=II", 0xFFFF, 112) + bytes(104), 0, -1)
    assert refused.value.errno
