"""Binned Harrell-Davis against the exact one, on a set and on its resamples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.attribution.binned import Blocks, histogram, resampled
from analysis.quantiles import hd_observation_weights, hd_quantile

quantiles = st.sampled_from([0.05, 0.5, 0.9, 0.95, 0.99])
times = arrays(np.float64, st.integers(1, 80), elements=st.floats(-1e3, 1e6, width=32))


def in_blocks(n: int, rounds: int = 20, blocks: int = 50, seed: int = 0) -> Blocks:
    k = min(n, blocks)
    counts = np.random.default_rng(seed).multinomial(k, np.full(k, 1 / k), size=rounds)
    return Blocks(np.arange(n) * k // n, counts.astype(np.float64))


def tolerance(values: np.ndarray) -> float:
    return 0.001 * float(np.abs(values).max()) + 1e-9


@settings(max_examples=60, deadline=None)
@given(times, quantiles)
def test_few_values_of_any_kind(values: np.ndarray, q: float) -> None:
    found = resampled(values, q, in_blocks(len(values)))
    assert found.value == pytest.approx(hd_quantile(values, q), abs=tolerance(values))


@pytest.mark.parametrize("q", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("n", [300, 20_000])
def test_within_a_thousandth_also_on_resamples(n: int, q: float) -> None:
    values = np.random.default_rng(n).lognormal(5, 1, n)
    blocks = in_blocks(n)
    found = resampled(values, q, blocks)
    assert found.value == pytest.approx(hd_quantile(values, q), rel=1e-3)
    for counts, replicate in zip(blocks.counts, found.replicates, strict=True):
        drawn = np.repeat(values, counts[blocks.of].astype(int))
        # A resample of uneven blocks has other than n requests; its effective size is kept at n.
        assert replicate == pytest.approx(hd_quantile(drawn, q), rel=1e-3)


@pytest.mark.parametrize("q", [0.5, 0.99])
def test_weights(q: float) -> None:
    rng = np.random.default_rng(5)
    values, weights = rng.exponential(100, 5000), rng.choice([0.0, 0.5, 3.0], 5000)
    found = resampled(values, q, in_blocks(5000), weights)
    assert found.value == pytest.approx(hd_quantile(values, q, weights), rel=1e-3)


def test_few_long_blocks_move_the_quantile_far() -> None:
    rng = np.random.default_rng(6)
    values = np.concatenate([rng.exponential(10 * (1 + i), 1000) for i in range(8)])
    blocks = in_blocks(8000, blocks=8)
    found = resampled(values, 0.9, blocks)
    for counts, replicate in zip(blocks.counts, found.replicates, strict=True):
        assert replicate == pytest.approx(
            hd_quantile(np.repeat(values, counts[blocks.of].astype(int)), 0.9), rel=2e-3
        )


def test_the_mean_is_the_mean() -> None:
    values, blocks = np.arange(10.0), in_blocks(10)
    found = resampled(values, None, blocks)
    assert found.value == 4.5
    assert found.replicates == pytest.approx(blocks.counts @ values / 10)


@pytest.mark.parametrize(
    "values", [np.full(100, 7.0), np.zeros(50), np.repeat([1.0, 2.0], 50), np.array([3.0])]
)
def test_ties_and_constants(values: np.ndarray) -> None:
    found = resampled(values, 0.5, in_blocks(len(values)))
    assert found.value == pytest.approx(hd_quantile(values, 0.5), rel=1e-3)
    assert np.isfinite(found.replicates).all()


def test_units_and_one_giant_do_not_matter() -> None:
    values = np.random.default_rng(1).lognormal(3, 0.5, 4000)
    blocks = in_blocks(4000)
    found = resampled(values, 0.95, blocks)
    thousand = resampled(values * 1000, 0.95, blocks)
    assert thousand.replicates == pytest.approx(found.replicates * 1000, rel=1e-9)
    values[7] = 1e9
    assert resampled(values, 0.95, blocks).value == pytest.approx(hd_quantile(values, 0.95), rel=1e-3)


@pytest.mark.parametrize("q", [0.5, 0.95])
def test_what_moving_some_requests_does(q: float) -> None:
    rng = np.random.default_rng(2)
    values = rng.gamma(2.0, 50.0, 20_000)
    found = resampled(values, q, in_blocks(20_000))
    by = np.where(rng.random(20_000) < 0.1, 2.0, 0.0)
    truth = hd_quantile(values + by, q) - hd_quantile(values, q)
    assert found.moved(values, by).mean() == pytest.approx(truth, rel=0.05)


def test_parts_at_the_quantile() -> None:
    rng = np.random.default_rng(3)
    values = rng.exponential(10, 5000)
    blocks = in_blocks(5000)
    found = histogram(values, 0.9, blocks)
    part = rng.random(5000) * values
    exact = part @ hd_observation_weights(values, 0.9)
    assert found.of(part, blocks)[0] == pytest.approx(exact, rel=1e-3)
    resampled_twice = found.of(part, blocks) + found.of(values - part, blocks)
    assert resampled_twice == pytest.approx(found.of(values, blocks))
