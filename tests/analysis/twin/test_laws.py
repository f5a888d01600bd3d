"""Whether laws are known as well as their fits say: fits to one server, hour after hour."""

from __future__ import annotations

from dataclasses import astuple
from itertools import combinations

import numpy as np
import pytest

from analysis.twin.fit import fit
from tests.analysis.attribution import contention

HOURS = 9


@pytest.mark.slow
def test_fits_differ_as_they_say() -> None:
    """The squared distance of two fits, in their covariances, is 7 on average for laws of 7 numbers. Of 36 pairs of 9
    fits it strays by about 2.5; fits a third too sure, or too humble, would make it 16 or 4."""
    world = contention.AS_WAS
    fits = [
        fit(contention.side(world, contention.Draws.of(1500, 300 + hour)), contention.told(world))
        for hour in range(HOURS)
    ]
    laws = np.array([astuple(found.law) for found in fits])[:, :7]
    known = [found.covariance[:7, :7] * np.outer(law, law) for found, law in zip(fits, laws, strict=True)]
    apart = [
        float((laws[i] - laws[j]) @ np.linalg.solve(known[i] + known[j], laws[i] - laws[j]))
        for i, j in combinations(range(HOURS), 2)
    ]
    assert 4 < np.mean(apart) < 13, np.round(apart, 1)
    sigma = np.sqrt(np.mean([np.diag(one) for one in known], axis=0))
    ratio = laws.std(axis=0, ddof=1) / sigma
    assert ((ratio > 0.35) & (ratio < 1.8)).all(), ratio.round(2)
