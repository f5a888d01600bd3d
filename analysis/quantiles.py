"""The one quantile estimator used everywhere: Harrell-Davis, plain and weighted.

The estimate of the q-quantile is a weighted sum of all order statistics; the weights are the mass a
Beta((n+1)q, (n+1)(1-q)) puts on each of n equal steps. It varies less than a single order statistic, and being a sum it
can be split exactly over the parts of each observation (see composition.py). With sample weights the steps are as wide
as the weights and n is Kish's effective size.

Sources: Harrell and Davis, Biometrika 69 (1982); Akinshin, arXiv:2304.07265 (weighted form).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_TINY = 1e-300
_TAIL_SIGMAS = 12.0  # beyond this many standard deviations a Beta holds no mass that a double can show


def hd_quantile(values: Floats, q: float, weights: Floats | None = None) -> float:
    """The Harrell-Davis estimate of the q-quantile of `values` (n,), in their unit.

    weights: (n,) non-negative. Raises ValueError for q outside (0, 1), no values, or values that are not finite.
    """
    return float(values @ hd_observation_weights(values, q, weights))


def hd_observation_weights(values: Floats, q: float, weights: Floats | None = None) -> Floats:
    """What each observation (n,) weighs in the estimate, in the order given; sums to 1.

    Equal values share their weights equally, so that the order of the input never matters.
    """
    _check(values, q, weights)
    order = np.argsort(values, kind="stable")
    ranked = hd_rank_weights(len(values), q) if weights is None else _weighted(weights[order], q)
    groups = np.concatenate(([0], np.cumsum(np.diff(values[order]) != 0)))
    if weights is None:
        shared = (np.bincount(groups, ranked) / np.bincount(groups))[groups]
    else:
        mass = np.bincount(groups, weights[order])[groups]
        total = np.bincount(groups, ranked)[groups]
        shared = np.divide(total * weights[order], mass, out=np.zeros_like(total), where=mass > 0)
    result = np.empty(len(values))
    result[order] = shared
    return result


def hd_rank_weights(n: int, q: float) -> Floats:
    """The weights (n,) of the order statistics, smallest first."""
    return np.diff(hd_rank_mass(n, q))


def hd_rank_mass(n: int, q: float) -> Floats:
    """The weight of the k smallest of n observations together, for k from 0 to n: (n + 1,)."""
    if n < 1 or not 0 < q < 1:
        raise ValueError(f"a quantile needs observations and 0 < q < 1, not n={n} and q={q}")
    return beta_cdf(np.arange(n + 1) / n, (n + 1) * q, (n + 1) * (1 - q))


def beta_cdf(x: Floats, a: float, b: float) -> Floats:
    """The regularised incomplete beta function I_x(a, b) for ascending x (m,) in [0, 1].

    Continued fraction (Numerical Recipes 6.4, modified Lentz), for all x at once. Absolute error below 1e-12 where
    a + b is a thousand, 1e-9 where it is a million: what lgamma leaves.
    """
    mean, sigma = a / (a + b), math.sqrt(a * b / ((a + b + 1) * (a + b) ** 2))
    result = np.where(x < mean, 0.0, 1.0)
    near = (np.abs(x - mean) < _TAIL_SIGMAS * sigma) & (x > 0) & (x < 1)
    z = x[near]
    flip = z >= (a + 1) / (a + b + 2)
    left = np.where(flip, 1 - z, z)
    aa, bb = np.where(flip, b, a), np.where(flip, a, b)
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + aa * np.log(left) + bb * np.log1p(-left)
    )
    part = np.exp(log_front) * _fraction(left, aa, bb) / aa
    result[near] = np.where(flip, 1 - part, part)
    return result


def _fraction(x: Floats, a: Floats, b: Floats) -> Floats:
    c = np.ones_like(x)
    d = 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    h = d.copy()
    for m in range(1, 500 + int(np.sqrt(a.max(initial=0) + b.max(initial=0)))):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away_from_zero(1 + step * d)
            c = _away_from_zero(1 + step / c)
            h *= c * d
        if np.all(np.abs(c * d - 1) < 1e-15):
            break
    return h


def _away_from_zero(x: Floats) -> Floats:
    return np.where(np.abs(x) < _TINY, _TINY, x)


def _weighted(weights: Floats, q: float) -> Floats:
    total = weights.sum()
    n = total**2 / (weights**2).sum()
    edges = np.concatenate(([0.0], np.cumsum(weights) / total))
    edges[-1] = 1.0
    return np.diff(beta_cdf(np.minimum(edges, 1.0), (n + 1) * q, (n + 1) * (1 - q)))


def _check(values: Floats, q: float, weights: Floats | None) -> None:
    if not len(values) or not 0 < q < 1:
        raise ValueError(f"a quantile needs observations and 0 < q < 1, not n={len(values)} and q={q}")
    if not np.isfinite(values).all():
        raise ValueError("a quantile needs finite values; leave unknown ones out")
    if weights is not None and (weights.shape != values.shape or (weights < 0).any() or weights.sum() <= 0):
        raise ValueError("weights are one a value, non-negative and not all zero")
