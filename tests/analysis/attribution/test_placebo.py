"""The user's own windows without a deploy tell how often somebody is blamed for nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.attribution.certainty.gate import LOWEST_GATE
from analysis.attribution.certainty.placebo import A_PAIR, binomial, placebo
from analysis.attribution.model import Placebo, Refused, Resampling, Side, Split
from tests.analysis.attribution.loads import by_layer, under_load

HOUR = 3600.0


@pytest.fixture(scope="module")
def day() -> Side:
    return under_load(12_000, 24 * HOUR, 300, np.random.default_rng(0))


def by_mean(a: Side, b: Side, drawn: Resampling) -> Split:
    return by_layer(a, b, drawn, q=None)


def test_the_binomial_interval_is_clopper_and_pearsons() -> None:
    assert binomial(0, 10) == pytest.approx((0, 0.3085), abs=1e-4)
    assert binomial(3, 20) == pytest.approx((0.0321, 0.3789), abs=1e-4)
    assert binomial(20, 20) == pytest.approx((0.8316, 1), abs=1e-4)


def test_pairs_are_disjoint_and_the_rate_has_its_interval(day: Side) -> None:
    windows: list[float] = []

    def watched(a: Side, b: Side, drawn: Resampling) -> Split:
        windows.extend((a.begin, b.begin))
        assert a.arrival.min() >= a.begin
        assert a.arrival.max() < a.end
        return by_mean(a, b, drawn)

    found = placebo(day, HOUR, watched, np.random.default_rng(1))
    assert found.pairs == 12
    assert len(windows) == len(set(windows)) == 24
    assert found.rate == found.blamed / 12
    assert found.blamed <= 1
    assert found.high is not None
    assert found.high > 0.2
    assert "8.25 days" in found.why


def test_windows_lie_as_far_apart_as_asked_and_in_one_span(day: Side) -> None:
    apart: list[float] = []

    def watched(a: Side, b: Side, drawn: Resampling) -> Refused:
        apart.append(b.begin - a.begin)
        assert b.end <= 10 * HOUR or a.begin >= 12 * HOUR
        return Refused("shows", "not now")

    spans = [(0.0, 10 * HOUR), (12 * HOUR, 24 * HOUR)]
    found = placebo(day, HOUR, watched, np.random.default_rng(1), spans=spans, distance_s=3 * HOUR)
    assert set(apart) == {3 * HOUR}
    assert (found.pairs, found.rate) == (0, None)
    assert "enough requests" in found.why


def test_a_fleet_that_jumps_by_itself_raises_the_gate(day: Side) -> None:
    hour = (day.arrival // HOUR).astype(int)
    jumps = 60.0 * (hour % 2)
    times = day.times.copy()
    times[2] += jumps
    restless = Side(**{**vars(day), "times": times, "totals": day.totals + jumps})
    found = placebo(restless, HOUR, by_mean, np.random.default_rng(2))
    assert found.blamed >= 6
    assert found.critical > 4


@pytest.mark.parametrize(("share", "raised"), [(0.002, False), (0.05, True)])
def test_what_is_clear_in_every_window_raises_the_gate_only_where_it_matters(
    day: Side, share: float, raised: bool
) -> None:
    """No two windows are the same: with requests enough any of them differ clearly, by next to nothing."""

    def clear(a: Side, b: Side, drawn: Resampling) -> Split:
        found = by_mean(a, b, drawn)
        values = np.full(len(found.names), share * a.totals.mean())
        noise = np.random.default_rng(0).standard_normal(found.replicates.shape)
        tight = values + 1e-3 * values * noise
        return replace(found, values=values, replicates=tight, change=float(values.sum()))

    found = placebo(day, HOUR, clear, np.random.default_rng(5))
    assert found.pairs == 12
    assert (found.critical > LOWEST_GATE) == raised


def test_short_history_says_what_is_missing(day: Side) -> None:
    found = placebo(day, HOUR, by_mean, np.random.default_rng(3), spans=[(0.0, 3000.0)])
    assert found.rate is None
    assert (
        found.why == "a pair of windows of 60 min takes 2 h without a deploy; the longest stretch is 50 min"
    )
    assert placebo(day, HOUR, by_mean, np.random.default_rng(3), spans=[]).pairs == 0


def test_its_work_is_bounded_and_the_same_seed_gives_the_same(day: Side) -> None:
    def some(work: int) -> Placebo:
        return placebo(day, HOUR / 4, by_mean, np.random.default_rng(4), work=work)

    one = some(0).pairs
    assert one == 1
    bounded, all_of_them = some(8 * A_PAIR), some(10**9)
    assert one < bounded.pairs <= 8 < all_of_them.pairs
    assert some(8 * A_PAIR) == bounded
