"""Student's t in sigmas of a normal distribution, so that few blocks and many are judged by one scale.

Source: Wallace, Annals of Mathematical Statistics 30 (1959): within 1.2 % of the exact 97.5 % point from 3 degrees of
freedom on, and never below it.
"""

from __future__ import annotations

import math

import numpy as np

from analysis.quantiles import Floats

TWO_SIDED_95 = 1.959964
MOST_SIGMAS = 99.0
"""What more than this, or a change of something that never varies, is told as."""


def sigmas(t: Floats, degrees: float) -> Floats:
    """How many sigmas of a normal distribution are as rare as |t| with so many degrees of freedom; at most 99."""
    size = np.abs(t)
    if math.isfinite(degrees):
        size = _shrink(degrees) * np.sqrt(degrees * np.log1p(size**2 / degrees))
    return np.minimum(size, MOST_SIGMAS)


def student(z: float, degrees: float) -> float:
    """The |t| that is as rare, with so many degrees of freedom, as z sigmas of a normal distribution."""
    if not math.isfinite(degrees):
        return z
    return math.sqrt(degrees * math.expm1((z / _shrink(degrees)) ** 2 / degrees))


def ratio(change: Floats, sigma: Floats) -> Floats:
    """Changes over their sigmas; what never varies counts as changed infinitely, or, by rounding only, not at all."""
    change, sigma = np.asarray(change, float), np.asarray(sigma, float)
    rounding = 1e-9 * max(np.abs(change).max(initial=0.0), 1e-300)
    fixed = sigma <= rounding
    moved = np.where(np.abs(change) > rounding, np.inf, 0.0)
    return np.asarray(np.where(fixed, moved, change / np.where(fixed, 1.0, sigma)))


def _shrink(degrees: float) -> float:
    return (8 * degrees + 1) / (8 * degrees + 3)
