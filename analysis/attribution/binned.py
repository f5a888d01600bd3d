"""Quantiles of many resamples at once: values in bins, bins by blocks, and one matrix product for all resamples.

A resample changes how often each block of requests counts, never the requests. With a histogram of every block, the
histograms of r resamples are `counts (r, blocks) @ histogram (blocks, bins)`, and Harrell-Davis needs no more of them
than the mass up to each bin and the mean in it. Bins are fine where the quantile of any resample can lie, log-spaced
there, and one each below and above; they follow the data, so that the unit of the values does not matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from analysis.attribution.model import Ints
from analysis.quantiles import Floats, beta_cdf

BINS = 512
_SIGMAS = 8.0  # of the estimate, that a bin of its own can lie from the quantile
_GRID = 4097
_WIDENINGS = 50
_LITTLE = 1e-9


@dataclass(frozen=True)
class Resampled:
    """An estimate, its replicates (r,) and what a request adds to it by its place.

    at, influence: (g,), a rising line: where a request of weight 1 / n moves from t to s, the estimate moves by
    (influence(s) - influence(t)) / n, to first order; beyond its ends the line is flat. Empty for the mean, where each
    move counts in full.
    """

    value: float
    replicates: Floats
    at: Floats
    influence: Floats

    def moved(self, start: Floats, by: Floats) -> Floats:
        """By how much each of some requests moves the estimate, times n, when it goes from `start` (n,) by `by`."""
        if not len(self.at):
            return by
        return np.interp(start + by, self.at, self.influence) - np.interp(start, self.at, self.influence)


@dataclass(frozen=True)
class Blocks:
    """Resamples of one side. of: the block of each request (n,); counts: how often each block is in each resample
    (r, blocks)."""

    of: Ints
    counts: Floats

    def subset(self, rows: Ints) -> Blocks:
        """Some of the requests."""
        return Blocks(self.of[rows], self.counts)

    def sums(self, values: Floats | None, bins: Ints | None = None, size: int = 1) -> Floats:
        """Sums of `values` (n,) (None: how many) in each block and bin (blocks, size)."""
        blocks = self.counts.shape[1]
        cell = self.of if bins is None else self.of * size + bins
        counted = np.bincount(cell, values, minlength=blocks * size)
        return counted.astype(np.float64, copy=False).reshape(blocks, size)

    def resampled(self, values: Floats | None, bins: Ints | None = None, size: int = 1) -> Floats:
        """The same in each resample (r, size)."""
        return self.counts @ self.sums(values, bins, size)


@dataclass(frozen=True)
class _RankMass:
    """The Beta's distribution function on a grid of ranks, for many ranks at once."""

    grid: Floats
    mass: Floats

    def upto(self, rank: Floats) -> Floats:
        return np.interp(rank, self.grid, self.mass)

    def density(self, rank: Floats) -> Floats:
        slopes = np.gradient(self.mass, self.grid)
        return np.interp(rank, self.grid, slopes, left=0.0, right=0.0)


@dataclass(frozen=True)
class Histogram:
    """n values in bins. edges: (e,) rising, for e + 1 bins; rows: requests not below the first edge; bins: of these;
    mass: of all bins, of the set itself first and then of each resample, (1 + r, e + 1); share: what each bin counts
    for in the quantile, likewise."""

    edges: Floats
    rows: Ints
    bins: Ints
    mass: Floats
    share: Floats
    rank: _RankMass

    def of(self, parts: Floats, blocks: Blocks) -> Floats:
        """The mean of `parts` (n,) at the quantile, of the set itself and of each resample (1 + r,)."""
        sums = _table(parts, self.rows, self.bins, self.mass.shape[1], blocks)
        means = np.divide(sums, self.mass, out=np.zeros_like(sums), where=self.mass > 0)
        return np.asarray((self.share * means).sum(axis=1))


def histogram(values: Floats, q: float, blocks: Blocks, weights: Floats | None = None) -> Histogram:
    """Of values (n,), fine about their q-quantile; weights (n,), not negative."""
    edges = _edges(values, q, blocks, weights)
    rows = np.flatnonzero(values >= edges[0])
    bins = _bin(values[rows], edges)
    mass = _table(weights, rows, bins, len(edges) + 1, blocks)
    rank = _rank_mass(q, effective_size(len(values), weights))
    upto = np.cumsum(mass, axis=1)
    share = np.diff(rank.upto(upto / upto[:, -1:]), axis=1, prepend=0.0)
    return Histogram(edges, rows, bins, mass, share / share.sum(axis=1, keepdims=True), rank)


def _table(values: Floats | None, rows: Ints, bins: Ints, size: int, blocks: Blocks) -> Floats:
    """Sums of `values` (n,) (None: how many) in each bin, (1 + r, size): some `rows` in their bins, the others, for a
    high quantile nearly all, in the first one."""
    table = blocks.subset(rows).sums(None if values is None else values[rows], bins, size)
    table[:, 0] += blocks.sums(values)[:, 0] - table.sum(axis=1)
    return np.vstack([table.sum(axis=0), blocks.counts @ table])


