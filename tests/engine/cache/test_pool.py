"""The device's blocks: none twice, and in runs where there are any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.errors import UserError
from engine.cache.pool import DevicePool
from engine.config import EngineConfig
from tests.engine.cache.model import MODEL, make_cache


def make_pool(blocks: int) -> DevicePool:
    return DevicePool(MODEL, EngineConfig(device_blocks=blocks, block_size=1))


def test_blocks_come_in_runs() -> None:
    pool = make_pool(12)
    assert pool.take(3) == [0, 1, 2]
    assert pool.take(4) == [3, 4, 5, 6]
    for number in (1, 3, 4, 5):
        pool.give(number)
    assert pool.take(3) == [3, 4, 5]  # not 1, which fits no run of three
    assert pool.take(2, after=0) == [1, 7]  # the one that follows, then what there is
    assert pool.take(1, after=7) == [8]
    assert sorted(pool.take(3)) == [9, 10, 11]
    assert pool.free == 0


@pytest.mark.parametrize("setting", ["device_blocks", "host_blocks"])
def test_memory_that_is_not_there_is_an_error_a_person_can_read(setting: str) -> None:
    with pytest.raises(UserError, match=rf"no \d+\.\d GiB of memory .* choose fewer {setting}"):
        make_cache(**{setting: 1 << 40})


def test_a_block_is_not_given_back_twice() -> None:
    pool = make_pool(2)
    (number,) = pool.take(1)
    pool.give(number)
    with pytest.raises(ValueError, match="free already"):
        pool.give(number)


@given(st.lists(st.tuples(st.sampled_from(["take", "give", "resize"]), st.integers(0, 12)), max_size=40))
def test_free_withheld_and_taken_are_all_there_is(steps: list[tuple[str, int]]) -> None:
    pool, taken = make_pool(12), []
    for step, n in steps:
        if step == "take":
            got = pool.take(min(n, pool.free), taken[-1] if taken else None)
            assert len(got) == min(n, pool.free + len(got))
            taken += got
        elif step == "give" and taken:
            pool.give(taken.pop(n % len(taken)))
        elif step == "resize":
            pool.resize(n)
            assert pool.capacity == n
        free, withheld = pool.state()
        assert sorted([*free, *withheld, *taken]) == list(range(12))
        assert len(free) == pool.free
        assert pool.free == 0 or pool.owed == 0
        assert pool.free + len(taken) - pool.owed == pool.capacity
