"""Messages of a recording by their numbers: what is not there is missing, what comes late is not."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.kv_events import KVEventBatch
from cachemodel.prompts.kv_recording import Recording
from tests.cachemodel.prompts.test_kv import START, event, line


def read(numbers: list[int], first_payload: int = 0) -> Recording:
    reader = Recording()
    for at, number in enumerate(numbers, first_payload):
        batch = KVEventBatch(START + at, [event([at, at], [at + 1])])
        assert reader.read(json.loads(line(batch, number)), "f") == ""
    return reader


@given(st.sets(st.integers(1, 30)), st.randoms(use_true_random=False))
def test_whatever_the_order_only_what_is_not_there_is_missing(lost: set[int], order: random.Random) -> None:
    """Neighbours change places; the first and the last message are there."""
    there = [number for number in range(32) if number not in lost]
    for at in range(1, len(there) - 2):
        if order.random() < 0.3:
            there[at], there[at + 1] = there[at + 1], there[at]
    reader = read(there)
    assert reader.missing == len(lost)
    assert (reader.late > 0) == (there != sorted(there))


@pytest.mark.parametrize(
    ("numbers", "missing", "late"),
    [
        ([3, 1, 0, 2, 4], 0, 1),
        ([4, 3, 2, 1, 0], 0, 3),
        ([0, 1 << 60, 1], (1 << 60) - 2, 1),
        ([7, 8, 0, 1, 2], 0, 0),
        ([0, 1, 2, 0, 1, 4], 2, 0),
    ],
    ids=["shuffled", "backwards", "a jump", "begun anew", "begun anew with a gap"],
)
def test_orders(numbers: list[int], missing: int, late: int) -> None:
    reader = read(numbers)
    assert (reader.missing, reader.late) == (missing, late)
