"""Error bars that survive requests resembling their neighbours: the circular block bootstrap.

Requests close in time share a queue and a cache, so resampling them one by one gives intervals that are far too narrow.
Blocks of consecutive requests are resampled instead; their length is taken from the data's own autocorrelation.
Intervals are percentiles of the resampled estimates: Harrell-Davis is smooth enough for that, and percentiles, unlike
BCa, need no jackknife over blocks. They hold what they promise only where enough observations lie on both sides of the
quantile (`supports`); elsewhere there is none to be had.

Sources: Politis and Romano (1992) for the circular scheme; Politis and White, Econometric Reviews 23 (2004), with the
correction of Patton, Politis and White (2009), for the length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from analysis.quantiles import Floats

Statistic = Callable[[Floats], Floats]

RESAMPLES = 2000
FEWEST_RESAMPLES = 200
MOST_DRAWS = 10_000_000  # observations drawn in all: bounds time on large sets
DRAWS_AT_ONCE = 1_000_000  # and memory
# How often nominal 95% cover the truth, by observations beyond the quantile (exponential and log-normal data):
# 60% with 1, 82% with 2, 90% with 3, 92 to 94% from 5 on.
FEWEST_BEYOND = 5
_SHORTEST_SERIES = 20  # below, an autocorrelation says nothing


def supports(n: int, q: float) -> bool:
    """Whether n observations leave enough on both sides of the q-quantile for an interval; a mean counts as 0.5."""
    return n * min(q, 1 - q) > FEWEST_BEYOND - 1e-9  # 50 * (1 - 0.9) is a little less than 5


def block_length(series: Floats) -> int:
    """How many consecutive observations of `series` (n,), in time order, to keep together; 1 where they look
    independent."""
    n = len(series)
    centred = series - series.mean()
    if n < _SHORTEST_SERIES or not centred @ centred:
        return 1
    longest = math.ceil(min(3 * math.sqrt(n), n / 3))
    run = max(5, math.ceil(math.sqrt(math.log10(n))))
    lags = min(n - 1, math.ceil(math.sqrt(n)) + run)
    covariance = _autocovariance(centred, lags)
    small = np.abs(covariance[1:] / covariance[0]) < 2 * math.sqrt(math.log10(n) / n)
    # The last lag that matters is the one before the first run of lags that do not.
    quiet = np.convolve(small, np.ones(run), "valid") == run
    last = int(np.argmax(quiet)) if quiet.any() else lags
    if last == 0:
        return 1
    k = np.arange(-min(2 * last, lags), min(2 * last, lags) + 1)
    taper = np.clip(2 * (1 - np.abs(k) / (2 * last)), 0, 1)
    spectrum = float((taper * covariance[np.abs(k)]).sum())
    slope = float((taper * np.abs(k) * covariance[np.abs(k)]).sum())
    if spectrum <= 0:
        return longest
    length = (2 * slope**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * n ** (1 / 3)
    return int(max(1, min(longest, math.ceil(length))))


def resamples(n: int) -> int:
    """How many resamples a set of n observations gets: fewer for large sets, whose intervals are narrow anyway."""
    return max(FEWEST_RESAMPLES, min(RESAMPLES, MOST_DRAWS // max(n, 1)))


def draw(n: int, length: int, count: int, rng: np.random.Generator) -> Iterator[Floats]:
    """`count` resamples of n observations in blocks of `length`: how often each observation is in them, as rows (r, n)
    that sum to n. Counts say all there is to a resample, and make most statistics a matrix product."""
    blocks = math.ceil(n / length)
    lengths = np.full(blocks, length)
    lengths[-1] = n - (blocks - 1) * length
    at_once = max(1, DRAWS_AT_ONCE // n)
    for start in range(0, count, at_once):
        rows = min(at_once, count - start)
        first = rng.integers(0, n, size=(rows, blocks))
        row = np.arange(rows)[:, None] * n
        counts = np.bincount((row + first).ravel(), minlength=n * rows).reshape(rows, n)
        if length > 1:
            # +1 where a block begins, -1 behind its end; one that runs over the end of the series goes on at its start.
            behind = first + lengths
            counts -= np.bincount((row + behind % n).ravel(), minlength=n * rows).reshape(rows, n)
            counts = np.cumsum(counts, axis=1)
            counts += (behind >= n).sum(axis=1)[:, None]
        yield counts.astype(np.float64)


def replicate(series: Floats, statistic: Statistic, count: int, rng: np.random.Generator) -> Floats:
    """The statistic on `count` resamples.

    series: (n,) or several, (k, n), in time order; blocks are as long as any of them asks for. statistic: counts (r, n)
    -> values (r, ...). Returns (count, ...).
    """
    length = max(map(block_length, np.atleast_2d(series)))
    return np.concatenate([statistic(counts) for counts in draw(series.shape[-1], length, count, rng)])


def interval(replicates: Floats, level: float = 0.95) -> tuple[float, float]:
    """The percentile interval of replicates (count,)."""
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _autocovariance(centred: Floats, lags: int) -> Floats:
    """Autocovariances (lags + 1,) of a centred series (n,), by its power spectrum."""
    n = len(centred)
    size = 1 << (2 * n - 1).bit_length()
    power = np.abs(np.fft.rfft(centred, size)) ** 2
    return np.asarray(np.fft.irfft(power, size)[: lags + 1] / n)
