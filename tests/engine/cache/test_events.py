"""KV events in vLLM's words: what a router that listens knows is what the cache can find."""

from __future__ import annotations

from cachemodel.blocks import chain, vllm_root
from cachemodel.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KVEventBatch,
    decode_batch,
    encode_batch,
)
from tests.engine.cache.model import BLOCK, compute, index_of, make_cache, replay, run, start

PROMPT = list(range(14))
H = [block.hash64 for block in chain(PROMPT, BLOCK, vllm_root("0"))]


def test_a_prompt_is_one_event_and_what_is_generated_goes_on_from_it() -> None:
    cache = make_cache()
    table = start(cache, PROMPT)
    assert cache.drain_events() == [
        BlockStored(
            block_hashes=H,
            token_ids=PROMPT[:12],
            block_size=BLOCK,
            medium="GPU",
            extra_keys=[None, None, None],
        )
    ]
    compute(cache, table, [*PROMPT, 50, 51])
    (event,) = cache.drain_events()
    assert isinstance(event, BlockStored)
    assert (event.parent_block_hash, event.token_ids) == (H[2], [12, 13, 50, 51])
    assert cache.drain_events() == []


def test_each_chain_is_told_apart_also_in_one_step() -> None:
    cache = make_cache()
    run(cache, PROMPT)
    run(cache, [*PROMPT[:4], 70, 71, 72, 73])
    run(cache, [80, 81, 82, 83])
    told = [(e.parent_block_hash, e.token_ids) for e in cache.drain_events() if isinstance(e, BlockStored)]
    assert told == [(None, PROMPT[:12]), (H[0], [70, 71, 72, 73]), (None, [80, 81, 82, 83])]


def test_a_salt_is_shown_bare_on_the_first_block() -> None:
    cache = make_cache()
    run(cache, PROMPT, "tenant-1")
    (event,) = cache.drain_events()
    assert isinstance(event, BlockStored)
    assert event.extra_keys == [["tenant-1"], None, None]
    salted = [b.hash64 for b in chain(PROMPT, BLOCK, vllm_root("0"), salt="tenant-1")]
    assert event.block_hashes == salted


def test_a_block_that_moves_is_told_at_both_ends() -> None:
    cache = make_cache(host_blocks=1, disk_blocks=1)
    run(cache, PROMPT[:5])
    cache.drain_events()

    def stored(medium: str) -> BlockStored:
        return BlockStored(H[:1], None, PROMPT[:4], BLOCK, medium=medium, extra_keys=[None])

    cache.evict(1.0)
    assert cache.drain_events() == [stored("CPU"), BlockRemoved(H[:1], medium="GPU")]
    run(cache, [90, 91, 92, 93, 94])
    cache.drain_events()
    cache.evict(1.0)
    events = cache.drain_events()
    assert events[:2] == [stored("DISK"), BlockRemoved(H[:1], medium="CPU")]
    run(cache, PROMPT[:5])
    assert cache.drain_events() == [stored("GPU"), BlockRemoved(H[:1], medium="DISK")]
    cache.close()


def test_clearing_is_told_once_with_what_lay_below_the_device() -> None:
    cache = make_cache(host_blocks=2)
    run(cache, PROMPT)
    cache.evict(0.7)
    running = start(cache, [70, 71, 72, 73, 74])
    cache.drain_events()
    cache.clear()
    assert cache.drain_events() == [BlockRemoved([H[2], H[1]], medium="CPU"), AllBlocksCleared()]
    compute(cache, running, [70, 71, 72, 73, 74])
    cache.release(running)
    assert cache.drain_events() == []


def test_events_survive_the_wire_and_tell_the_index() -> None:
    cache = make_cache(device_blocks=8, host_blocks=4, disk_blocks=4)
    index: dict[str, set[int]] = {"GPU": set(), "CPU": set(), "DISK": set()}
    for base in range(0, 300, 20):
        run(cache, [base % 100 + n for n in range(20)], "even" if base % 40 else "")
        sent = KVEventBatch(1.0, cache.drain_events())
        replay(decode_batch(encode_batch(sent)).events, index)
        assert index == index_of(cache)
    assert all(index.values())
    cache.close()
