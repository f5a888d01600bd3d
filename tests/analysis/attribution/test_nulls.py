"""Under a load that remembers minutes and changes nothing, nobody is blamed; a real change is.

The full 500 runs and their table: python -m benchmarks.nulls.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.attribution.certainty.gate import judge
from analysis.attribution.certainty.inputs import own_changes
from analysis.attribution.certainty.resampling import resampling
from analysis.attribution.model import Verdict
from benchmarks.nulls import Case, fleet, run
from tests.analysis.attribution.loads import by_layer, under_load


@pytest.mark.slow
@pytest.mark.parametrize("real", [True, False], ids=["shows", "layers"])
@pytest.mark.parametrize("memory_s", [300, 600])
def test_nobody_is_blamed_for_load_memory_and_intervals_cover(memory_s: float, real: bool) -> None:
    found = run(Case(memory_s=memory_s, hours=2.0, q=0.95, shows=real), runs=60, seed=11)
    # 2 % allowed; what 60 runs of that exceed with a chance below 0.2 %.
    assert found.named <= 5, found
    # Shares of one run hang together: runs are counted, not shares.
    assert found.covered >= 0.9 - 3 * np.sqrt(0.9 * 0.1 / 60), found


@pytest.mark.slow
def test_a_change_of_six_sigma_is_named_in_most_runs() -> None:
    for memory_s in (0, 300):
        found = run(Case(memory_s=memory_s, hours=2.0, q=None, sigmas=6.0), runs=60, seed=12)
        assert found.decode >= 40, found
        assert found.others <= 3, found


@pytest.mark.slow
def test_the_false_blame_told_is_what_happens() -> None:
    """A load that remembers three hours deceives windows of one; the placebo test of its history has to say so."""
    hour, rng = 3600.0, np.random.default_rng(13)
    runs, wrong = 60, 0
    for _ in range(runs):
        both = under_load(2000, 2 * hour, 3 * hour, rng)
        early = both.arrival < hour
        a = replace(both.subset(early), end=hour)
        b = replace(both.subset(~early), begin=hour)
        drawn = resampling(a, b, rng)
        view = judge(by_layer(a, b, drawn, None), own_changes(a, b, drawn), drawn)
        wrong += any(share.verdict == Verdict.NAMED for share in view.shares)
    pairs, blamed = fleet(Case(3 * hour, 1.0, None), days=5, seed=14)
    happens, told = wrong / runs, blamed / pairs
    pooled = (wrong + blamed) / (runs + pairs)
    assert pooled > 0.1, (happens, told)
    # Two binomials of one rate: three sigma apart at most.
    assert abs(happens - told) <= 3 * np.sqrt(pooled * (1 - pooled) * (1 / runs + 1 / pairs)), (happens, told)
