"""Stretches of time that a trend is shown in: of a round length, beginning at round times, not too many."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from analysis.misses.model import Ints

MOST = 24
_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True)
class Bins:
    """first: microseconds since 1970 at which the first begins; step: their length."""

    first: int
    step: int

    def of(self, times: Ints) -> Ints:
        """Number (n,) of the stretch of each time."""
        return (times - self.first) // self.step

    def begin(self, number: int) -> str:
        """When a stretch begins."""
        return iso(self.first + number * self.step)

    def end(self, number: int) -> str:
        """When it ends."""
        return self.begin(number + 1)


def bins(begin: int, end: int) -> Bins:
    """Stretches for a time from `begin` to `end`, in microseconds."""
    step = next((s for s in _SECONDS if (end - begin) / (s * 1e6) <= MOST), None)
    if step is None:
        step = 86400 * (-(-(end - begin) // (86_400_000_000 * MOST)))
    us = step * 1_000_000
    return Bins(begin // us * us, us)


def iso(us: int) -> str:
    """An ISO time, UTC, of microseconds since 1970."""
    time = datetime.fromtimestamp(us // 1_000_000, UTC)
    return (
        f"{time:%Y-%m-%dT%H:%M:%S}Z"
        if us % 1_000_000 == 0
        else f"{time:%Y-%m-%dT%H:%M:%S}.{us // 1000 % 1000:03}Z"
    )
