"""Which requests are drawn together, and how far the spread of the resamples can be trusted.

Load has a memory of minutes, so blocks are windows in time. Requests that follow each other share it only thinly, and
an autocorrelation by requests misses it; means of sixty windows a side show it. The automatic block length of those
(analysis.bootstrap) sets how many blocks there are, never more than thirty: more gain next to nothing (Schmeiser 1982),
and few long ones are right also where a memory goes unseen. A handful of blocks varies less than the truth does, as
their mean is taken from themselves and neighbours resemble each other. How much less is known for a first-order
autoregression, whose memory the block length implies; `widen` makes up for it, and Student's t for the rest.

Measured (benchmarks/nulls.py, 500 runs a case): intervals of 95 % cover 95 to 97 % without a memory; in windows of one
and two hours 93 to 97 % with one of 5 minutes, 91 to 97 % with one of 10. A memory that makes up little of the noise of
a window is seen late, and covered less.

Sources: Schmeiser, Operations Research 30 (1982), for the number of batches; Politis and White (2004) for the length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.attribution.certainty.pairing import interleaved, span, window
from analysis.attribution.model import Ints, Resampling, Side
from analysis.bootstrap import block_length
from analysis.numbers import duration
from analysis.quantiles import Floats
from cachemodel.errors import UserError

FEWEST_BLOCKS = 5
"""Below, there is no interval."""
MOST_BLOCKS = 30
_BINS = 60
_UNDERSEEN = 1.5  # a window of a few times a memory shows less of it (simulated, see above)
_LAGS, _PERSISTS = 5, 2.5  # sigmas of their sum
_CLIPPED = 0.01  # of the values at either end: single giants would hide the memory of the rest
_TAIL = 0.95  # slow requests may come in runs though the mean does not move
_LOOKED_AT = 200_000  # requests, evenly spaced: thousands a window show any memory there is
_KNOWN = 0.5  # of the windows, for a series to have a say


def resampling(
    a: Side, b: Side, rng: np.random.Generator, rounds: int = 200, paired: bool | None = None
) -> Resampling:
    """Blocks of both sides and how often each is drawn, in `rounds` resamples.

    paired: whether the sides are arms of one time, whose windows are drawn together so that drift that hits both
    cancels; None to look. Raises UserError where pairing is asked for and the sides do not meet in time.
    """
    if empty := [side.name for side in (a, b) if not side.n]:
        return _refuse(a, b, rounds, f"{' and '.join(empty)} has no requests: choose a wider window")
    if paired or (paired is None and interleaved(a, b)):
        return _together(a, b, rng, rounds, asked=paired is True)
    cuts = [_alone(side) for side in (a, b)]
    draws = [_draw(cut.count, rounds, rng) for cut in cuts]
    return _resampling(a, b, (cuts[0], cuts[1]), (draws[0], draws[1]), paired=False)


@dataclass(frozen=True, slots=True)
class _Cut:
    """Requests cut into blocks. block: of each request (n,); widen: as in Resampling; asked: how many blocks the length
    that the data ask for would give, which may be too few."""

    block: Ints
    count: int
    length_s: float
    widen: float
    asked: float


def _together(a: Side, b: Side, rng: np.random.Generator, rounds: int, *, asked: bool) -> Resampling:
    """Windows of the time that both sides span; what drifts is the difference between them. asked: whether somebody
    wants it so, and has to know where it cannot be."""
    begin, end = span(a, b)
    bins = min(_BINS, a.n, b.n)
    fine = [window(side.arrival, begin, end, bins) for side in (a, b)]
    both = np.intersect1d(fine[0], fine[1])
    if len(both) < min(FEWEST_BLOCKS, bins):
        if asked:
            raise UserError(
                f"{a.name} and {b.name} share too little time to be paired: leave the pairing to hitmap"
            )
        few = f"the requests of both meet in {len(both)} stretches of time, {FEWEST_BLOCKS} are needed"
        return _refuse(a, b, rounds, f"{few}: send them over longer")
    means_a, means_b = (_series(side, at, bins)[:, both] for side, at in zip((a, b), fine, strict=True))
    arrivals = np.concatenate((a.arrival, b.arrival))
    cut = _cut(arrivals, begin, end, means_b - means_a if len(means_a) == len(means_b) else means_b)
    halves = [replace(cut, block=block) for block in (cut.block[: a.n], cut.block[a.n :])]
    counts = _draw(cut.count, rounds, rng)
    return _resampling(a, b, (halves[0], halves[1]), (counts, counts), paired=True)


def _resampling(
    a: Side, b: Side, cuts: tuple[_Cut, _Cut], counts: tuple[Floats, Floats], *, paired: bool
) -> Resampling:
    filled = [len(np.unique(cut.block)) for cut in cuts]
    fewest = min(filled)
    refused = ""
    if fewest < FEWEST_BLOCKS:
        side, cut = ((a, cuts[0]), (b, cuts[1]))[int(np.argmin(filled))]
        where = f"in {fewest} windows of {duration(cut.length_s)}" if fewest > 1 else "at one time"
        refused = (
            f"the requests of {side.name} (n = {side.n:,}) arrive {where}; intervals need requests in "
            f"{FEWEST_BLOCKS}: choose a longer window"
        )
    errors = [_error(side.totals, cut) for side, cut in ((a, cuts[0]), (b, cuts[1]))]
    return Resampling(
        block_a=cuts[0].block,
        block_b=cuts[1].block,
        counts_a=counts[0],
        counts_b=counts[1],
        paired=paired,
        length_s=max(cut.length_s for cut in cuts),
        effective_a=_effective(a.totals, errors[0]),
        effective_b=_effective(b.totals, errors[1]),
        degrees=_degrees([max(cut.asked - 1, 1.0) for cut in cuts], errors, paired=paired),
        widen=max(cut.widen for cut in cuts),
        refused=refused,
    )


def _refuse(a: Side, b: Side, rounds: int, reason: str) -> Resampling:
    counts_a, counts_b = (np.ones((rounds, min(1, side.n))) for side in (a, b))
    return Resampling(
        block_a=np.zeros(a.n, np.int64),
        block_b=np.zeros(b.n, np.int64),
        counts_a=counts_a,
        counts_b=counts_b,
        paired=False,
        length_s=math.nan,
        effective_a=float(a.n),
        effective_b=float(b.n),
        degrees=1.0,
        refused=reason,
    )


def _alone(side: Side) -> _Cut:
    """Blocks of one side, in the time in which its requests come: between bursts nothing is to be learned, and blocks
    as long as the silence would be few."""
    begin, end = span(side)
    bins = min(_BINS, side.n)
    at = window(side.arrival, begin, end, bins)
    filled, fine = np.unique(at, return_inverse=True)
    width = (end - begin) / bins
    empty_before = at - fine
    busy_end = end - (bins - len(filled)) * width
    return _cut(side.arrival - empty_before * width, begin, busy_end, _series(side, fine))


def _cut(arrival: Floats, begin: float, end: float, series: Floats) -> _Cut:
    """Blocks for requests between begin and end, as long as any of the series (k, bins) asks for."""
    bins = series.shape[1]
    length = max((memory_length(row) for row in series), default=1)
    wanted = min(bins, max(FEWEST_BLOCKS, min(MOST_BLOCKS, bins // length)))
    block = _numbered(window(arrival, begin, end, wanted))
    count = int(block.max()) + 1
    return _Cut(
        block, count, (end - begin) / wanted, widening(bins, count, length), min(count, bins / length)
    )


def _numbered(windows: Ints) -> Ints:
    return np.unique(windows, return_inverse=True)[1].astype(np.int64)


def _draw(count: int, rounds: int, rng: np.random.Generator) -> Floats:
    return rng.multinomial(count, np.full(count, 1 / count), size=rounds).astype(np.float64)


def memory_length(series: Floats) -> int:
    """The block length that a series (n,) asks for, 1 where its first lags together are no more than chance.

    Of twenty series that remember nothing, the automatic length finds a memory in some.
    """
    centred = series - series.mean()
    power = float(centred @ centred)
    if len(series) <= _LAGS or not power:
        return 1
    lags = sum(float(centred[k:] @ centred[:-k]) for k in range(1, _LAGS + 1)) / power
    return block_length(series) if lags * math.sqrt(len(series) / _LAGS) > _PERSISTS else 1


def widening(bins: int, count: int, length: int) -> float:
    """How much wider the true spread of a mean of `bins` neighbours is than that of resamples of `count` blocks.

    The bootstrap's variance is expected to be (V(bins / count) - V(bins)) / count, where V(n) is the variance of a mean
    of n neighbours; it should be V(bins). The memory is that for which `length` is the best block length (Politis and
    White's formula for a first-order autoregression, solved for it).
    """
    if count < 2:
        return 1.0
    memory = _UNDERSEEN * math.sqrt(length**3 / (1.5 * bins)) if length > 1 else 0.0
    phi = math.exp(-1 / memory) if memory else 0.0
    whole, one = _variance_of_mean(phi, bins), _variance_of_mean(phi, bins / count)
    return math.sqrt(max(1.0, whole * count / max(one - whole, 1e-12)))


def _variance_of_mean(phi: float, n: float) -> float:
    """Of n neighbours of a first-order autoregression with variance 1."""
    forgotten = 1.0 - math.pow(phi, n)
    return (1 + phi) / (1 - phi) / n - 2 * phi * forgotten / (n * (1 - phi)) ** 2


def _series(side: Side, at: Ints, bins: int | None = None) -> Floats:
    """Means of windows (k, bins) of all that is compared: the metric, its tail, layers, lengths, shares of tokens."""
    count = int(at.max()) + 1 if bins is None else bins
    few = np.arange(0, side.n, -(-side.n // _LOOKED_AT))
    at, side = at[few], side.subset(few)
    values = [
        side.totals,
        (side.totals > np.quantile(side.totals, _TAIL)).astype(np.float64),
        *side.times,
        side.prompt,
        side.completion,
        *(tokens / np.where(side.prompt > 0, side.prompt, np.nan) for tokens in side.tokens),
    ]
    return np.stack([_means(_clipped(row), at, count) for row in values])


def _means(values: Floats, at: Ints, count: int) -> Floats:
    """Means by window (count,); constant where too few windows know any, the overall mean where one knows none."""
    known = np.isfinite(values)
    n = np.bincount(at[known], minlength=count)
    if (n > 0).mean() < _KNOWN:
        return np.zeros(count)
    sums = np.bincount(at[known], values[known], minlength=count)
    return np.where(n > 0, sums / np.maximum(n, 1), sums.sum() / n.sum())


def _clipped(values: Floats) -> Floats:
    known = values[np.isfinite(values)]
    if not len(known):
        return values
    low, high = np.quantile(known, [_CLIPPED, 1 - _CLIPPED])
    # Something that few requests have at all would be clipped away.
    return np.clip(values, low, high) if low < high else values


def _error(totals: Floats, cut: _Cut) -> float:
    """Variance of the mean, ms^2."""
    off = np.bincount(cut.block, totals - totals.mean(), minlength=cut.count)
    return cut.widen**2 * float(off @ off) / len(totals) ** 2


def _effective(totals: Floats, error: float) -> float:
    """n, less what the resemblance of neighbours takes: the variance of a request over that of the mean."""
    n = len(totals)
    return float(np.clip(totals.var() / error, 1.0, n)) if error > 0 else float(n)


def _degrees(of_each: Sequence[float], errors: Sequence[float], *, paired: bool) -> float:
    """Of freedom of a difference between two means, by Welch and Satterthwaite; paired, there is but one set of blocks.

    Errors: variances of the means.
    """
    spread = sum(error**2 / degrees for error, degrees in zip(errors, of_each, strict=True))
    return min(of_each) if paired or not spread > 0 else sum(errors) ** 2 / spread
