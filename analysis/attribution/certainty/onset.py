"""When did it begin? One change of the mean of each layer's time and each token source's share.

Medians of short windows (for shares: ratios of sums) are searched for the split into two levels that explains most
(least squares, the CUSUM statistic). What is left beside the step, drawn again in blocks, says how large the statistic
gets without a step (the confidence) and how far the time moves with one (its bounds).

Sources: Page, Biometrika 41 (1954); Antoch and Huskova (2001) and Huskova and Kirch (2008) for the resampling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.attribution.certainty.pairing import interleaved, span, window
from analysis.attribution.certainty.resampling import memory_length, widening
from analysis.attribution.model import Ints, Onset, Side
from analysis.misses.bins import iso
from analysis.quantiles import Floats

FAMILY_WISE = 0.05
"""How often any onset is told of where there is none."""
_BINS = 120
_FEWEST_BINS = 20
_LOOKED_AT = 100_000  # requests a side, evenly spaced
_EDGE = 3  # windows on either side of a step, for it to be a step and not an outlier
_NEAR = 0.1  # of the time looked at: how long before an onset a deploy may lie
_NEAR_S = 600.0
"""and at least this long."""

Deploys = Sequence[tuple[float, str]]
"""Deploy markers: seconds and a name."""


def onsets(
    a: Side, b: Side, deploys: Deploys, rng: np.random.Generator | None = None, rounds: int = 1000
) -> list[Onset]:
    """Where layers and token sources of A and then B step, the surest first; none for two arms of one time."""
    if not a.n or not b.n or interleaved(a, b):
        return []
    rng = rng or np.random.default_rng(0)
    a, b = (side.subset(np.arange(0, side.n, -(-side.n // _LOOKED_AT))) for side in (a, b))
    begin, end = span(a, b)
    at = [window(side.arrival, begin, end, min(_BINS, (a.n + b.n) // 5 or 1)) for side in (a, b)]
    bins = np.concatenate(at)
    times = _Times.of(np.concatenate((a.arrival, b.arrival)), bins)
    found = []
    series_of = _series(a, b, bins, times.windows)
    sure = 1 - FAMILY_WISE / len(series_of)
    for name, unit, series in series_of:
        known = np.isfinite(series)
        step = _step(series[known], rng, rounds) if known.sum() >= _FEWEST_BINS else None
        if step and step.confidence >= sure:
            found.append(_onset(name, unit, step, times.only(known), deploys))
    return sorted(found, key=lambda onset: -onset.confidence)


@dataclass(frozen=True, slots=True)
class _Times:
    """Windows that hold requests: their numbers, and the first and last arrival in each, seconds."""

    windows: Ints
    first: Floats
    last: Floats

    @staticmethod
    def of(arrival: Floats, bins: Ints) -> _Times:
        order = np.lexsort((arrival, bins))
        windows, starts = np.unique(bins[order], return_index=True)
        sorted_ = arrival[order]
        return _Times(windows, sorted_[starts], sorted_[np.append(starts[1:], len(order)) - 1])

    def only(self, rows: np.ndarray) -> _Times:
        return _Times(self.windows[rows], self.first[rows], self.last[rows])


@dataclass(frozen=True, slots=True)
class _Step:
    """at: how many windows lie before it; low, high: bounds of that; size: after minus before."""

    at: int
    low: int
    high: int
    size: float
    confidence: float


def _series(a: Side, b: Side, bins: Ints, windows: Ints) -> list[tuple[str, str, Floats]]:
    """Name, unit and level of each window (w,), of the total, layers and token sources that both sides tell of."""
    found = [("total", "ms", _medians(np.concatenate((a.totals, b.totals)), bins, windows))]
    for layer in (name for name in a.layers if name in b.layers):
        values = np.concatenate((a.time(layer), b.time(layer)))
        found.append((layer, "ms", _medians(values, bins, windows)))
    prompt = np.concatenate((a.prompt, b.prompt))
    for source in (name for name in a.sources if name in b.sources):
        tokens = np.concatenate([side.tokens[side.sources.index(source)] for side in (a, b)])
        found.append((source, "share of prompt tokens", _shares(tokens, prompt, bins)[windows]))
    return found


def _medians(values: Floats, bins: Ints, windows: Ints) -> Floats:
    """By window, NaN where nothing is known: the values sorted within windows, the middle ones picked."""
    known = np.isfinite(values)
    order = np.lexsort((values[known], bins[known]))
    sorted_ = values[known][order]
    n = np.bincount(bins[known], minlength=int(windows.max()) + 1)
    start = np.cumsum(n) - n
    filled = np.flatnonzero(n)
    level = np.full(len(n), np.nan)
    low, high = start[filled] + (n[filled] - 1) // 2, start[filled] + n[filled] // 2
    level[filled] = (sorted_[low] + sorted_[high]) / 2
    return level[windows]


def _shares(tokens: Floats, prompt: Floats, bins: Ints) -> Floats:
    known = np.isfinite(tokens) & np.isfinite(prompt)
    size = int(bins.max()) + 1
    top, bottom = (np.bincount(bins[known], of[known], minlength=size) for of in (tokens, prompt))
    return np.asarray(np.divide(top, bottom, out=np.full(size, np.nan), where=bottom > 0))


def _step(series: Floats, rng: np.random.Generator, rounds: int) -> _Step | None:
    """The best step of a series (w,); None where it never varies."""
    if not np.ptp(series) > 1e-9 * np.abs(series).max():
        return None
    statistic = _cusum(series[None])
    at = int(statistic.argmax()) + _EDGE
    before, after = series[:at].mean(), series[at:].mean()
    level = np.where(np.arange(len(series)) < at, before, after)
    rest = series - level
    length = memory_length(rest)
    drawn = _drawn(rest, length, rounds, rng) * widening(len(rest), math.ceil(len(rest) / length), length)
    # Without a step, all of the variance would be noise, also what the best step takes away.
    by_chance = _cusum(drawn).max(axis=1) * (series.std() / max(rest.std(), 1e-300))
    moved = _cusum(level + drawn).argmax(axis=1) + _EDGE
    low, high = np.quantile(moved, [0.025, 0.975], method="nearest")
    confidence = float((by_chance < statistic.max()).sum() / (rounds + 1))
    return _Step(at, min(int(low), at), max(int(high), at), float(after - before), confidence)


def _drawn(series: Floats, length: int, rounds: int, rng: np.random.Generator) -> Floats:
    """Resamples (rounds, w) in circular blocks, in the order drawn."""
    n = len(series)
    first = rng.integers(0, n, (rounds, -(-n // length), 1))
    rows: Ints = ((first + np.arange(length)) % n).reshape(rounds, -1)[:, :n]
    return np.asarray(series[rows])


def _cusum(series: Floats) -> Floats:
    """For rows (r, w), how much a step before each window explains: (r, w - 2 * edge + 1), from the third window on."""
    n = series.shape[1]
    upto = np.cumsum(series - series.mean(axis=1, keepdims=True), axis=1)[:, _EDGE - 1 : n - _EDGE]
    k = np.arange(_EDGE, n - _EDGE + 1)
    return np.asarray(np.abs(upto) / np.sqrt(k * (n - k) / n))


def _onset(name: str, unit: str, step: _Step, times: _Times, deploys: Deploys) -> Onset:
    """The time told is that of the first request of a window; the step may hide in it or in the one before."""
    at = float(times.first[step.at])
    low, high = float(times.first[step.low - 1]), float(times.last[step.high])
    reach = max(_NEAR_S, _NEAR * (times.last[-1] - times.first[0]))
    width = float(np.median(times.last - times.first))
    near = [(abs(at - when), when, what) for when, what in deploys if low - reach <= when <= high + width]
    _, when, what = min(near, default=(0.0, at, ""))
    return Onset(
        name=name,
        at=_iso(at),
        low=_iso(low),
        high=_iso(high),
        step=step.size,
        unit=unit,
        confidence=step.confidence,
        deploy=what,
        deploy_s=at - when if what else None,
    )


def _iso(seconds: float) -> str:
    return iso(int(seconds) * 1_000_000)
