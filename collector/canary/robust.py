"""Estimates that a few disturbed measurements do not move, with the bounds that ranks alone give. Pure.

Sources: Sen, J. Am. Stat. Assoc. 63 (1968), 1379: the median of pairwise slopes and its bounds by Kendall's statistic;
Hirsch, Slack, Smith, Water Resour. Res. 18 (1982), 107: the same over groups, with slopes taken within a group only, so
that a level which differs between groups (a machine that drifts) does not enter.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

Z_95 = 1.959964
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Estimate:
    """value, and the bounds of its 95 % interval; None where there are too few measurements for one."""

    value: float
    low: float | None
    high: float | None


def median(values: Sequence[float]) -> Estimate:
    """Of at least one value; the bounds are order statistics (sign test)."""
    ordered = sorted(values)
    count = len(ordered)
    tail, below = 0.0, 0
    for k in range(count):
        tail += math.comb(count, k) / 2**count
        if tail > 0.025:
            below = k
            break
    known = below > 0
    return Estimate(
        statistics.median(ordered),
        ordered[below - 1] if known else None,
        ordered[count - below] if known else None,
    )


def slope(groups: Iterable[Sequence[Point]]) -> Estimate | None:
    """Slope of y over x within groups of (x, y); None where no two points of a group differ in x."""
    slopes: list[float] = []
    variance = 0.0
    for group in groups:
        slopes += [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(group, 2) if a[0] != b[0]]
        variance += _kendall_variance([x for x, _ in group])
    if not slopes:
        return None
    slopes.sort()
    reach = Z_95 * math.sqrt(variance)
    low, high = math.floor((len(slopes) - reach) / 2), math.ceil((len(slopes) + reach) / 2)
    known = low >= 1 and high < len(slopes)
    return Estimate(
        statistics.median(slopes), slopes[low - 1] if known else None, slopes[high] if known else None
    )


def _kendall_variance(xs: Sequence[float]) -> float:
    """Of Kendall's statistic without a trend, ties in x taken out."""

    def term(count: int) -> float:
        return count * (count - 1) * (2 * count + 5) / 18

    return term(len(xs)) - sum(term(xs.count(x)) for x in set(xs))


def intercept(points: Iterable[Point], by: float) -> float:
    """The level of a line of slope `by` through the middle of the points."""
    return statistics.median(y - by * x for x, y in points)


@dataclass(frozen=True, slots=True)
class Scale:
    """Times of prompts of one length that were computed and that were held: tells which of both another time is like.

    clear: whether all of one kind lie above all of the other.
    """

    cold_s: float
    warm_s: float
    clear: bool

    @classmethod
    def of(cls, cold: Sequence[float], warm: Sequence[float]) -> Scale:
        """Of at least one time each."""
        return cls(statistics.median(cold), statistics.median(warm), min(cold) > max(warm))

    def place(self, seconds: float) -> float:
        """0 for a time like the held ones', 1 for one like the computed ones'; not bounded."""
        return (seconds - self.warm_s) / (self.cold_s - self.warm_s)
