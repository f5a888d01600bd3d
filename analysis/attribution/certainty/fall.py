"""By how much a quantile or the mean of the same requests fell when they were served again in another way.

Both servings are cut into the same blocks of time and drawn together, so that what load does to both cancels; spread
and widening are those of every interval (resampling.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.attribution.binned import Blocks, resampled
from analysis.attribution.certainty.resampling import resampling
from analysis.attribution.certainty.student import TWO_SIDED_95, student
from analysis.attribution.model import Side
from analysis.interval import Interval
from analysis.quantiles import hd_quantile

FEWEST = 20
"""Requests of either serving: of fewer, no blocks of time can be cut."""


def fall(
    before: Side, after: Side, q: float | None, rng: np.random.Generator, sigma: float = 0.0
) -> tuple[Interval, float]:
    """How much smaller the q-quantile (None: the mean) of `after` is, ms, and what it is in `before`.

    after: requests that stand at the same times as those of `before`; the first ones of both are brought together.
    sigma: of what else the difference is uncertain by, ms.
    """
    shift = before.arrival.min() - after.arrival.min()
    after = replace(after, arrival=after.arrival + shift, begin=after.begin + shift, end=after.end + shift)
    if min(before.n, after.n) < FEWEST:
        was, becomes = (
            float(one.totals.mean()) if q is None else hd_quantile(one.totals, q) for one in (before, after)
        )
        return Interval(was - becomes, None, None), was
    drawn = resampling(before, after, rng, paired=True)
    first = resampled(before.totals, q, Blocks(drawn.block_a, drawn.counts_a))
    second = resampled(after.totals, q, Blocks(drawn.block_b, drawn.counts_b))
    value = first.value - second.value
    if drawn.refused:
        return Interval(value, None, None), first.value
    spread = float((first.replicates - second.replicates).std(ddof=1)) * drawn.widen
    half = float(np.hypot(student(TWO_SIDED_95, drawn.degrees) * spread, TWO_SIDED_95 * sigma))
    return Interval(value, value - half, value + half), first.value
