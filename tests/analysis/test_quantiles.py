"""Harrell-Davis: reference values computed another way, and the laws it must obey."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.composition import compose, with_rest
from analysis.quantiles import beta_cdf, hd_observation_weights, hd_quantile, hd_rank_weights

quantiles = st.floats(0.01, 0.99)
samples = arrays(np.float64, st.integers(1, 60), elements=st.floats(-1e6, 1e6, width=32))


def integrated(x: float, a: float, b: float) -> float:
    """I_x(a, b) by Gauss-Legendre quadrature of the density, on pieces."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    edges = np.linspace(0, x, 81)
    low, high = edges[:-1, None], edges[1:, None]
    t = (high - low) / 2 * nodes + (high + low) / 2
    log_density = (
        (a - 1) * np.log(t) + (b - 1) * np.log1p(-t) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    )
    return float(((high - low) / 2 * weights * np.exp(log_density)).sum())


@pytest.mark.parametrize(
    ("a", "b"), [(1.5, 1.5), (2.0, 9.0), (50.5, 50.5), (99.0, 2.0), (495.0, 506.0), (9900.0, 101.0)]
)
def test_the_beta_distribution(a: float, b: float) -> None:
    mean = a / (a + b)
    x = np.clip(mean + np.linspace(-4, 4, 9) * math.sqrt(mean * (1 - mean) / (a + b)), 0.001, 0.999)
    assert beta_cdf(x, a, b) == pytest.approx([integrated(float(v), a, b) for v in x], abs=1e-8)


def test_known_weights() -> None:
    # Beta(1.5, 1.5) on halves is symmetric; Beta(2, 2) on thirds: I_x = 3x^2 - 2x^3.
    assert hd_rank_weights(2, 0.5) == pytest.approx([0.5, 0.5])
    assert hd_rank_weights(3, 0.5) == pytest.approx([7 / 27, 13 / 27, 7 / 27])


def test_large_samples_agree_with_the_plain_quantile() -> None:
    values = np.random.default_rng(1).exponential(size=200_000)
    for q in (0.5, 0.95, 0.99):
        assert hd_quantile(values, q) == pytest.approx(-math.log(1 - q), rel=0.02)
        assert hd_quantile(values, q) == pytest.approx(np.quantile(values, q), rel=0.002)


@given(samples, quantiles)
def test_weights_sum_to_one_and_the_estimate_lies_inside(values: np.ndarray, q: float) -> None:
    assert hd_observation_weights(values, q).sum() == pytest.approx(1, abs=1e-8)
    assert values.min() - 1e-6 <= hd_quantile(values, q) <= values.max() + 1e-6


@given(samples, quantiles, st.floats(0.1, 100), st.floats(-1e3, 1e3))
def test_affine_maps_pass_through(values: np.ndarray, q: float, scale: float, shift: float) -> None:
    expected = scale * hd_quantile(values, q) + shift
    assert hd_quantile(values * scale + shift, q) == pytest.approx(expected, rel=1e-6, abs=1e-3)


@given(samples, quantiles, quantiles)
def test_it_rises_with_q(values: np.ndarray, p: float, q: float) -> None:
    low, high = sorted((p, q))
    assert hd_quantile(values, low) <= hd_quantile(values, high) + 1e-6


@given(samples, quantiles, st.randoms())
def test_the_order_of_requests_does_not_matter(values: np.ndarray, q: float, random) -> None:  # type: ignore[no-untyped-def]
    permuted = np.array(random.sample(range(len(values)), len(values)))
    parts = with_rest(values, np.vstack([values * 0.25, np.arange(len(values), dtype=float)]))
    assert compose(values, parts, [q]) == pytest.approx(
        compose(values[permuted], parts[:, permuted], [q]), abs=1e-6
    )


@given(samples, quantiles, st.floats(0.5, 20))
def test_equal_weights_change_nothing(values: np.ndarray, q: float, weight: float) -> None:
    plain = hd_quantile(values, q)
    assert hd_quantile(values, q, np.full(len(values), weight)) == pytest.approx(plain, rel=1e-9, abs=1e-6)


def test_observations_without_weight_count_for_nothing() -> None:
    values, weights = np.array([1.0, 2.0, 3.0, 1e9]), np.array([1.0, 1.0, 1.0, 0.0])
    assert hd_quantile(values, 0.5, weights) == pytest.approx(hd_quantile(values[:3], 0.5))


@given(samples, quantiles, st.data())
def test_a_composition_sums_to_the_quantile(values: np.ndarray, q: float, data: st.DataObject) -> None:
    layers = data.draw(
        arrays(np.float64, (3, len(values)), elements=st.floats(-1e6, 1e6) | st.just(math.nan))
    )
    mean, quantile = compose(values, with_rest(values, layers), [q]).sum(axis=1)
    assert mean == pytest.approx(values.mean(), rel=1e-9, abs=1e-4)
    assert quantile == pytest.approx(hd_quantile(values, q), rel=1e-9, abs=1e-4)


def test_time_that_a_layer_does_not_tell_is_unattributed_not_zero() -> None:
    totals = np.array([10.0, 20.0, 30.0])
    parts = with_rest(totals, np.array([[4.0, math.nan, 12.0], [6.0, 8.0, 18.0]]))
    weights = hd_rank_weights(3, 0.5)
    assert compose(totals, parts, [0.5])[1] == pytest.approx(
        [4 * weights[0] + 12 * weights[2], 6 * weights[0] + 8 * weights[1] + 18 * weights[2], 12 * weights[1]]
    )


@pytest.mark.parametrize(
    ("values", "q", "weights"),
    [([], 0.5, None), ([1.0], 0.0, None), ([1.0], 1.0, None), ([math.nan], 0.5, None), ([1.0], 0.5, [0.0]),
     ([1.0, 2.0], 0.5, [1.0, -1.0])],
)  # fmt: skip
def test_nonsense_is_an_error(values: list[float], q: float, weights: list[float] | None) -> None:
    with pytest.raises(ValueError, match=r"quantile needs|weights are"):
        hd_quantile(np.array(values), q, None if weights is None else np.array(weights))
