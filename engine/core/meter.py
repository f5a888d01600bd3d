"""What the core's thread spends on a request: page faults, switches and CPU time of the work that was its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import NamedTuple

from engine.core.sequence import Sequence
from probes.kernel.thread import Counts, Group, ThreadCounters, named
from probes.pmu.group import ThreadGroup


class Mark(NamedTuple):
    """Where a piece of work began; began_ns: of a clock that never goes back."""

    counts: Counts
    began_ns: int


class Meter:
    """Called on the core's thread alone: what others do beside it (the front end, workers of torch) is not in it.

    group: opens the thread's hardware counters at its first reading; None where they are not counted.
    """

    def __init__(self, group: Callable[[], Group | None] | None = None) -> None:
        self._open = group
        self._counters = ThreadCounters()

    def mark(self) -> Mark:
        """Begin a piece of work."""
        if self._open is not None:
            self._counters, self._open = ThreadCounters(self._open()), None
        return self._now()

    def charge(self, mark: Mark, sequence: Sequence) -> None:
        """What came since was the work of one request: it goes to its open interval."""
        timeline = sequence.request.timeline
        for name, amount in self._since(mark):
            timeline.spend(name, amount)

    def share(self, mark: Mark, works: Items[tuple[Sequence, int]]) -> None:
        """It was that of several, with so many tokens each: each has its part of it."""
        spent, tokens = self._since(mark), sum(tokens for _, tokens in works)
        for sequence, own in works:
            for name, amount in spent:
                sequence.request.timeline.spend(name, amount * own / tokens)

    def _since(self, mark: Mark) -> list[tuple[str, float]]:
        now = self._now()
        spent = self._counters.delta(mark.counts, now.counts)
        return list(named(spent, now.began_ns - mark.began_ns))

    def _now(self) -> Mark:
        return Mark(self._counters.read(), time.monotonic_ns())


def cpu_counters() -> Group | None:
    """Caches and TLB as the calling thread uses them; None where this CPU does not count them for us."""
    group = ThreadGroup()
    return group if group.metrics else None
