"""Intervals hold what they promise, also where requests resemble their neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.bootstrap import block_length, draw, interval, replicate, resamples
from analysis.quantiles import hd_quantile, hd_rank_mass, hd_resampled_weights


def autoregressive(n: int, phi: float, rng: np.random.Generator) -> np.ndarray:
    noise = rng.standard_normal(n + 200)
    series = np.zeros(n + 200)
    for i in range(1, n + 200):
        series[i] = phi * series[i - 1] + noise[i]
    return series[200:]


def replicates(series: np.ndarray, length: int | None, count: int, rng: np.random.Generator) -> np.ndarray:
    """Medians of resamples; length None: chosen from the data."""
    order, mass = np.argsort(series), hd_rank_mass(len(series), 0.5)

    def medians(counts: np.ndarray) -> np.ndarray:
        return hd_resampled_weights(counts[:, order], mass) @ series[order][:, None]

    if length is None:
        return replicate(series, medians, count, rng)[:, 0]
    return np.concatenate([medians(counts) for counts in draw(len(series), length, count, rng)])[:, 0]


def coverage(make, truth: float, n: int, rounds: int, length: int | None = None) -> float:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(rounds):
        low, high = interval(replicates(make(n, rng), length, 400, rng))
        held += low <= truth <= high
    return held / rounds


def test_independent_requests_are_covered() -> None:
    assert 0.90 <= coverage(lambda n, rng: rng.exponential(size=n), np.log(2), 80, 200) <= 0.99


def test_dependent_requests_are_covered_because_blocks_are_kept() -> None:
    assert coverage(lambda n, rng: autoregressive(n, 0.8, rng), 0.0, 500, 150) >= 0.85


def test_resampling_one_by_one_would_not_do() -> None:
    """The test above can fail: without blocks the same data are covered far less often."""
    assert coverage(lambda n, rng: autoregressive(n, 0.8, rng), 0.0, 500, 150, length=1) < 0.7


def test_block_length_follows_the_memory_of_the_data() -> None:
    rng = np.random.default_rng(3)
    lengths = [
        np.mean([block_length(autoregressive(2000, phi, rng)) for _ in range(10)]) for phi in (0.0, 0.5, 0.9)
    ]
    assert lengths[0] < 5 < lengths[1] < lengths[2]


@pytest.mark.parametrize("series", [np.ones(50), np.arange(5.0), np.zeros(1)])
def test_series_that_say_nothing_are_taken_one_by_one(series: np.ndarray) -> None:
    assert block_length(series) == 1


@pytest.mark.parametrize(("n", "length"), [(10, 5), (10, 3), (7, 1), (9, 9)])
def test_a_draw_takes_whole_blocks_and_as_many_observations(n: int, length: int) -> None:
    counts = np.concatenate(list(draw(n, length, 3000, np.random.default_rng(0))))
    assert counts.shape == (3000, n)
    assert (counts.sum(axis=1) == n).all()
    assert counts.min() >= 0
    # Every observation is as likely as any other, also near the ends: the series is closed to a circle.
    assert counts.mean(axis=0) == pytest.approx(np.ones(n), abs=0.1)
    # A block never stands alone: what is drawn has a neighbour that is drawn with it.
    if length > 1 and n % length == 0:
        neighbours = np.maximum(np.roll(counts, 1, axis=1), np.roll(counts, -1, axis=1))
        assert (neighbours[counts > 0] > 0).all()


@pytest.mark.parametrize("q", [0.1, 0.5, 0.99])
def test_counts_give_the_quantile_of_the_resample(q: float) -> None:
    values = np.sort(np.random.default_rng(2).lognormal(size=30))
    counts = next(draw(30, 4, 50, np.random.default_rng(3)))
    expected = [hd_quantile(np.repeat(values, row.astype(int)), q) for row in counts]
    assert hd_resampled_weights(counts, hd_rank_mass(30, q)) @ values == pytest.approx(expected)


def test_the_interval_holds_the_estimate_of_a_skewed_sample() -> None:
    series = np.random.default_rng(5).lognormal(size=14)
    low, high = interval(replicates(series, None, 2000, np.random.default_rng(0)))
    assert low < hd_quantile(series, 0.5) < high


def test_large_sets_get_fewer_resamples() -> None:
    assert [resamples(n) for n in (0, 100, 100_000, 10_000_000)] == [2000, 2000, 200, 200]
