"""What the kernel counted for the calling thread: two readings make the cost of what ran between them.

No privilege is needed. One `read` is one getrusage(RUSAGE_THREAD) and one look at the thread's clock, so that it may
stand at every edge of a span.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

Raw = tuple[tuple[int, ...], ...]
"""Counters of the PMU as read, one tuple a group; only the group that gave it can scale it."""


class Group(Protocol):
    """Hardware counters opened by and for the calling thread (probes.pmu.group has one)."""

    def read(self) -> Raw | None:
        """Cheap; None where the counters are gone."""

    def scaled(self, before: Raw, after: Raw) -> Mapping[str, float | None]:
        """What was counted in between, by metric of cachemodel.observed; None where nothing counted."""


class Counts(NamedTuple):
    """Totals of one thread since it began. cpu_ns: by the thread's own clock, since getrusage adds what a running
    thread has used at timer ticks only. pmu: None without hardware counters."""

    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    cpu_ns: int
    pmu: Raw | None = None


class Spent(NamedTuple):
    """What a thread had of each between two readings; pmu: by metric, empty where nothing is counted."""

    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    cpu_ns: int
    pmu: Mapping[str, float | None]


_NOTHING: Mapping[str, float | None] = {}
_THREAD = resource.RUSAGE_THREAD
_getrusage = resource.getrusage
_cpu_ns = time.thread_time_ns
_counts = tuple.__new__  # spares the call in the constructor that NamedTuple writes


class ThreadCounters:
    """Reads the thread that calls. A group must have been opened by that same thread."""

    __slots__ = ("_group",)

    def __init__(self, group: Group | None = None) -> None:
        self._group = group

    def read(self) -> Counts:
        """Totals now. By position, since a struct_rusage is slower by name."""
        used = _getrusage(_THREAD)
        group = self._group
        return _counts(
            Counts,
            (used[6], used[7], used[14], used[15], _cpu_ns(), None if group is None else group.read()),
        )

    def delta(self, before: Counts, after: Counts) -> Spent:
        """What was spent from `before` to `after`, both read on one thread."""
        pmu = _NOTHING
        if self._group is not None and before.pmu is not None and after.pmu is not None:
            pmu = self._group.scaled(before.pmu, after.pmu)
        return Spent(
            after.minor_faults - before.minor_faults,
            after.major_faults - before.major_faults,
            after.voluntary_switches - before.voluntary_switches,
            after.involuntary_switches - before.involuntary_switches,
            after.cpu_ns - before.cpu_ns,
            pmu,
        )


def named(spent: Spent, wall_ns: int) -> Iterator[tuple[str, float]]:
    """As attributes of a span that took so long: the names of cachemodel.observed.SPAN_COUNTERS."""
    yield "hitmap.thread.page_faults.minor", spent.minor_faults
    yield "hitmap.thread.page_faults.major", spent.major_faults
    yield "hitmap.thread.context_switches.voluntary", spent.voluntary_switches
    yield "hitmap.thread.context_switches.involuntary", spent.involuntary_switches
    yield "hitmap.thread.cpu_us", spent.cpu_ns / 1000
    # of two clocks: may be a little below nothing
    yield "hitmap.thread.off_cpu_us", max(0, wall_ns - spent.cpu_ns) / 1000
    for metric, amount in spent.pmu.items():
        if amount is not None:
            yield metric, amount
