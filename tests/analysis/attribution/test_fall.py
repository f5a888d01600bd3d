"""What fell between two servings of the same requests: the intervals hold the truth, whatever load does to both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.attribution.certainty.fall import fall
from analysis.attribution.model import Side
from analysis.quantiles import hd_quantile
from tests.analysis.attribution.contention import Draws, World, side

DRAWS = Draws.of(400, 0)


def served(n: int, seed: int, saved: float, load: float = 30.0) -> tuple[Side, Side]:
    """Requests that wait for others, the same ones in both servings, and each served once with a noise of its own; the
    second one an hour later and `saved` ms sooner."""
    rng = np.random.default_rng(seed)
    like = side(World(), replace(DRAWS, **{name: getattr(DRAWS, name)[:n] for name in _COLUMNS}))
    wait = load * np.abs(np.convolve(rng.normal(size=n + 40), np.ones(40) / 6, "valid")[:n])
    before, after = (100 + wait + rng.exponential(10.0, n) for _ in range(2))
    later = replace(
        like, arrival=like.arrival + 3600, begin=like.begin + 3600, end=like.end + 3600, totals=after - saved
    )
    return replace(like, totals=before), later


_COLUMNS = ("gap", "prompt", "completion", "hit", "host", "before", "after")


@pytest.mark.parametrize("q", [0.95, None])
def test_intervals_hold_the_truth(q: float | None) -> None:
    """Of 200 servings each, where 95 % are promised and of 500 93.2 % were seen."""
    rng, inside, width = np.random.default_rng(1), 0, []
    for seed in range(200):
        fell, _ = fall(*served(400, seed, 12.0), q, rng)
        assert fell.low is not None
        assert fell.high is not None
        inside += bool(fell.holds(12.0))
        width.append(fell.high - fell.low)
    assert inside >= 180
    assert np.median(width) < (40 if q else 6), "the load, which moves both, is not in it"


def test_the_value_is_the_difference_and_what_else_is_unknown_widens_it() -> None:
    before, after = served(400, 5, 12.0)
    for q in (0.5, 0.95, None):
        fell, was = fall(before, after, q, np.random.default_rng(0))
        real = [
            float(one.totals.mean()) if q is None else hd_quantile(one.totals, q) for one in (before, after)
        ]
        assert (was, fell.value) == pytest.approx((real[0], real[0] - real[1]), rel=2e-3)
        wider, _ = fall(before, after, q, np.random.default_rng(0), sigma=20.0)
        assert wider.value == fell.value
        assert wider.high is not None
        assert wider.high - wider.value > 39


def test_too_few_requests_have_no_interval() -> None:
    fell, _ = fall(*served(3, 1, 12.0), None, np.random.default_rng(0))
    assert (fell.low, fell.high) == (None, None)
