"""Ratios of sums on both sides, such as a mean time or a share of tokens, and how many sigmas their change is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.attribution.binned import Blocks
from analysis.attribution.certainty.student import ratio, sigmas
from analysis.attribution.model import Resampling
from analysis.quantiles import Floats

Part = tuple[Floats, Floats]
"""Numerators and denominators of some requests (n,)."""


@dataclass(frozen=True, slots=True)
class Ratios:
    """a, b: of the sides, None where there is nothing to divide by. sigmas: of their change, None without intervals."""

    a: float | None
    b: float | None
    sigmas: float | None


def compared(parts: Sequence[Part], of: Sequence[Blocks], resampling: Resampling) -> Ratios:
    """The ratio on A and on B, each with the blocks of its requests."""
    (a, drawn_a), (b, drawn_b) = (_ratio(part, blocks) for part, blocks in zip(parts, of, strict=True))
    change = math.nan if a is None or b is None else b - a
    return Ratios(a, b, sigmas_of(change, drawn_b - drawn_a, resampling))


def sigmas_of(change: float, drawn: Floats, resampling: Resampling) -> float | None:
    """A change in sigmas of its replicates (r,), of which those that know nothing are NaN."""
    known = drawn[np.isfinite(drawn)]
    if resampling.refused or len(known) < 2 or not math.isfinite(change):
        return None
    sigma = resampling.widen * known.std(ddof=1)
    return float(sigmas(ratio(np.array(change), sigma), resampling.degrees))


def _ratio(part: Part, of: Blocks) -> tuple[float | None, Floats]:
    top, bottom = (float(values.sum()) for values in part)
    tops, bottoms = (of.resampled(values)[:, 0] for values in part)
    drawn = np.divide(tops, bottoms, out=np.full(len(tops), np.nan), where=bottoms > 0)
    return top / bottom if bottom > 0 else None, drawn
