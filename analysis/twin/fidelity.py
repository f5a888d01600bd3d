"""Whether a twin may speak for its server: what it says of the requests that really were, beside what came of them.

A figure may be off by a tenth, or by three standard errors of the real one where that is more: a tenth is what shares
of a change, which are differences between replays, can bear, and nearer than its standard errors no sample knows
itself. A layer's mean may also be off by 3 % of the whole time that it is part of: what is small in all is not held
against it.
"""

from __future__ import annotations

import math

import numpy as np

from analysis.attribution.model import Fidelity, Side
from analysis.bootstrap import block_length
from analysis.quantiles import Floats, hd_quantile
from analysis.twin.model import Fit, Replay
from analysis.twin.simulate import replay
from analysis.twin.workload import known, observed, workload

RELATIVE, SIGMAS, OF_WHOLE = 0.1, 3.0, 0.03
QUANTILES = (0.5, 0.95, 0.99)
WHOLES = {"ttft": "time to first token", "e2e": "end-to-end time"}
LAYERS = ("queue", "host", "remote", "prefill", "decode")
_FEWEST_BLOCKS = 10


def fidelity(side: Side, fit: Fit, sent: Replay | None = None) -> list[Fidelity]:
    """What the twin makes of the side's own requests. sent: their replay, where it has been made."""
    side = known(side)
    real = observed(side)
    sent = sent or replay(workload(side, fit.hidden_wait, fit.quiet), fit.law, fit.limits)
    rows = [
        _quantile(side.name, name, q, getattr(real, name), getattr(sent, name))
        for name in WHOLES
        for q in QUANTILES
    ]
    for name in LAYERS:
        whole = real.e2e if name == "decode" else real.ttft
        rows.append(_mean(side.name, name, getattr(real, name), getattr(sent, name), float(whole.mean())))
    return rows


def misfit(rows: list[Fidelity]) -> str:
    """Why a twin may not speak, in a sentence; empty where it may."""
    poor = [row for row in rows if not row.ok]
    if not poor:
        return ""
    worst = max(poor, key=lambda row: abs(row.twin - row.real) / row.bound)
    others = f", and {len(poor) - 1} other figures are off too" if len(poor) > 1 else ""
    return (
        f"the twin of {worst.side} has {worst.figure} at {worst.twin:,.0f} ms where it was {worst.real:,.0f} ms"
        f" (may be off by {worst.bound:,.0f}){others}"
    )


def _quantile(side: str, name: str, q: float, real: Floats, sent: Floats) -> Fidelity:
    value = hd_quantile(real, q)
    # the order statistics one standard error of the share below away, halfway between
    error = _error((real <= value).astype(np.float64))
    low, high = (hd_quantile(real, min(max(q + sign * error, 1e-6), 1 - 1e-6)) for sign in (-1, 1))
    bound = max(RELATIVE * value, SIGMAS * (high - low) / 2)
    return Fidelity(side, f"P{100 * q:g} of {WHOLES[name]}", value, hd_quantile(sent, q), bound)


def _mean(side: str, name: str, real: Floats, sent: Floats, whole: float) -> Fidelity:
    value = float(real.mean())
    bound = max(RELATIVE * value, SIGMAS * _error(real), OF_WHOLE * whole)
    return Fidelity(side, f"mean {name}", value, float(sent.mean()), bound)


def _error(series: Floats) -> float:
    """Standard error of the mean of a series in time order, by its blocks."""
    n = len(series)
    blocks = max(min(_FEWEST_BLOCKS, n), n // block_length(series))
    edges = np.arange(blocks) * n // blocks
    sums = np.add.reduceat(series - series.mean(), edges)
    return math.sqrt(float(sums @ sums)) / n
