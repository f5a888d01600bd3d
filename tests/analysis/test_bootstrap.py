"""Intervals hold what they promise, also where requests resemble their neighbours; else there is none."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from analysis.bootstrap import FEWEST_BEYOND, block_length, draw, interval, replicate, resamples, supports
from analysis.quantiles import hd_quantile, hd_rank_mass, hd_resampled_weights

Make = Callable[[int, np.random.Generator], np.ndarray]


def autoregressive(n: int, phi: float, rng: np.random.Generator) -> np.ndarray:
    noise = rng.standard_normal(n + 200)
    series = np.zeros(n + 200)
    for i in range(1, n + 200):
        series[i] = phi * series[i - 1] + noise[i]
    return series[200:]


def replicates(
    series: np.ndarray, length: int | None, count: int, rng: np.random.Generator, q: float = 0.5
) -> np.ndarray:
    """Quantiles of resamples; length None: chosen from the data."""
    order, mass = np.argsort(series), hd_rank_mass(len(series), q)

    def quantiles(counts: np.ndarray) -> np.ndarray:
        return hd_resampled_weights(counts[:, order], mass) @ series[order]

    if length is None:
        return replicate(series, quantiles, count, rng)
    return np.concatenate([quantiles(counts) for counts in draw(len(series), length, count, rng)])


def coverage(
    make: Make, truth: float, n: int, rounds: int, *, length: int | None = None, q: float = 0.5
) -> float:
    rng = np.random.default_rng(7)
    intervals = [interval(replicates(make(n, rng), length, 400, rng, q)) for _ in range(rounds)]
    return sum(low <= truth <= high for low, high in intervals) / rounds


def exponential(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.exponential(size=n)


def dependent(n: int, rng: np.random.Generator) -> np.ndarray:
    return autoregressive(n, 0.8, rng)


@pytest.mark.parametrize("n", [14, 28, 80])
def test_independent_requests_are_covered(n: int) -> None:
    assert 0.88 <= coverage(exponential, math.log(2), n, 200) <= 0.99


def test_dependent_requests_are_covered_because_blocks_are_kept() -> None:
    assert coverage(dependent, 0.0, 500, 100) >= 0.85


def test_resampling_one_by_one_would_not_do() -> None:
    """The test above can fail: without blocks the same data are covered far less often."""
    assert coverage(dependent, 0.0, 500, 100, length=1) < 0.7


@pytest.mark.parametrize(("q", "n_for_one_beyond"), [(0.9, 10), (0.99, 100)])
def test_tails_have_an_interval_only_where_it_would_hold(q: float, n_for_one_beyond: int) -> None:
    fewest, truth = FEWEST_BEYOND * n_for_one_beyond, -math.log(1 - q)
    assert supports(fewest, q)
    assert not supports(fewest - 1, q)
    assert coverage(exponential, truth, fewest, 120, q=q) >= 0.88
    assert coverage(exponential, truth, n_for_one_beyond, 120, q=q) < 0.75


def test_the_change_between_two_small_sets_is_covered() -> None:
    """14 requests against 28, as in a short experiment."""
    rng, truth, held = np.random.default_rng(11), 2 * math.log(2), 0
    for _ in range(200):
        a, b = exponential(14, rng), 3 * exponential(28, rng)
        low, high = interval(replicates(b, None, 400, rng) - replicates(a, None, 400, rng))
        held += low <= truth <= high
    assert 0.88 <= held / 200 <= 0.99


def test_several_series_share_the_longest_blocks() -> None:
    rng = np.random.default_rng(2)
    series = np.vstack([rng.standard_normal(500), autoregressive(500, 0.9, rng)])
    drawn = replicate(series, lambda counts: counts, 50, np.random.default_rng(0))
    (expected,) = draw(500, block_length(series[1]), 50, np.random.default_rng(0))
    assert block_length(series[0]) < block_length(series[1])
    assert (drawn == expected).all()


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
