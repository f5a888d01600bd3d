"""How long requests resemble their neighbours, and where an interval can hold what it promises."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.bootstrap import FEWEST_BEYOND, block_length, supports
from analysis.quantiles import hd_rank_weights


def autoregressive(n: int, phi: float, rng: np.random.Generator) -> np.ndarray:
    noise = rng.standard_normal(n + 200)
    series = np.zeros(n + 200)
    for i in range(1, n + 200):
        series[i] = phi * series[i - 1] + noise[i]
    return series[200:]


def coverage(n: int, q: float) -> float:
    """How often a percentile interval of independent exponential times holds their quantile."""
    rng, truth, rounds, held = np.random.default_rng(7), -math.log(1 - q), 100, 0
    weights = hd_rank_weights(n, q)
    for _ in range(rounds):
        times = rng.exponential(size=n)
        drawn = np.sort(times[rng.integers(0, n, (150, n))], axis=1) @ weights
        low, high = np.quantile(drawn, [0.025, 0.975])
        held += bool(low <= truth <= high)
    return held / rounds


@pytest.mark.parametrize(("q", "n_for_one_beyond"), [(0.5, 2), (0.9, 10), (0.99, 100)])
def test_tails_have_an_interval_only_where_it_would_hold(q: float, n_for_one_beyond: int) -> None:
    fewest = FEWEST_BEYOND * n_for_one_beyond
    assert supports(fewest, q)
    assert not supports(fewest - 1, q)
    assert coverage(fewest, q) >= 0.85
    assert coverage(n_for_one_beyond, q) < 0.75


def test_block_length_follows_the_memory_of_the_data() -> None:
    rng = np.random.default_rng(3)
    lengths = [
        np.mean([block_length(autoregressive(2000, phi, rng)) for _ in range(10)]) for phi in (0.0, 0.5, 0.9)
    ]
    assert lengths[0] < 5 < lengths[1] < lengths[2]


@pytest.mark.parametrize("series", [np.ones(50), np.arange(5.0), np.zeros(1)])
def test_series_that_say_nothing_are_taken_one_by_one(series: np.ndarray) -> None:
    assert block_length(series) == 1
