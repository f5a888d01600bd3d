"""Are the two sides two arms of one time, and which windows do their requests share?"""

from __future__ import annotations

import numpy as np

from analysis.attribution.model import Ints, Side
from analysis.quantiles import Floats

_LOOKS = 60  # windows in which both sides are looked for
_MOST = 0.8  # of the requests of either side must lie in windows that hold both


def interleaved(a: Side, b: Side) -> bool:
    """Whether most requests of each side have requests of the other beside them in time, as in an A/B test."""
    if not a.n or not b.n:
        return False
    # A window shall hold several requests of either, so that an empty one is no chance.
    looks = max(1, min(_LOOKS, min(a.n, b.n) // 5))
    begin, end = span(a, b)
    in_a, in_b = window(a.arrival, begin, end, looks), window(b.arrival, begin, end, looks)
    return bool(looks >= 5 and np.isin(in_a, in_b).mean() >= _MOST and np.isin(in_b, in_a).mean() >= _MOST)


def span(*sides: Side) -> tuple[float, float]:
    """First and last arrival of sides that are not all empty, seconds."""
    arrivals = [side.arrival for side in sides if side.n]
    return min(float(x.min()) for x in arrivals), max(float(x.max()) for x in arrivals)


def window(arrival: Floats, begin: float, end: float, count: int) -> Ints:
    """Which of `count` equal windows between begin and end each arrival (n,) falls into."""
    if end <= begin:
        return np.zeros(len(arrival), np.int64)
    return np.clip(((arrival - begin) * (count / (end - begin))).astype(np.int64), 0, count - 1)
