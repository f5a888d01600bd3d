"""What one thread spent, and nobody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from probes.kernel.thread import Counts, Raw, ThreadCounters
from tests.probes.kernel.worker import pages, read

PAGES = 2000


def test_faults_are_the_threads_own() -> None:
    counters = ThreadCounters()
    before = counters.read()
    other = threading.Thread(target=read, args=(PAGES,))
    other.start()
    other.join()
    between = counters.read()
    read(PAGES)
    after = counters.read()
    assert counters.delta(before, between).minor_faults < PAGES / 4
    assert PAGES <= counters.delta(between, after).minor_faults < PAGES + 200
    assert counters.delta(before, after).pmu == {}


def test_a_wait_is_a_voluntary_switch_and_no_cpu_time() -> None:
    counters = ThreadCounters()
    before = counters.read()
    time.sleep(0.05)
    spent = counters.delta(before, counters.read())
    assert spent.voluntary_switches >= 1
    assert spent.cpu_ns < 50_000_000


def test_cpu_time_is_the_threads_clock() -> None:
    counters = ThreadCounters()
    before, clock = counters.read(), time.thread_time()
    memory = pages(64)
    while time.thread_time() - clock < 0.1:
        memory[::4096]
    after, took = counters.read(), time.thread_time() - clock
    spent = counters.delta(before, after)
    assert abs(spent.cpu_ns / 1e9 - took) < 0.01


def test_cpu_time_is_told_between_two_ticks_of_the_kernel() -> None:
    """getrusage alone would say nothing, or a whole tick."""
    counters = ThreadCounters()
    for _ in range(20):
        before, clock = counters.read(), time.thread_time_ns()
        while (took := time.thread_time_ns() - clock) < 300_000:
            pass
        assert took <= counters.delta(before, counters.read()).cpu_ns < took + 1_000_000


class Doubling:
    """A group whose counts are what they are, twice."""

    def read(self) -> Raw | None:
        return ((1, 1, 7),)

    def scaled(self, before: Raw, after: Raw) -> Mapping[str, float | None]:
        return {"hitmap.pmu.cycles": (after[0][2] - before[0][2]) * 2.0}


def test_a_group_is_read_and_scales_its_own() -> None:
    counters = ThreadCounters(Doubling())
    before = counters.read()
    assert before.pmu == ((1, 1, 7),)
    assert counters.delta(before, before._replace(pmu=((2, 2, 12),))).pmu == {"hitmap.pmu.cycles": 10.0}
    assert counters.delta(before._replace(pmu=None), before).pmu == {}


@given(st.lists(st.integers(0, 1 << 40), min_size=8, max_size=8))
def test_delta_is_what_was_added(numbers: list[int]) -> None:
    first = Counts(*numbers[:4], 1000)
    last = Counts(*(one + more for one, more in zip(first[:4], numbers[4:], strict=True)), 1500)
    spent = ThreadCounters().delta(first, last)
    assert list(spent[:4]) == numbers[4:]
    assert spent.cpu_ns == 500
