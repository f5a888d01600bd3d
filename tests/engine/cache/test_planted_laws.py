"""Laws that are planted: what of a held prefix is used again, and how long a block lives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.alignment import Alignment
from engine.cache.kv_cache import KVCache
from tests.engine.cache.model import BLOCK, cached, index_of, make_cache, replay, run, start


@given(units=st.integers(0, 7), drop=st.booleans(), held=st.integers(1, 60), prompt=st.integers(1, 60))
def test_what_is_used_again_is_what_the_alignment_serves(
    units: int, drop: bool, held: int, prompt: int
) -> None:
    cache = make_cache(cache_unit=units * BLOCK, drop_last_unit=drop, device_blocks=64)
    run(cache, range(held))
    law = Alignment(units * BLOCK or BLOCK, int(drop))
    there = min(held, prompt) // BLOCK * BLOCK
    assert cached(cache, range(prompt)) == (law.served(prompt, there), 0, 0)
    run(cache, range(prompt))  # what is computed beside what is there is not there twice
    assert cache.stats().counts.evictions.total() == 0
    index = {medium: set[int]() for medium in index_of(cache)}
    replay(cache.drain_events(), index)
    assert index == index_of(cache)
    assert len(index["GPU"]) == max(held, prompt) // BLOCK


@pytest.mark.parametrize("unit", [16, 528, 1072, 2144])
@pytest.mark.parametrize("drop", [False, True])
def test_units_of_hybrid_models(unit: int, drop: bool) -> None:
    """vLLM issues 38182 and 53670 (1,072 and 2,144 tokens), in blocks of 16."""
    length = 3 * unit + 1
    cache = make_cache(block_size=16, cache_unit=unit, drop_last_unit=drop, device_blocks=640)
    run(cache, range(length))
    assert cached(cache, range(length)) == ((2 if drop else 3) * unit, 0, 0)
    assert cached(cache, range(length - 1)) == ((1 if drop else 2) * unit, 0, 0)


def test_a_request_may_leave_the_cache_unread() -> None:
    cache = make_cache()
    run(cache, range(14))
    cache.drain_events()
    match = cache.match(range(14), read=False)
    assert (match.blocks, len(match.block_hashes)) == ([], 3)
    cache.drop(match)
    assert cached(cache, range(14)) == (12, 0, 0)


def test_what_was_found_is_told_again_on_request() -> None:
    cache = make_cache()
    run(cache, range(14))
    first = cache.drain_events()
    table = start(cache, range(14))
    cache.report(table)
    assert cache.drain_events() == first
    assert cached(cache, range(14)) == (12, 0, 0)


def test_a_load_that_fails_leaves_the_blocks_where_they_are() -> None:
    cache = make_cache(host_blocks=16)
    run(cache, range(41))
    cache.evict(1.0)
    table = cache.open(cache.match(range(41)), 41)
    assert table is not None
    cache.load(table, 3)
    cache.fail(table)
    assert (table.loading, table.ready, table.lost) == (None, 12, 28)
    assert cached(cache, range(41)) == (12, 28, 0)
    cache.check()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def aging(**settings: object) -> tuple[KVCache, Clock]:
    """A cache whose blocks live for 10 seconds of a clock that is set by hand."""
    clock = Clock()
    return make_cache(clock, cache_ttl=10.0, **settings), clock


def test_a_block_that_nobody_used_is_forgotten_on_every_tier() -> None:
    cache, clock = aging(host_blocks=16)
    assert cache.expire() is None
    run(cache, range(9))
    cache.evict(1.0)
    run(cache, range(100, 109))
    assert cached(cache, range(9)) == (0, 8, 0)
    clock.now = 9.9
    assert cache.expire() is not None
    run(cache, range(5))  # its first block is used again
    clock.now = 11.0
    cache.expire()
    assert cached(cache, range(9)) == (4, 0, 0)
    assert cached(cache, range(100, 109)) == (0, 0, 0)
    clock.now = 22.0
    cache.expire()
    assert cache.expire() is None
    assert (index := index_of(cache)) == {medium: set() for medium in index}
    cache.check()


def test_a_block_that_is_held_does_not_expire() -> None:
    cache, clock = aging()
    table = start(cache, range(9))
    clock.now = 100.0
    cache.expire()
    assert cached(cache, range(9)) == (8, 0, 0)
    cache.release(table)
    clock.now = 109.0
    cache.expire()
    assert cached(cache, range(9)) == (8, 0, 0)
    cache.check()
