"""Traffic under a load that remembers: an autoregression of minutes behind all layers, and nothing that changes.

And a split that is cheap and good enough to try the gate on: the change of a quantile, by what it is made of.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from analysis.attribution.model import NOT_TOLD, Resampling, Side, Split
from analysis.quantiles import Floats, hd_rank_mass

LAYERS = ("queue", "prefill", "decode")
_STEP_S = 5.0


def load(seconds: float, memory_s: float, rng: np.random.Generator) -> Floats:
    """A first-order autoregression with variance 1, every 5 s, correlated by 1/e after `memory_s`."""
    n = math.ceil(seconds / _STEP_S) + 1
    phi = math.exp(-_STEP_S / memory_s) if memory_s else 0.0
    series = rng.standard_normal(n) * math.sqrt(1 - phi**2)
    series[0] = rng.standard_normal()
    for at in range(1, n):
        series[at] += phi * series[at - 1]
    return series


def side(
    arrival: Floats,
    level: Floats,
    rng: np.random.Generator,
    *,
    name: str = "A",
    window: tuple[float, float],
    decode: float = 0.0,
    hits: float = 0.7,
) -> Side:
    """Requests whose layers are log-normal and rise with the load (n,) at their arrival. decode: ms on top."""
    n = len(arrival)
    times = np.stack(
        [
            8.0 * np.exp(0.5 * level + 0.5 * rng.standard_normal(n)),
            20.0 * np.exp(0.2 * level + 0.3 * rng.standard_normal(n)),
            60.0 * np.exp(0.2 * level + 0.3 * rng.standard_normal(n)) + decode,
        ]
    )
    prompt = np.ceil(800 * np.exp(0.3 * rng.standard_normal(n)))
    served = np.floor(prompt * np.clip(hits + 0.05 * level + 0.1 * rng.standard_normal(n), 0, 1))
    return Side(
        name=name,
        arrival=arrival,
        totals=times.sum(axis=0),
        layers=LAYERS,
        times=times,
        prompt=prompt,
        completion=np.full(n, 50.0),
        sources=("cached", "computed"),
        tokens=np.stack([served, prompt - served]),
        template=np.full(n, NOT_TOLD),
        server=np.zeros(n, np.int64),
        servers=("s",),
        begin=window[0],
        end=window[1],
    )


def under_load(
    n: int, seconds: float, memory_s: float, rng: np.random.Generator, *, begin: float = 0.0, **changes: float
) -> Side:
    """n requests over a window under a load of its own."""
    arrival = begin + np.sort(rng.uniform(0, seconds, n))
    level = load(seconds, memory_s, rng)[((arrival - begin) / _STEP_S).astype(int)]
    return side(arrival, level, rng, window=(begin, begin + seconds), **changes)


def arms(
    n: int, seconds: float, memory_s: float, rng: np.random.Generator, *, decode: float = 0.0
) -> tuple[Side, Side]:
    """Two arms of n requests each at one time, under one load. decode: what B has on top, ms."""
    level = load(seconds, memory_s, rng)
    made = []
    for name, more in (("A", 0.0), ("B", decode)):
        arrival = np.sort(rng.uniform(0, seconds, n))
        at = level[(arrival / _STEP_S).astype(int)]
        made.append(side(arrival, at, rng, name=name, window=(0.0, seconds), decode=more))
    return made[0], made[1]


def by_layer(a: Side, b: Side, resampling: Resampling, q: float | None = 0.95) -> Split:
    """The change of the quantile, or of the mean, by what both are made of; called "shows", so that it may blame."""
    (value_a, drawn_a, total_a), (value_b, drawn_b, total_b) = (
        _composed(a, resampling.block_a, resampling.counts_a, q),
        _composed(b, resampling.block_b, resampling.counts_b, q),
    )
    nothing = np.zeros(len(drawn_a))
    return Split(
        kind="shows",
        q=q,
        names=LAYERS,
        values=value_b - value_a,
        replicates=drawn_b - drawn_a,
        change=total_b - total_a,
        change_replicates=(drawn_b - drawn_a).sum(axis=1),
        residual=0.0,
        residual_replicates=nothing,
        provenance="measured",
        method="composition",
    )


def _composed(of: Side, block: np.ndarray, counts: Floats, q: float | None) -> tuple[Floats, Floats, float]:
    order = np.argsort(of.totals, kind="stable")
    parts = of.times[:, order].T
    weights = counts[:, block[order]]
    if q is None:
        return parts.mean(axis=0), weights @ parts / weights.sum(axis=1, keepdims=True), of.totals.mean()
    mass = _rank_mass(of.n, q)
    # Blocks differ in size: ranks are brought to n.
    upto = np.cumsum(weights, axis=1)
    ranks = np.round(upto * (of.n / upto[:, -1:])).astype(int)
    plain = np.diff(mass)
    return plain @ parts, np.diff(mass[ranks], axis=1, prepend=0.0) @ parts, plain @ of.totals[order]


@cache
def _rank_mass(n: int, q: float) -> Floats:
    return hd_rank_mass(n, q)
