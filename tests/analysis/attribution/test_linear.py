"""The linear rule: right for small changes, and its residual says where it is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.attribution.linear import linear, sensitivities
from analysis.attribution.model import Side, Split
from analysis.quantiles import hd_quantile
from tests.analysis.attribution.generators import AS_WAS, plain, resampled, side


def split_of(a: Side, b: Side, q: float | None, rounds: int = 50) -> Split:
    found = linear(a, b, q, resampled(a, b, rounds, blocks=100))
    assert isinstance(found, Split)
    return found


def chain(n: int, seed: int, origin_more: float = 0.0) -> Side:
    """One in five passes the origin, which is slow."""
    rng = np.random.default_rng(seed)
    asked = rng.random(n) < 0.2
    origin = np.where(asked, rng.gamma(4, 10, n) + origin_more, np.nan)
    return plain({"edge": rng.gamma(4, 5, n), "origin": origin})


@pytest.mark.parametrize("q", [0.5, 0.7, 0.9, 0.99])
def test_a_sensitivity_is_what_a_millisecond_more_does(q: float) -> None:
    before = chain(200_000, 1)
    times = before.times.copy()
    times[1] += 0.5
    after = np.nansum(times, axis=0)
    measured = (hd_quantile(after, q) - hd_quantile(before.totals, q)) / 0.5
    assert sensitivities(before, q)["origin"] == pytest.approx(measured, abs=0.03)
    assert sensitivities(before, q)["edge"] == pytest.approx(1.0)


def test_a_small_change_leaves_no_residual() -> None:
    a, b = chain(50_000, 1), chain(50_000, 1, origin_more=1.0)
    split = split_of(a, b, 0.9)
    assert split.values.sum() == pytest.approx(split.change, abs=0.1)
    assert split.residual == pytest.approx(split.change - split.values.sum())
    assert split.notes[0].startswith("sensitivities: edge 1.00, origin 0.")


def test_a_large_change_does() -> None:
    """At the P85 half of the slow requests were at the origin, and all of them once it is far slower."""
    a, b = chain(50_000, 1), chain(50_000, 1, origin_more=200.0)
    split = split_of(a, b, 0.85)
    assert abs(split.residual) > 0.1 * abs(split.change)
    assert split.values.sum() + split.residual == pytest.approx(split.change)


def test_a_layer_that_nobody_passed_before() -> None:
    a, b = chain(5000, 1), chain(5000, 2)
    a = replace(a, times=np.stack([a.times[0], np.full(5000, np.nan)]), totals=a.times[0])
    split = split_of(a, b, 0.5)
    assert np.isfinite(split.values).all()
    assert split.values[1] > 0


def test_the_mean_is_linear_where_all_pass() -> None:
    a, b = side(AS_WAS, 1000, 1), side(replace(AS_WAS, decode=5.0), 1000, 2, "B")
    assert split_of(a, b, None).residual == pytest.approx(0.0, abs=1e-6)


def test_replicates_spread_as_the_estimate_does() -> None:
    values = np.array([split_of(chain(2000, s), chain(2000, 1000 + s), 0.9, 0).values for s in range(60)])
    split = split_of(chain(2000, 5), chain(2000, 6), 0.9, 200)
    # a spread of 60 values is known within 1 / sqrt(120), that of 200 within 1 / 20: four times both
    assert split.replicates.std(axis=0) == pytest.approx(values.std(axis=0), rel=0.45)
