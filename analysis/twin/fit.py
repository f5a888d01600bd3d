"""A side's twin, from its requests alone."""

from __future__ import annotations

import numpy as np

from analysis.attribution.model import Side
from analysis.twin.limits import limits
from analysis.twin.model import Fit, Told
from analysis.twin.refine import refine
from analysis.twin.regression import first_law
from analysis.twin.simulate import THREADS
from analysis.twin.workload import known, observed, quiet_before, workload

MOST = 50_000
"""Requests that a law is fitted to: those in the middle of a larger side."""


def fit(side: Side, told: Told | None = None, *, most: int = MOST, threads: int = THREADS) -> Fit:
    """The step-time law and the limits under which a replay of the side's own requests comes out as they did.

    Needs every serving layer (beside, where the side is by another time). Whether it came out is for fidelity() to say.
    Raises NoTwin, saying what is missing.
    """
    told = told or Told()
    side = known(side, told)
    notes: list[str] = []
    if side.n > most:
        start = (side.n - most) // 2
        notes.append(f"The law is fitted to {most:,} requests in the middle of {side.n:,}.")
        side = side.subset(np.arange(start, start + most))
    quiet = quiet_before(side) if told.hidden_wait else (0.0, 0.0)
    work, real = workload(side, told.hidden_wait, quiet), observed(side)
    bounds, remarks = limits(work, real, told)
    found = refine(work, real, first_law(work, real, bounds.max_num_batched_tokens), bounds, threads)
    return Fit(
        law=found.law,
        covariance=found.covariance,
        limits=bounds,
        hidden_wait=told.hidden_wait,
        quiet=quiet,
        n=side.n,
        notes=(*notes, *remarks),
    )
