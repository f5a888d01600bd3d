"""What a counter would have counted, had it counted all the time. Pure.

A CPU has fewer counters than there are events: the kernel takes turns and says for how long an event was wanted
(enabled) and for how long it counted (running). What is counted in a span of time is scaled by that span's own ratio.
Scaling the total by the total's ratio, as perf stat does at its end, could go back from one reading to the next.
"""

from __future__ import annotations

from typing import NamedTuple


class Raw(NamedTuple):
    """As the kernel gives it. Times in nanoseconds."""

    value: int
    enabled: int
    running: int


ZERO = Raw(0, 0, 0)


def between(before: Raw, after: Raw) -> float | None:
    """Scaled count from one to the other; None where it was wanted and never counted: no data, not 0.

    What goes back (a counter that was reset) counts as nothing.
    """
    running, enabled = after.running - before.running, after.enabled - before.enabled
    if running <= 0:
        return None if enabled > 0 else 0.0
    return max(0, after.value - before.value) * max(1.0, enabled / running)


class Scaled:
    """A total that never goes back. A span without data waits for the next in which the event counted."""

    __slots__ = ("_last", "enabled", "running", "total")

    def __init__(self) -> None:
        self._last, self.total, self.enabled, self.running = ZERO, 0.0, 0, 0

    def update(self, now: Raw) -> None:
        """Takes one reading in."""
        last = self._last
        counted = between(last, now)
        if counted is None:
            return
        self.total += counted
        self.enabled += max(0, now.enabled - last.enabled)
        self.running += max(0, now.running - last.running)
        self._last = now

    def ratio(self, now: Raw) -> float | None:
        """Share of the time in which it counted, with what still waits; None where it was never wanted."""
        enabled = self.enabled + max(0, now.enabled - self._last.enabled)
        return min(1.0, self.running / enabled) if enabled else None
