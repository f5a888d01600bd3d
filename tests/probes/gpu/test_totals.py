"""Totals never fall and are never too large, whatever a device's counter does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from probes.gpu.totals import Totals

STEPS = st.lists(st.tuples(st.integers(0, 2**40), st.sampled_from(["count", "reset", "pause"])), max_size=50)


@given(STEPS, st.integers(0, 2**40))
def test_a_total_only_grows_and_never_beyond_what_happened(steps: list[tuple[int, str]], first: int) -> None:
    totals, raw, happened, before = Totals(), first, 0, 0.0
    assert totals.seen("key", "part", raw)
    for amount, what in steps:
        happened += amount
        if what == "reset":
            raw = 0  # as a driver that is loaded anew; then it counts on
        elif what == "pause":
            totals.pause()
        raw += amount
        totals.seen("key", "part", raw)
        total = totals.of("key")
        assert total is not None
        assert before <= total <= happened
        before = total


@given(st.lists(st.integers(0, 2**30), max_size=30))
def test_a_counter_that_never_goes_back_is_counted_whole(amounts: list[int]) -> None:
    totals, raw = Totals(), 17
    totals.seen("key", "part", raw)
    for amount in amounts:
        raw += amount
        assert totals.seen("key", "part", raw)
    assert totals.of("key") == sum(amounts)


def test_parts_of_a_key_add_up_and_keys_stand_apart() -> None:
    totals = Totals()
    for link in (0, 1):
        totals.seen("nvlink", link, 100)
        totals.seen("nvlink", link, 105)
    totals.add("pcie", 3)
    assert (totals.of("nvlink"), totals.of("pcie"), totals.of("c2c")) == (10, 3, None)