def resampled(values: Floats, q: float | None, blocks: Blocks, weights: Floats | None = None) -> Resampled:
    """The q-quantile (None: the mean) of `values` (n,) by weighted Harrell-Davis, within 0.1 % of `hd_quantile`, and of
    the resamples. weights: (n,), not negative. Kish's effective size is that of the set itself, in resamples, too."""
    if q is None:
        return _mean(values, blocks, weights)
    found = histogram(values, q, blocks, weights)
    whole, weighted = found.mass[0], values if weights is None else weights * values
    inside = np.bincount(found.bins, weighted[found.rows], minlength=len(whole))
    inside[0] += weighted.sum() - inside.sum()
    estimates = found.share @ np.divide(inside, whole, out=np.zeros_like(inside), where=whole > 0)
    return Resampled(float(estimates[0]), estimates[1:], found.edges, _influence(found))


def effective_size(n: int, weights: Floats | None) -> float:
    """Kish's: how many equally weighted observations these are worth."""
    return float(n) if weights is None else float(weights.sum() ** 2 / (weights**2).sum())


def _mean(values: Floats, blocks: Blocks, weights: Floats | None) -> Resampled:
    weighted = values if weights is None else weights * values
    mass = len(values) if weights is None else weights.sum()
    replicates = blocks.resampled(weighted)[:, 0] / blocks.resampled(weights)[:, 0]
    return Resampled(float(weighted.sum() / mass), replicates, np.empty(0), np.empty(0))


@lru_cache(maxsize=64)
def _rank_mass(q: float, n: float) -> _RankMass:
    reach = 12 * _sigma(q, n)
    grid = np.linspace(max(0.0, q - reach), min(1.0, q + reach), _GRID)
    return _RankMass(grid, beta_cdf(grid, (n + 1) * q, (n + 1) * (1 - q)))


def _sigma(q: float, n: float) -> float:
    return math.sqrt(q * (1 - q) / (n + 2))


def _edges(values: Floats, q: float, blocks: Blocks, weights: Floats | None) -> Floats:
    """Edges of the bins: from and to where the quantile of the set or of a resample can lie."""
    n = len(values)
    reach = _SIGMAS * _sigma(q, effective_size(n, weights))
    everything = _sums(weights, np.arange(n), blocks)
    low, high = q - reach, q + reach
    for _ in range(_WIDENINGS):
        first, last = _row(low, n), _row(high, n)
        ends = np.partition(values, [first, last])[[first, last]]
        below, upto = (
            1 - _sums(weights, np.flatnonzero(beyond), blocks) / everything
            for beyond in (values >= ends[0], values > ends[1])
        )
        too_high = float(below.max()) - (q - reach) if first > 0 else 0.0
        too_low = (q + reach) - float(upto.min()) if last < n - 1 else 0.0
        if too_high <= 0 and too_low <= 0:
            break
        low, high = low - 1.5 * max(too_high, 0.0), high + 1.5 * max(too_low, 0.0)
    if last - first + 1 < BINS:
        return _single(np.unique(values[(values >= ends[0]) & (values <= ends[1])]), values)
    return _spaced(float(ends[0]), float(ends[1]), values)


def _sums(weights: Floats | None, rows: Ints, blocks: Blocks) -> Floats:
    """How much some rows weigh, in the set and in its resamples, (1 + r,)."""
    sums = blocks.subset(rows).sums(None if weights is None else weights[rows])[:, 0]
    return np.concatenate([[sums.sum()], blocks.counts @ sums])


def _row(rank: float, n: int) -> int:
    return min(n - 1, max(0, round(rank * n)))


def _single(few: Floats, values: Floats) -> Floats:
    """A bin each for a few distinct values, rising."""
    size = abs(few[-1]) or float(np.abs(values).max())
    return np.append(few, few[-1] + _LITTLE * size)


def _spaced(low: float, high: float, values: Floats) -> Floats:
    """The last edge is a little above `high`, so that what is beyond it is not in one bin with it."""
    if not high > low:
        return _single(np.array([low]), values)
    if low > 0:
        return np.geomspace(low, high * (1 + _LITTLE), BINS + 1)
    return np.linspace(low, high + _LITTLE * (high - low), BINS + 1)


def _bin(values: Floats, edges: Floats) -> Ints:
    """As np.searchsorted(edges, values, side="right"), by arithmetic. A value within rounding of an edge can be on its
    other side, which changes nothing: bins keep their means."""
    if len(edges) != BINS + 1:  # not evenly spaced
        return np.searchsorted(edges, values, side="right")
    low, high = edges[0], edges[-1]
    if low > 0:
        place = np.maximum(values, low * 0.5)
        np.log(place, out=place)
        place -= math.log(low)
        place *= (len(edges) - 1) / math.log(high / low)
    else:
        place = values - low
        place *= (len(edges) - 1) / (high - low)
    np.clip(place, -1.0, len(edges) - 1.0, out=place)
    return np.asarray(np.floor(place, out=place).astype(np.int64) + 1)


def _influence(found: Histogram) -> Floats:
    """The integral of the Harrell-Davis density at the rank of each value, from the lowest edge on."""
    upto = np.cumsum(found.mass[0]) / found.mass[0].sum()
    middle = (upto[:-2] + upto[1:-1]) / 2
    return np.concatenate(([0.0], np.cumsum(found.rank.density(middle) * np.diff(found.edges))))
