"""What resampling must know of a set: how long requests resemble their neighbours, and whether there are enough.

Requests close in time share a queue and a cache, so resampling them one by one gives intervals that are far too narrow;
blocks are resampled instead (attribution/certainty/resampling.py), as long as the data's own autocorrelation asks
for. Whatever is resampled, an interval holds what it promises only where enough observations lie on both sides of the
quantile (`supports`); elsewhere there is none to be had.

Sources: Politis and White, Econometric Reviews 23 (2004), with the correction of Patton, Politis and White (2009).
"""

from __future__ import annotations

import math

import numpy as np

from analysis.quantiles import Floats

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


def _autocovariance(centred: Floats, lags: int) -> Floats:
    """Autocovariances (lags + 1,) of a centred series (n,), by its power spectrum."""
    n = len(centred)
    size = 1 << (2 * n - 1).bit_length()
    power = np.abs(np.fft.rfft(centred, size)) ** 2
    return np.asarray(np.fft.irfft(power, size)[: lags + 1] / n)
