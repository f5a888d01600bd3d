"""What a law gets wrong along computed tokens, and with it the shares of a layer and of what changed its tokens.

A layer's strata make up for what its law is off there on average, not for how it bends within one. Where hits fell, a
stratum of what the law expects holds longer prompts on one side and more computed tokens on the other: if the law is
off in that direction, times of the one are lent to the other and differ though nothing became slower. How much is seen
on each side by itself: what its requests are off their own law, by computed tokens within the stratum, weighted by how
much more of these the other side has.
"""

from __future__ import annotations

import numpy as np

from analysis.attribution.model import Ints
from analysis.attribution.shows.learned import Common, Learned
from analysis.attribution.shows.strata import COMPUTED
from analysis.quantiles import Floats, hd_observation_weights

_MOST = 2**15  # requests of a side that are looked at
_CELLS = 8  # of computed tokens, in a stratum


def misfits(common: Common, a: Learned, b: Learned, q: float | None) -> Floats:
    """By how much each layer (k,) can be wrong at the q-quantile (None: the mean), ms, beyond what chance gives."""
    looked = [_Looked(of, q) for of in (a, b)]
    return np.array([_misfit(common, looked, i) for i in range(len(common.layers))])


def taken_in(replicates: Floats, values: Floats, change: float, of: Floats, given: Floats) -> Floats:
    """Replicates (r, m) of shares (m,) of a change, that know of such errors `of` (m,) of the layers, which what the
    layers are `given` (m,; 1 or 0) has with the other sign, each by its part of these shares. With the sides exchanged
    all of it has the other sign: that of the change, since all shares can be 0."""
    draws = np.random.default_rng(0).standard_normal((len(replicates), len(values)))
    draws *= np.copysign(1.0, change)
    if len(draws) < 2:
        return replicates
    errors = (draws - draws.mean(axis=0)) / draws.std(axis=0, ddof=1) * of
    parts = np.abs(values) * given
    back = parts / parts.sum() if parts.any() else parts
    return np.asarray(replicates + errors - errors.sum(axis=1)[:, None] * back)


class _Looked:
    """Some requests of one side, and how much each counts at the quantile (n,)."""

    def __init__(self, of: Learned, q: float | None) -> None:
        self.of, self.rows = of, np.sort(of.lots.order[:_MOST])
        self.terms, self.group = of.terms[:, self.rows], of.told.group[self.rows]
        totals = np.sum([layer.times[self.rows] for layer in of.layers], axis=0)
        self.counts = (
            np.full(len(totals), 1 / len(totals)) if q is None else hd_observation_weights(totals, q)
        )

    def off(self, i: int) -> Floats:
        """How far its requests are off the layer's law, ms; NaN where they did not pass it."""
        layer = self.of.layers[i]
        times = layer.times[self.rows]
        passed = np.full(len(times), True) if layer.signed else times > 0
        return np.where(passed, times - layer.law.line(self.terms, self.group), np.nan)


def _misfit(common: Common, looked: list[_Looked], i: int) -> float:
    score = common.scores[i]
    strata = [score(one.terms, one.group) for one in looked]
    offs = [one.off(i) for one in looked]
    known = [np.isfinite(off) for off in offs]
    if not all(one.any() for one in known):
        return 0.0
    tokens = [one.terms[COMPUTED][here] for one, here in zip(looked, known, strict=True)]
    cells = _cells(tokens, [s[here] for s, here in zip(strata, known, strict=True)], score.count)
    sides = [
        _by_cell(cell, off[here], score.count) for cell, off, here in zip(cells, offs, known, strict=True)
    ]
    weights = np.mean(
        [np.bincount(s, one.counts, minlength=score.count) for s, one in zip(strata, looked, strict=True)],
        axis=0,
    )
    apart = sides[1][0] - sides[0][0]
    wrong = [(apart * mean).sum(axis=1) ** 2 - (apart**2 * noise).sum(axis=1) for _, mean, noise in sides]
    return float(np.mean([np.sqrt(max(0.0, float(weights @ one))) for one in wrong]))


def _cells(tokens: list[Floats], strata: list[Ints], count: int) -> list[Ints]:
    """The cell of each request of both sides: its stratum's number times _CELLS and its place there by tokens. Equal
    ones are in one cell, or which side comes first would decide."""
    both, stratum = np.concatenate(tokens), np.concatenate(strata)
    order = np.lexsort((both, stratum))
    size = np.bincount(stratum, minlength=count)
    start = np.concatenate(([0], np.cumsum(size)[:-1]))
    new = np.diff(both[order], prepend=np.nan) != 0
    new[start[size > 0]] = True
    first = np.flatnonzero(new)
    middle = first + np.diff(first, append=len(both)) // 2
    place = np.empty(len(both), dtype=np.int64)
    place[order] = middle[np.cumsum(new) - 1] - np.repeat(start, size)
    cell = stratum * _CELLS + place * _CELLS // size[stratum]
    return np.split(cell, [len(tokens[0])])


def _by_cell(cell: Ints, off: Floats, count: int) -> tuple[Floats, Floats, Floats]:
    """Of one side: the part of its stratum in each cell, the mean there and the squared error of that (count, _CELLS)
    each. A cell with fewer than two has the mean of the stratum, and no error."""

    def sums(values: Floats | None) -> Floats:
        return np.bincount(cell, values, minlength=count * _CELLS).reshape(count, _CELLS).astype(np.float64)

    size, total, squares = sums(None), sums(off), sums(off * off)
    whole = size.sum(axis=1, keepdims=True)
    middle = total.sum(axis=1, keepdims=True) / np.maximum(whole, 1)
    mean = np.where(size > 1, total / np.maximum(size, 1), middle)
    noise = np.maximum(squares / np.maximum(size, 1) - mean**2, 0.0) / np.maximum(size - 1, 1)
    return size / np.maximum(whole, 1), mean, np.where(size > 1, noise, 0.0)
