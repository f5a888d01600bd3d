"""What goes when there is no room, and where to; storms, smaller pools and clearing."""

from __future__ import annotations

import random

import pytest

from cachemodel.layers import Tier
from engine.cache.block import Level
from engine.cache.check import CacheInconsistent
from tests.engine.cache.model import BLOCK, cached, compute, make_cache, run, start, verify

A, B, C = ([base + n for n in range(17)] for base in (0, 100, 200))  # four full blocks each


def test_the_least_recently_used_chain_goes_first_and_from_its_end() -> None:
    cache = make_cache(device_blocks=13)
    for prompt in (A, B, C, A):
        run(cache, prompt)
    run(cache, [300, 301, 302, 303, 304])  # two blocks, one is free
    assert [cached(cache, p)[0] for p in (A, B, C)] == [16, 12, 16]
    run(cache, range(400, 413))  # four blocks, of which one is free
    assert [cached(cache, p)[0] for p in (A, B, C)] == [16, 0, 16]


def test_a_shared_prefix_outlives_what_follows_it() -> None:
    cache = make_cache(device_blocks=9)
    system = list(range(8))
    run(cache, [*system, *range(10, 19)])
    run(cache, [*system, *range(20, 29)])
    run(cache, range(50, 70))  # five blocks
    assert cached(cache, [*system, 99]) == (8, 0, 0)
    assert cached(cache, [*system, *range(10, 19)]) == (8, 0, 0)


def test_eviction_is_leaf_first_lru_against_a_plain_search() -> None:
    draw = random.Random(7)
    cache = make_cache(device_blocks=64)
    texts = [[draw.randrange(3) for _ in range(4 * draw.randrange(1, 8) + 1)] for _ in range(40)]
    for text in texts:
        run(cache, text)
    for text in draw.choices(texts, k=30):
        cache.drop(cache.match(text))
    order = []
    while idle := [b for b in cache.index.blocks() if b.level is Level.DEVICE]:
        leaves = [b for b in idle if not b.children]
        oldest = min(b.last_used for b in leaves)
        before = set(idle)
        cache.tiers.evict(Level.DEVICE)
        (gone,) = before - set(cache.index.blocks())
        order.append(gone.last_used)
        assert gone in leaves
        assert gone.last_used == oldest
        cache.check()
    assert len(order) > 40
    assert order == sorted(order)


