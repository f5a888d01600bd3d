"""Over many traffics: the intervals hold what the server would have done, and no share is short of it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.analysis.attribution.trials import HITS, Tried, tried

pytestmark = pytest.mark.slow
SEEDS = 8


def test_lost_hits_are_worth_what_the_server_says() -> None:
    """P95 of windows of two minutes: single errors are a tenth, their mean is not."""
    runs = [list(tried(HITS, "e2e", 0.95, 1100, seed)) for seed in range(SEEDS)]
    found: list[Tried] = [one for run in runs for one in run]
    lost = [one for one in found if one.cause == HITS]
    assert len(lost) == SEEDS  # a twin in all of them
    truth, value = (np.mean([getattr(one, name) for one in lost]) for name in ("truth", "value"))
    assert value == pytest.approx(truth, rel=0.05)
    assert sum(one.holds for one in found) >= 2 * SEEDS - 3  # of 16 intervals of 95 %: fewer in 1 % of cases
