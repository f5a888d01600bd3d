"""Hits on the slower tiers: bounded movement, shared loads, and no read of what is half there."""

from __future__ import annotations

from collections import Counter

from cachemodel.layers import Tier
from engine.cache.kv_cache import KVCache
from tests.engine.cache.model import cached, compute, load_all, make_cache, run, verify

PROMPT = list(range(41))  # ten full blocks


def on_host() -> KVCache:
    cache = make_cache(host_blocks=16)
    run(cache, PROMPT)
    assert cache.evict(1.0) == 10
    assert cached(cache, PROMPT) == (0, 40, 0)
    return cache


def on_disk() -> KVCache:
    cache = make_cache(disk_blocks=16)
    run(cache, PROMPT)
    assert cache.evict(1.0) == 10
    assert cached(cache, PROMPT) == (0, 0, 40)
    return cache


def test_a_load_moves_no_more_than_it_may() -> None:
    cache = on_host()
    table = cache.open(cache.match(PROMPT), len(PROMPT))
    assert table is not None
    steps = []
    while table.loading:
        assert table.loading is Tier.HOST
        loaded = cache.load(table, 4)
        steps.append((loaded.blocks[Tier.HOST], table.ready))
        assert loaded.nbytes == {Tier.HOST: loaded.blocks[Tier.HOST] * cache.kv[:, :, 0].nbytes}
        verify(cache, table, PROMPT)
        cache.check()
    assert steps == [(4, 16), (4, 32), (2, 40)]
    compute(cache, table, PROMPT)
    assert cache.stats().counts.moved_bytes[Tier.DEVICE] == 10 * cache.tiers.block_bytes


def test_a_promoted_block_is_on_the_device_only() -> None:
    cache = on_host()
    run(cache, PROMPT)
    assert cached(cache, PROMPT) == (40, 0, 0)
    assert cache.stats().tiers[Tier.HOST].cached == 0


def test_two_requests_that_wait_for_the_same_blocks_move_them_once() -> None:
    cache = on_host()
    one = cache.open(cache.match(PROMPT), len(PROMPT))
    assert one is not None
    cache.load(one, 3)
    two = cache.open(cache.match(PROMPT[:21]), 21)
    assert two is not None
    assert (two.ready, two.loading) == (12, Tier.HOST)
    assert cache.load(two, 2).blocks == {Tier.HOST: 2}
    assert two.loading is None
    load_all(cache, one)
    assert one.blocks[:5] == two.blocks[:5]
    verify(cache, one, PROMPT)
    verify(cache, two, PROMPT[:21])
    cache.check()
    assert cache.stats().counts.moved_bytes[Tier.DEVICE] == 10 * cache.tiers.block_bytes


def test_what_another_request_loads_while_one_waits_is_shared_not_loaded() -> None:
    cache = on_host()
    waiting, quick = (cache.open(cache.match(PROMPT[:21]), 21) for _ in range(2))
    assert waiting is not None
    assert quick is not None
    load_all(cache, quick)
    assert waiting.ready == 0
    assert cache.load(waiting, 0).blocks == {}
    assert (waiting.ready, waiting.loading) == (20, None)
    assert waiting.blocks[:5] == quick.blocks[:5]
    cache.check()


def test_a_caller_that_goes_away_during_a_load_leaves_the_rest_where_it_is() -> None:
    for cache in (on_host(), on_disk()):
        table = cache.open(cache.match(PROMPT), len(PROMPT))
        assert table is not None
        cache.load(table, 3)
        if cache.tiers.disk:
            cache.tiers.disk.settle()
            cache.load(table, 3)
        cache.release(table)
        cache.check()
        assert sum(cached(cache, PROMPT)) == 40
        assert cached(cache, PROMPT)[0] == 12
        assert not cache.tiers.reads
        run(cache, PROMPT)
        cache.close()


