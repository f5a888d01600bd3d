"""A counter that took turns: what it would have counted, never less than before, never out of nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.perf.scaling import ZERO, Raw, Scaled, between

spans = st.lists(
    st.tuples(st.integers(0, 1 << 30), st.integers(0, 1 << 30), st.floats(0, 1)), min_size=1, max_size=20
)


def readings(steps: list[tuple[int, int, float]]) -> list[Raw]:
    """(counted, enabled, share of it running) of each span, added up."""
    now, found = ZERO, []
    for counted, enabled, share in steps:
        running = int(enabled * share)
        now = Raw(now.value + (counted if running else 0), now.enabled + enabled, now.running + running)
        found.append(now)
    return found


@given(spans)
def test_a_total_never_goes_back(steps: list[tuple[int, int, float]]) -> None:
    scaled, last = Scaled(), 0.0
    for now in readings(steps):
        scaled.update(now)
        assert scaled.total >= last
        last = scaled.total
        ratio = scaled.ratio(now)
        assert ratio is None or 0 <= ratio <= 1


@given(spans)
def test_never_below_what_was_counted(steps: list[tuple[int, int, float]]) -> None:
    scaled = Scaled()
    for now in readings(steps):
        scaled.update(now)
        assert scaled.total >= now.value * (1 - 1e-9)


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 100)), min_size=1, max_size=20),
)
def test_a_steady_rate_is_found_whatever_its_turns(rate: int, steps: list[tuple[int, int]]) -> None:
    scaled, now, enabled = Scaled(), ZERO, 0
    for unit, share in steps:
        span = unit * 100
        enabled += span
        running = unit * share
        now = Raw(now.value + rate * running, now.enabled + span, now.running + running)
        scaled.update(now)
    assert scaled.total == pytest.approx(rate * enabled)
    assert scaled.ratio(now) == pytest.approx(now.running / now.enabled)


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_counted_all_the_time_is_not_scaled(value: int, time: int) -> None:
    assert between(ZERO, Raw(value, time, time)) == (value if time else 0)


def test_never_its_turn_is_no_data() -> None:
    assert between(ZERO, Raw(0, 1000, 0)) is None
    scaled = Scaled()
    scaled.update(Raw(0, 1000, 0))
    assert scaled.running == 0
    assert scaled.ratio(Raw(0, 1000, 0)) == 0
    scaled.update(Raw(500, 2000, 500))
    assert scaled.total == 2000, "the span without data waits for the next"


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 40), st.integers(1, 1 << 20))
def test_what_goes_back_counts_as_nothing(value: int, lower: int, time: int) -> None:
    assert between(Raw(value + lower, 1, 1), Raw(value, 1 + time, 1 + time)) == 0
    assert between(Raw(value, 5, 5), Raw(value, 4, 4)) == 0
