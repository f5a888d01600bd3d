"""The linear rule: a layer's share is its sensitivity times the change of its mean.

The sensitivity is the probability that a request at the quantile passes the layer: a millisecond more for all that pass
moves the quantile by so much. It holds for small changes in which the same requests stay the slow ones; what it leaves
of a larger one is the residual, and says how far to trust it.
"""

from __future__ import annotations

import numpy as np

from analysis.attribution.binned import Blocks, histogram
from analysis.attribution.change import blocks, refusal, split
from analysis.attribution.layers import Mask, layers, negative, passed
from analysis.attribution.model import Refused, Resampling, Side, Split
from analysis.quantiles import Floats, hd_observation_weights


def linear(a: Side, b: Side, q: float | None, resampling: Resampling) -> Split | Refused:
    """The change of the q-quantile (None: the mean) by the linear rule, ms. The sensitivity is the mean of both sides';
    the mean of a layer is of the requests that pass it, and 0 where none does."""
    reason = refusal(a, b)
    if reason:
        return Refused("linear", reason)
    names, times_a, times_b = layers(a, b)
    of_a, of_b = blocks(resampling)
    columns: list[Floats] = []
    sensitivity = {}
    at_a, at_b = _Quantile(a.totals, q, of_a), _Quantile(b.totals, q, of_b)
    for name, x, y in zip(names, times_a, times_b, strict=True):
        below_zero = negative(x, y)
        in_a, in_b = passed(x, below_zero), passed(y, below_zero)
        touched = (at_a.share(in_a) + at_b.share(in_b)) / 2
        columns.append(touched * (_mean(y, in_b, of_b) - _mean(x, in_a, of_a)))
        sensitivity[name] = float(touched[0])
    return split(
        a, b, q, resampling,
        kind="linear",
        names=names,
        shares=np.stack(columns, axis=1) if columns else np.zeros((1 + len(of_a.counts), 0)),
        provenance="derived",
        method="sensitivity times change of mean",
        notes=("sensitivities: " + ", ".join(f"{name} {value:.2f}" for name, value in sensitivity.items()),),
    )  # fmt: skip


def sensitivities(side: Side, q: float) -> dict[str, float]:
    """The probability, 0 to 1, that a request at the q-quantile of `side` passes each of its layers."""
    weights = hd_observation_weights(side.totals, q)
    names, times, _ = layers(side, side)
    return {name: float(weights @ passed(t, negative(t, t))) for name, t in zip(names, times, strict=True)}


class _Quantile:
    """The requests at the quantile, of a side and of its resamples."""

    def __init__(self, totals: Floats, q: float | None, of: Blocks) -> None:
        self.of = of
        self.found = None if q is None else histogram(totals, q, of)

    def share(self, which: Mask) -> Floats:
        """The share of them that is one of `which` (n,), (1 + r,)."""
        marked = which.astype(np.float64)
        if self.found is not None:
            return self.found.of(marked, self.of)
        return np.concatenate([[marked.mean()], (self.of.resampled(marked) / self.of.resampled(None))[:, 0]])


def _mean(times: Floats, which: Mask, of: Blocks) -> Floats:
    """Of those that pass, (1 + r,) ms."""
    time, number = np.where(which, times, 0.0), which.astype(np.float64)
    sums, counts = (np.concatenate([[x.sum()], of.resampled(x)[:, 0]]) for x in (time, number))
    return np.asarray(np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0))
