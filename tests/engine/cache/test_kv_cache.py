"""What a request gets from the cache: a prefix, blocks, and never another text's KV."""

from __future__ import annotations

import pytest
import torch

from cachemodel.blocks import chain, vllm_root
from cachemodel.layers import Tier
from tests.engine.cache.model import BLOCK, cached, compute, load_all, make_cache, run, start, verify

PROMPT = list(range(14))  # three full blocks of four, and two tokens


def test_a_prompt_seen_before_is_found_up_to_its_last_full_block() -> None:
    cache = make_cache()
    assert cached(cache, PROMPT) == (0, 0, 0)
    run(cache, PROMPT)
    assert cached(cache, PROMPT) == (12, 0, 0)
    assert cached(cache, [*PROMPT[:9], 99, 99]) == (8, 0, 0)
    assert cached(cache, [99, *PROMPT]) == (0, 0, 0)


@pytest.mark.parametrize(("tokens", "found"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8), (13, 12)])
def test_the_last_token_is_always_computed(tokens: int, found: int) -> None:
    cache = make_cache()
    run(cache, PROMPT)
    assert cached(cache, PROMPT[:tokens]) == (found, 0, 0)


def test_what_was_generated_is_found_as_well() -> None:
    cache = make_cache()
    table = start(cache, PROMPT)
    text = [*PROMPT, 50, 51, 52]
    for length in (15, 16, 17):
        assert cache.extend(table, length)
        compute(cache, table, text[:length])
    cache.release(table)
    assert cached(cache, text) == (16, 0, 0)


@pytest.mark.parametrize("salt", ["", "tenant-1"])
def test_hashes_are_those_of_the_chain_law(salt: str) -> None:
    cache = make_cache(hash_seed="7")
    law = [b.hash64 for b in chain(PROMPT, BLOCK, vllm_root("7"), salt=salt or None)]
    cold = cache.match(PROMPT, salt)
    assert cold.block_hashes == law
    cache.drop(cold)
    run(cache, PROMPT, salt)
    assert cache.match(PROMPT, salt).block_hashes == law
    assert [b.hash64 for b in cache.index.blocks()] == law[::-1]


def test_without_a_seed_two_caches_name_the_same_text_differently() -> None:
    one, two = (make_cache(hash_seed="random").match(PROMPT).block_hashes for _ in range(2))
    assert len(one) == 3
    assert not set(one) & set(two)


def test_a_salt_isolates() -> None:
    cache = make_cache()
    run(cache, PROMPT, "a")
    assert cached(cache, PROMPT, "a") == (12, 0, 0)
    assert cached(cache, PROMPT, "b") == cached(cache, PROMPT) == (0, 0, 0)


def test_running_requests_share_the_blocks_of_a_prefix() -> None:
    cache = make_cache()
    one = start(cache, PROMPT)
    two = start(cache, [*PROMPT[:8], 70, 71])
    assert one.blocks[:2] == two.blocks[:2]
    assert one.blocks[2] != two.blocks[2]
    assert cache.stats().tiers[Tier.DEVICE].used == 5
    cache.release(one)
    cache.check()
    verify(cache, two, [*PROMPT[:8], 70, 71])


def test_two_requests_that_compute_the_same_block_end_up_with_one() -> None:
    cache = make_cache()
    one, two = (cache.open(cache.match(PROMPT), len(PROMPT)) for _ in range(2))
    assert one is not None
    assert two is not None
    assert not set(one.blocks) & set(two.blocks)
    compute(cache, one, PROMPT)
    compute(cache, two, PROMPT)
    assert one.blocks[:3] == two.blocks[:3]
    assert one.blocks[3] != two.blocks[3]
    verify(cache, two, PROMPT)
    cache.check()
    assert cache.stats().tiers[Tier.DEVICE].cached == 3


def test_a_table_that_finds_no_room_takes_nothing() -> None:
    cache = make_cache(device_blocks=4)
    run(cache, PROMPT[:9])
    holder = start(cache, [80, 81])
    match = cache.match(PROMPT)
    assert cache.open(match, 20) is None  # two blocks are held by the match, one by the other request
    assert match.tokens.device == 8
    assert cache.stats().counts.evictions[Tier.DEVICE] == 0
    cache.release(holder)
    table = cache.open(match, 16)
    assert table is not None
    assert table.ready == 8
    cache.check()


def test_a_dropped_match_is_dropped_once() -> None:
    cache = make_cache(device_blocks=4)
    run(cache, PROMPT[:9])
    match = cache.match(PROMPT)
    table = cache.open(match, 12)
    assert table is not None
    cache.drop(match)
    cache.drop(match)
    cache.check()
    verify(cache, table, PROMPT)


def test_extend_takes_nothing_where_nothing_is_left() -> None:
    cache = make_cache(device_blocks=4)
    table = start(cache, PROMPT)
    assert cache.extend(table, 16)
    assert not cache.extend(table, 17)
    assert len(table.blocks) == 4
    cache.check()


def test_a_released_table_leaves_only_what_was_committed() -> None:
    cache = make_cache()
    table = cache.open(cache.match(PROMPT), len(PROMPT))
    assert table is not None
    compute(cache, table, PROMPT[:5])  # a first chunk, then the caller goes away
    cache.release(table)
    cache.check()
    assert cached(cache, PROMPT) == (4, 0, 0)
    assert cache.stats().tiers[Tier.DEVICE].used == 0


def test_committing_what_cannot_be_there_is_refused() -> None:
    cache = make_cache()
    table = cache.open(cache.match(PROMPT), 4)
    assert table is not None
    with pytest.raises(ValueError, match="no room"):
        cache.commit(table, PROMPT)


def test_without_prefix_caching_nothing_is_found_and_nothing_kept() -> None:
    cache = make_cache(prefix_caching=False, host_blocks=4, disk_blocks=4)
    run(cache, PROMPT)
    assert cached(cache, PROMPT) == (0, 0, 0)
    assert list(cache.stats().tiers) == [Tier.DEVICE]
    assert cache.drain_events() == []
    assert cache.match(PROMPT).block_hashes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_kv_survives_every_tier_bit_by_bit(dtype: str) -> None:
    cache = make_cache(dtype=dtype, device_blocks=4, host_blocks=2, disk_blocks=4)
    table = cache.open(cache.match(PROMPT), len(PROMPT))
    assert table is not None
    written = torch.randn(cache.kv[:, :, 0].shape, generator=torch.Generator().manual_seed(1)).to(
        cache.kv.dtype
    )
    for number, block in enumerate(table.blocks[:3]):
        cache.kv[:, :, block] = written + number
    cache.commit(table, PROMPT)
    cache.release(table)
    for _ in range(3):
        cache.evict(1.0)
    assert cached(cache, PROMPT) == (0, 8, 4)
    table = cache.open(cache.match(PROMPT), len(PROMPT))
    assert table is not None
    load_all(cache, table)
    assert table.ready == 12
    for number, block in enumerate(table.blocks[:3]):
        assert torch.equal(cache.kv[:, :, block], written + number)
    cache.close()
