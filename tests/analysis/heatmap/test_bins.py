"""Columns: every block is in one of them, those at the beginning in one of its own."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analysis.heatmap.bins import MOST, covered, edges, ratio, reached, spans


@given(st.integers(1, 3_000_000), st.sampled_from([1, 16, 24, 64, 2144]))
def test_columns_reach_the_end_and_grow(last: int, unit: int) -> None:
    found = edges(last, unit)
    widths = np.diff(found)
    assert found[0] == 0
    assert found[-1] >= last
    assert len(widths) <= MOST
    assert (widths > 0).all()
    assert (found % unit == 0).all()
    assert widths[0] == unit or last > unit * MOST


def test_few_blocks_have_a_column_each() -> None:
    assert edges(160, 16).tolist() == list(range(0, 161, 16))
    assert (np.diff(edges(60 * 16, 16)) == 16).all()


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.integers(1, 9), st.sampled_from([16, 32, 48])),
        min_size=1,
        max_size=20,
    )
)
def test_blocks_are_counted_once_each(prompts: list[tuple[int, int, int]]) -> None:
    blocks, count, size = (np.array(column, np.int64) for column in zip(*prompts, strict=True))
    bounds = edges(int((blocks * size).max()) + 1, 16)
    row = np.zeros(len(blocks), np.int64)
    first, behind = spans(bounds, size)
    inside = covered(row, 1, blocks, count, first, behind)
    assert inside.sum() == (blocks * count).sum()
    some = reached(row, 1, blocks, count, first, behind)
    assert (some <= inside).all()
    assert some[0, 0] == count[blocks > 0].sum()


def test_nothing_of_nothing_is_not_known() -> None:
    assert np.isnan(ratio(np.array([0]), np.array([0]))[0])