def test_a_block_that_leaves_one_tier_goes_to_the_next() -> None:
    cache = make_cache(device_blocks=5, host_blocks=4, disk_blocks=4)
    run(cache, A)
    run(cache, B)
    assert cached(cache, A)[1:] == (16, 0)
    run(cache, C)
    assert cached(cache, A) == (0, 0, 16)
    assert cached(cache, B) == (0, 16, 0)
    run(cache, [300 + n for n in range(17)])
    assert [sum(cached(cache, p)) for p in (A, B, C)] == [0, 16, 16]
    assert cached(cache, B) == (0, 0, 16)
    run(cache, B)
    counts = cache.stats().counts
    moved = {tier: nbytes // cache.tiers.block_bytes for tier, nbytes in counts.moved_bytes.items()}
    assert moved == {"device": 4, "host": 16, "remote": 8}
    assert counts.dropped == {"device": 0, "host": 4, "remote": 4}  # B held the disk while C had to go there
    cache.close()


def test_without_a_host_tier_the_disk_takes_what_the_device_gives_up() -> None:
    cache = make_cache(device_blocks=5, disk_blocks=8)
    run(cache, A)
    run(cache, B)
    assert cached(cache, A) == (0, 0, 16)
    run(cache, A)
    cache.close()


def test_a_host_full_of_what_is_held_makes_no_room() -> None:
    cache = make_cache(device_blocks=8, host_blocks=4)
    run(cache, A)
    cache.evict(1.0)
    run(cache, B)
    match = cache.match(A)  # holds all four on the host
    cache.evict(1.0)
    cache.check()
    assert (cached(cache, A), cached(cache, B)) == ((0, 16, 0), (0, 0, 0))
    cache.drop(match)
    run(cache, B)
    cache.evict(0.5)
    assert (cached(cache, A), cached(cache, B)) == ((0, 8, 0), (8, 8, 0))


def test_a_storm_takes_a_share_of_what_nobody_holds() -> None:
    cache = make_cache(device_blocks=16)
    run(cache, A)
    run(cache, B)
    table = start(cache, C)
    assert cache.evict(0.25) == 3
    assert cache.evict(1.0) == 5
    assert cache.evict(1.0) == 0
    assert cached(cache, C) == (16, 0, 0)
    verify(cache, table, C)
    cache.check()


def test_a_smaller_pool_gets_its_blocks_back_as_they_come_free() -> None:
    cache = make_cache(device_blocks=16)
    run(cache, A)
    table = start(cache, B)
    cache.resize(3)
    cache.check()
    assert cache.stats().tiers[Tier.DEVICE].capacity == 3
    assert cached(cache, A) == (0, 0, 0)
    verify(cache, table, B)
    assert not cache.extend(table, len(B) + BLOCK)
    cache.release(table)
    cache.check()
    assert cache.stats().tiers[Tier.DEVICE].cached == 3
    assert cache.open(cache.match(C), len(C)) is None
    cache.resize(16)
    assert cache.tiers.pool.free == 13
    cache.check()
    run(cache, C)


@pytest.mark.parametrize(("asked", "got"), [(-1, 0), (0, 0), (99, 16)])
def test_a_pool_is_never_larger_than_its_memory(asked: int, got: int) -> None:
    cache = make_cache(device_blocks=16)
    cache.resize(asked)
    assert cache.stats().tiers[Tier.DEVICE].capacity == got
    cache.check()


def test_clearing_forgets_all_and_takes_nothing_from_running_requests() -> None:
    cache = make_cache(device_blocks=16, host_blocks=4)
    run(cache, A)
    cache.evict(1.0)
    run(cache, B)
    running, waiting = start(cache, C), cache.match(A)
    cache.clear()
    cache.check()
    assert cache.stats().tiers[Tier.DEVICE].cached == 0
    assert [sum(cached(cache, p)) for p in (A, B, C)] == [0, 0, 0]
    verify(cache, running, C)
    table = cache.open(waiting, len(A))  # what it holds is still there
    assert table is not None
    cache.load(table, 16)
    verify(cache, table, A)
    cache.check()
    assert cache.extend(running, 21)
    compute(cache, running, [*C, 1, 2, 3, 4])
    for request in (running, table):
        cache.release(request)
    cache.check()
    assert cache.stats().tiers[Tier.DEVICE].used == 0
    assert sum(cached(cache, C)) == 0  # its chain was cut, so nothing of it was kept
    run(cache, C)
    assert cached(cache, C) == (16, 0, 0)


def test_traffic_that_evicts_nothing_leaves_nothing_behind() -> None:
    cache = make_cache(device_blocks=16)
    for number in range(1000):
        run(cache, [number % 2, 1, 2, 3, 4, 5], f"tenant-{number % 3}")
        cache.drop(cache.match(A, f"stranger-{number}"))
    assert len(cache.index.roots()) == 3
    assert sum(len(queue) for queue in cache.index._leaves) < 200
    cache.evict(1.0)
    assert cache.index.roots() == []


def test_the_books_are_really_checked() -> None:
    cache = make_cache(device_blocks=16, host_blocks=4)
    run(cache, A)
    table = start(cache, B)
    for spoil, mend in (
        (lambda: table.held[0].__setattr__("refs", 2), lambda: table.held[0].__setattr__("refs", 1)),
        (lambda: table.blocks.append(15), lambda: table.blocks.pop()),
        (lambda: cache.index.cached.__setitem__(0, 7), lambda: cache.index.cached.__setitem__(0, 8)),
        (lambda: cache.tiers.host.free.pop(), lambda: cache.tiers.host.free.append(0)),  # type: ignore[union-attr]
        (lambda: cache.tables.remove(table), lambda: cache.tables.add(table)),
    ):
        spoil()
        with pytest.raises(CacheInconsistent):
            cache.check()
        mend()
        cache.check()


def test_a_freed_block_is_poisoned() -> None:
    cache = make_cache(device_blocks=4)
    table = start(cache, A[:5])
    block = table.blocks[1]
    assert not cache.kv[:, :, block, 0].isnan().any()
    cache.release(table)
    assert cache.kv[:, :, block].isnan().all()