def test_disk_blocks_arrive_when_the_disk_has_them_and_in_order() -> None:
    cache = on_disk()
    table = cache.open(cache.match(PROMPT), len(PROMPT))
    assert table is not None
    assert table.loading is Tier.REMOTE
    assert cache.load(table, 4).total <= 4  # asks for them; how many have come by now is the disk's affair
    disk = cache.tiers.disk
    assert disk is not None
    disk.settle()
    before = table.ready
    loaded = cache.load(table, 4)
    assert loaded.blocks == {Tier.REMOTE: 4}
    assert table.ready == before + 16
    load_all(cache, table)
    verify(cache, table, PROMPT)
    assert cache.stats().counts.moved_bytes[Tier.DEVICE] == 10 * cache.tiers.block_bytes
    cache.close()


def test_a_prompt_can_be_on_three_tiers_at_once() -> None:
    cache = make_cache(device_blocks=16, host_blocks=4, disk_blocks=3)
    run(cache, PROMPT)
    cache.resize(3)
    assert cached(cache, PROMPT) == (12, 16, 12)
    cache.resize(16)
    table = cache.open(cache.match(PROMPT), len(PROMPT))
    assert table is not None
    assert table.ready == 12
    moved: Counter[str] = Counter()
    while table.loading:
        moved.update(cache.load(table, 1).blocks)
        assert cache.tiers.disk is not None
        cache.tiers.disk.settle()
    assert moved == {Tier.HOST: 4, Tier.REMOTE: 3}
    verify(cache, table, PROMPT)
    assert table.ready == 40
    cache.close()


def on_host_and_disk() -> KVCache:
    cache = make_cache(host_blocks=4, disk_blocks=16)
    run(cache, PROMPT)
    cache.evict(1.0)
    assert cached(cache, PROMPT) == (0, 16, 24)
    return cache


def test_a_load_never_goes_on_from_one_tier_to_the_next() -> None:
    """Who waits for the disk has to be seen waiting for it, even where it has been read already."""
    cache = on_host_and_disk()
    table = cache.open(cache.match(PROMPT), len(PROMPT))
    assert table is not None
    cache.load(table, 0)  # reads ahead
    assert cache.tiers.disk is not None
    cache.tiers.disk.settle()
    for tier, blocks in ((Tier.HOST, 4), (Tier.REMOTE, 6)):
        assert table.loading is tier
        assert cache.load(table, 64).blocks == {tier: blocks}
    assert table.loading is None
    verify(cache, table, PROMPT)
    cache.close()


def test_nor_does_one_that_shares_what_another_request_loaded() -> None:
    cache = on_host_and_disk()
    waiting, quick = (cache.open(cache.match(PROMPT[:29]), 29) for _ in range(2))
    assert waiting is not None
    assert quick is not None
    load_all(cache, quick)
    seen = []
    while waiting.loading:
        seen.append((waiting.loading, waiting.ready))
        assert cache.load(waiting, 0).blocks == {}
    assert seen == [(Tier.HOST, 0), (Tier.REMOTE, 16)]
    verify(cache, waiting, PROMPT[:29])
    cache.close()


def test_a_block_computed_anew_while_it_lay_on_a_slower_tier_lives_on_the_device() -> None:
    cache = make_cache(host_blocks=16)
    late = cache.open(cache.match(PROMPT[:9]), 9)  # finds nothing yet
    assert late is not None
    run(cache, PROMPT[:9])
    cache.evict(1.0)
    compute(cache, late, PROMPT[:9])
    cache.check()
    verify(cache, late, PROMPT[:9])
    assert cached(cache, PROMPT[:9]) == (8, 0, 0)
    assert cache.stats().tiers[Tier.HOST].cached == 0


def test_a_block_computed_anew_while_others_read_it_from_the_disk_is_shared_with_them() -> None:
    cache = make_cache(disk_blocks=16)
    late = cache.open(cache.match(PROMPT[:9]), 9)
    assert late is not None
    run(cache, PROMPT[:9])
    cache.evict(1.0)
    reader = cache.open(cache.match(PROMPT[:9]), 9)
    assert reader is not None
    cache.load(reader, 0)
    compute(cache, late, PROMPT[:9])
    cache.check()
    assert not cache.tiers.reads
    load_all(cache, reader)
    assert reader.blocks[:2] == late.blocks[:2]
    verify(cache, reader, PROMPT[:9])
    cache.close()
