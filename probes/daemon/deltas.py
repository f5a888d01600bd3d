"""Totals that sensors read, made into points that say what was counted from when to when.

Delta temporality: a point stands for itself, so that one that is lost costs its own window and no more, and whoever
joins points with requests needs no point before. What did not change is told once a second, with its whole window:
nothing was counted then, and that is not the same as nothing known. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import nan
from typing import NamedTuple

from cachemodel.observed import BY_NAME
from probes.reading import Reading

QUIET_NS = 1_000_000_000
"""The longest window of a point in which nothing changed."""

_Key = tuple[str, str, int | None, int | None, tuple[tuple[str, str], ...]]


class Point(NamedTuple):
    """start_ns, end_ns: Unix nanoseconds; equal for a gauge. value: of a counter what it grew by."""

    reading: Reading
    start_ns: int
    end_ns: int
    value: float


@dataclass(slots=True)
class _Series:
    """value: the total at seen_ns. told_ns: until when it was told."""

    value: float
    seen_ns: int
    told_ns: int


class Deltas:
    """The series of one sensor. began_ns: when it began to count: all its totals were 0 then.

    lost: readings that could not be told, by why: `went_back` (a total that fell: what was counted since is not known),
    `clock_went_back` (the wall clock was set: from when to when is not known), `unknown_metric`.
    """

    def __init__(self, began_ns: int) -> None:
        self.lost: Counter[str] = Counter()
        self._series: dict[_Key, _Series] = {}
        self._read_ns = began_ns

    def take(self, readings: Iterable[Reading], now_ns: int) -> list[Point]:
        """All that a sensor knows now, as points. What it knows no more (a process that exited, a thread) is forgotten;
        a number of the host, or of a process that is there, that is not told this time, goes on when it is again."""
        if now_ns < self._read_ns:
            self._rebase(now_ns)
        points: list[Point] = []
        seen: dict[_Key, _Series] = {}
        for reading in readings:
            metric = BY_NAME.get(reading.metric)
            if metric is None:
                self.lost["unknown_metric"] += 1
                continue
            key = (reading.metric, reading.source, reading.pid, reading.tid, reading.attributes)
            counts = metric.kind == "counter"
            # one that is new to us is new: its sensor had nothing to count before. No gauge equals NaN.
            series = self._series.pop(key, None) or _Series(
                0.0 if counts else nan, self._read_ns, self._read_ns
            )
            points += (self._counter if counts else self._gauge)(reading, series, now_ns)
            seen[key] = series
        pids = {None, *(pid for _, _, pid, _, _ in seen)}
        for key, series in self._series.items():
            if key[3] is None and key[2] in pids:
                seen[key] = series
        self._series, self._read_ns = seen, now_ns
        return points

    def _rebase(self, now_ns: int) -> None:
        """Begin anew: what was counted between the last reading and this one has no window, and is lost."""
        self.lost["clock_went_back"] += len(self._series)
        self._read_ns = now_ns
        for series in self._series.values():
            series.seen_ns = series.told_ns = now_ns

    def _counter(self, reading: Reading, series: _Series, now_ns: int) -> Iterator[Point]:
        grown = reading.value - series.value
        if grown < 0:
            self.lost["went_back"] += 1
            series.told_ns = now_ns
        elif grown > 0:
            if series.told_ns < series.seen_ns:
                yield Point(reading, series.told_ns, series.seen_ns, 0.0)
            if series.seen_ns < now_ns:  # a point without a window says nothing
                yield Point(reading, series.seen_ns, now_ns, grown)
            series.told_ns = now_ns
        elif now_ns - series.told_ns >= QUIET_NS:
            yield Point(reading, series.told_ns, now_ns, 0.0)
            series.told_ns = now_ns
        series.value, series.seen_ns = reading.value, now_ns

    def _gauge(self, reading: Reading, series: _Series, now_ns: int) -> Iterator[Point]:
        if reading.value != series.value or now_ns - series.told_ns >= QUIET_NS:
            yield Point(reading, now_ns, now_ns, reading.value)
            series.told_ns = now_ns
        series.value, series.seen_ns = reading.value, now_ns
