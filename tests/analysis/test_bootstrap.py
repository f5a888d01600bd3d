"""Intervals hold what they promise, also where requests resemble their neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.bootstrap import block_length, draw, interval, replicate, resamples
from analysis.quantiles import hd_quantile, hd_rank_weights


def autoregressive(n: int, phi: float, rng: np.random.Generator) -> np.ndarray:
    noise = rng.standard_normal(n + 200)
    series = np.zeros(n + 200)
    for i in range(1, n + 200):
        series[i] = phi * series[i - 1] + noise[i]
    return series[200:]


def coverage(make, truth: float, n: int, rounds: int) -> float:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(7)
    weights = hd_rank_weights(n, 0.5)
    held = 0
    for _ in range(rounds):
        series = make(n, rng)
        low, high = interval(
            replicate(series, lambda rows, s=series: np.sort(s[rows], axis=1) @ weights[:, None], 400, rng)[
                :, 0
            ]
        )
        held += low <= truth <= high
    return held / rounds


def test_independent_requests_are_covered() -> None:
    assert 0.90 <= coverage(lambda n, rng: rng.exponential(size=n), np.log(2), 80, 200) <= 0.99


def test_dependent_requests_are_covered_because_blocks_are_kept() -> None:
    assert coverage(lambda n, rng: autoregressive(n, 0.8, rng), 0.0, 500, 150) >= 0.85


def test_resampling_one_by_one_would_not_do() -> None:
    """The test above can fail: without blocks the same data are covered far less often."""
    rng = np.random.default_rng(7)
    weights = hd_rank_weights(500, 0.5)
    held = 0
    for _ in range(150):
        series = autoregressive(500, 0.8, rng)
        estimates = np.concatenate(
            [np.sort(series[rows], axis=1) @ weights for rows in draw(500, 1, 400, rng)]
        )
        low, high = interval(estimates)
        held += low <= 0 <= high
    assert held / 150 < 0.7


def test_block_length_follows_the_memory_of_the_data() -> None:
    rng = np.random.default_rng(3)
    lengths = [
        np.mean([block_length(autoregressive(2000, phi, rng)) for _ in range(10)]) for phi in (0.0, 0.5, 0.9)
    ]
    assert lengths[0] < 5 < lengths[1] < lengths[2]


@pytest.mark.parametrize("series", [np.ones(50), np.arange(5.0), np.zeros(1)])
def test_series_that_say_nothing_are_taken_one_by_one(series: np.ndarray) -> None:
    assert block_length(series) == 1


def test_a_draw_takes_whole_blocks() -> None:
    rows = np.concatenate(list(draw(10, 5, 1000, np.random.default_rng(0))))
    assert rows.shape == (1000, 10)
    steps = np.diff(rows.reshape(1000, 2, 5), axis=2) % 10
    assert (steps == 1).all()
    assert set(rows.ravel()) == set(range(10))


def test_the_interval_holds_the_estimate_of_a_skewed_sample() -> None:
    series = np.random.default_rng(5).lognormal(size=14)
    weights = hd_rank_weights(14, 0.5)
    found = replicate(
        series, lambda rows: np.sort(series[rows], axis=1) @ weights[:, None], 2000, np.random.default_rng(0)
    )
    low, high = interval(found[:, 0])
    assert low < hd_quantile(series, 0.5) < high


def test_large_sets_get_fewer_resamples() -> None:
    assert [resamples(n) for n in (0, 100, 100_000, 10_000_000)] == [2000, 2000, 400, 200]
