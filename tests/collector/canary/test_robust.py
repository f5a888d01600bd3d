"""Robust estimates: bounds that cover what they promise, and outliers that move nothing."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.canary import robust

XS = (256, 696, 1147, 1597, 2048)
finite = st.floats(-1e3, 1e3)


def _rounds(random: Random, noise: float, drift: float = 0.0) -> list[list[robust.Point]]:
    return [[(x, 0.1 * x + drift * number + random.gauss(0, noise)) for x in XS] for number in range(5)]


def test_slopes_are_within_their_bounds_as_often_as_promised() -> None:
    random = Random(7)
    inside = 0
    for _ in range(400):
        found = robust.slope(_rounds(random, 8, drift=random.uniform(-100, 100)))
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= 0.1 <= found.high
    assert 370 <= inside < 400, "95 % or a little more, and not all"


@pytest.mark.parametrize("count", [6, 9, 20, 40])
def test_medians_are_within_their_bounds_as_often_as_promised(count: int) -> None:
    random = Random(count)
    inside = 0
    for _ in range(400):
        found = robust.median([random.gauss(0, 1) for _ in range(count)])
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= 0 <= found.high
    assert 370 <= inside < 400


def test_too_few_values_have_no_bounds() -> None:
    assert robust.median([1.0, 2.0, 3.0]) == robust.Estimate(2.0, None, None)
    assert robust.slope([[(1, 1.0), (2, 3.0)]]) == robust.Estimate(2.0, None, None)
    assert robust.slope([[(1, 1.0)], [(2, 2.0)], []]) is None


@given(finite, finite, st.lists(st.integers(1, 10_000), min_size=4, max_size=8, unique=True))
def test_a_line_is_found_exactly_in_spite_of_an_outlier(by: float, level: float, xs: list[int]) -> None:
    rounds = [[(x, level + by * x) for x in xs] for _ in range(3)]
    rounds[1][2] = (xs[2], 1e9)
    found = robust.slope(rounds)
    assert found is not None
    assert found.value == pytest.approx(by, abs=1e-6)
    assert robust.intercept([p for group in rounds for p in group], by) == pytest.approx(level, abs=1e-6)
