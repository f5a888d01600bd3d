"""The interval of any figure of two sets of requests, from the resamples that all of a comparison shares.

What is read for one purpose may be thinned for another; blocks are stretches of time, so that every request has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.attribution.binned import Blocks
from analysis.attribution.certainty.student import TWO_SIDED_95, student
from analysis.attribution.model import Ints, Resampling, Side
from analysis.quantiles import Floats


@dataclass(frozen=True)
class Drawn:
    """a, b: the resamples of the requests of both sides; degrees, widen, refused: as in Resampling."""

    a: Blocks
    b: Blocks
    degrees: float
    widen: float
    refused: str

    def half(self, replicates: Floats, of: Sequence[Blocks]) -> float:
        """Half the width of the 95 % interval of a figure with these replicates (r,), in its unit; NaN where fewer than
        two are known. of: the resamples that it was made of."""
        known = replicates[np.isfinite(replicates)]
        if len(known) < 2:
            return float("nan")
        # of one side alone there are no more degrees of freedom than it has blocks
        few = self.degrees if len(of) > 1 else min(self.degrees, max(1.0, of[0].counts.shape[1] - 1.0))
        return student(TWO_SIDED_95, few) * self.widen * float(known.std(ddof=1))


def drawn_for(resampling: Resampling, sides: tuple[Side, Side], arrivals: tuple[Floats, Floats]) -> Drawn:
    """The resamples of `sides` for requests that arrived at `arrivals` (n,), seconds: each in the block of its time."""
    blocks = (resampling.block_a, resampling.block_b)
    at = [_block(block, side, times) for block, side, times in zip(blocks, sides, arrivals, strict=True)]
    return Drawn(
        Blocks(at[0], resampling.counts_a),
        Blocks(at[1], resampling.counts_b),
        resampling.degrees,
        resampling.widen,
        resampling.refused,
    )


def _block(block: Ints, side: Side, arrival: Floats) -> Ints:
    """The block of the last request of the side before each arrival, of the first where there is none."""
    if not side.n:
        return np.zeros(len(arrival), np.int64)
    return block[np.maximum(np.searchsorted(side.arrival, arrival, side="right") - 1, 0)]
