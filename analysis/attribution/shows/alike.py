"""Whether a mechanism differs between the sides at all, or only by which requests happened to come.

Two samples of one mechanism are never the same, and at a high quantile what they differ by is milliseconds. So the
distributions of both sides are compared before anything is swapped: within each stratum and over all of them, at ranks
that are closer together towards both ends, each difference in sigmas of its own block-bootstrap replicates. Told apart
is a mechanism whose largest difference is one that resamples of one and the same mechanism pass in 1 % of cases (max-t:
Westfall and Young, Resampling-Based Multiple Testing, 1993).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.attribution.binned import Blocks
from analysis.attribution.certainty.student import sigmas
from analysis.attribution.model import Ints
from analysis.attribution.shows.transport import KNOTS, ranks_at_knots
from analysis.quantiles import Floats

LEVEL = 0.01
_FEWEST = 5  # requests of each side beyond a rank at which they are compared
_INNER = KNOTS[1:-1]


@dataclass(frozen=True)
class Sample:
    """Values (n,) of one side in strata (n,), numbered from 0."""

    values: Floats
    stratum: Ints
    blocks: Blocks


Pair = tuple[Sample, Sample, int]
"""One number of both sides' requests, and how many strata it is compared in."""


def told_apart(compared: Sequence[Pair], degrees: float = math.inf) -> bool:
    """Whether any of some numbers differs between the sides by more than chance. Without resamples everything does.
    degrees: of freedom of a spread over the blocks."""
    found = np.concatenate([_sigmas(*pair) for pair in compared], axis=1)
    if len(found) < 3:
        return True
    largest = np.abs(found).max(axis=1, initial=0.0)
    return bool(sigmas(largest[0], degrees) > np.quantile(largest[1:], 1 - LEVEL))


def _sigmas(a: Sample, b: Sample, strata: int) -> Floats:
    """How much more of B than of A is below each rank, in sigmas, and how much resamples vary about that (1 + r, c)."""
    cuts = _cuts(a, b, strata)
    size = [np.bincount(of.stratum, minlength=strata) for of in (a, b)]
    upto = [_upto(of, cuts) for of in (a, b)]
    weight = (size[0] + size[1]) / max(1, len(a.values) + len(b.values))
    # all strata as one, too: what is a little in each of them is much in all
    upto = [np.concatenate([u, (weight @ u)[:, None]], axis=1) for u in upto]
    size = [np.append(s, s.sum()) for s in size]
    apart = upto[1] - upto[0]
    apart[1:] -= apart[0]
    spread = apart[1:].std(axis=0) if len(apart) > 1 else np.zeros_like(apart[0])
    middle = (upto[0][0] + upto[1][0]) / 2
    fewest = np.minimum(*size)[:, None] * np.minimum(middle, 1 - middle)
    told = (fewest >= _FEWEST) & (spread > 0)
    return np.asarray(apart[:, told] / spread[told])


def _cuts(a: Sample, b: Sample, strata: int) -> list[Floats]:
    """Of each stratum, the values at the ranks of both sides together."""
    values, stratum = (np.concatenate([getattr(of, name) for of in (a, b)]) for name in ("values", "stratum"))
    by_value = values[np.lexsort((values, stratum))]
    parts = np.split(by_value, np.cumsum(np.bincount(stratum, minlength=strata))[:-1])
    return [
        part[(_INNER * len(part)).astype(np.int64)] if len(part) else np.zeros(len(_INNER)) for part in parts
    ]


def _upto(of: Sample, cuts: list[Floats]) -> Floats:
    """The share below each cut of each stratum, of the side and of its resamples (1 + r, strata, cuts)."""
    parts = len(_INNER) + 1
    part = np.empty(len(of.values), dtype=np.int64)
    for s, cut in enumerate(cuts):
        here = np.flatnonzero(of.stratum == s)
        part[here] = s * parts + np.searchsorted(cut, of.values[here], side="right")
    sums = of.blocks.sums(None, part, len(cuts) * parts)
    mass = np.vstack([sums.sum(axis=0), of.blocks.counts @ sums])
    return ranks_at_knots(mass, len(cuts))[..., 1:-1]
