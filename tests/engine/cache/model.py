"""A stand-in for the decoder, whose KV of a token is a number that names the whole text up to it, so that every block
read can be verified; and what takes a request through the cache as the scheduler does."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from cachemodel.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from engine.cache.block import Level, Table
from engine.cache.events import MEDIA
from engine.cache.kv_cache import KVCache
from engine.config import EngineConfig
from engine.model.config import ModelConfig

torch.set_num_threads(1)

MODEL = ModelConfig(
    vocab_size=1000,
    hidden_size=8,
    intermediate_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=4,
)
BLOCK = 4


def make_cache(clock: Callable[[], float] = time.monotonic, **settings: Any) -> KVCache:
    """Small, on the CPU, with freed blocks poisoned; without lower tiers unless asked for."""
    small = {"block_size": BLOCK, "device_blocks": 16, "host_blocks": 0, "disk_blocks": 0}
    return KVCache(MODEL, EngineConfig(**(small | settings)), poison=True, clock=clock)


def kv_of(tokens: Sequence[int], salt: str = "") -> list[float]:
    """What stands in the KV of each token: exact in float32, and nearly never the same for two texts."""
    values, state = [], zlib.crc32(salt.encode())
    for token in tokens:
        state = zlib.crc32(token.to_bytes(4, "big"), state)
        values.append(float(state & 0xFFFFFF))
    return values


def compute(cache: KVCache, table: Table, tokens: Sequence[int], salt: str = "") -> None:
    """Write the KV that is missing, and commit it, as the runner does after a step."""
    values = kv_of(tokens, salt)
    for position in range(table.ready, len(tokens)):
        block, at = table.blocks[position // cache.block_size], position % cache.block_size
        cache.kv[:, :, block, at] = values[position]
    cache.commit(table, tokens)


def verify(cache: KVCache, table: Table, tokens: Sequence[int], salt: str = "") -> None:
    """Every layer's key and value of every token that is said to be ready is that token's."""
    size = cache.block_size
    for position, value in enumerate(kv_of(tokens[: table.ready], salt)):
        found = cache.kv[:, :, table.blocks[position // size], position % size]
        assert bool((found == value).all()), (
            f"position {position} holds {found.unique().tolist()}, not {value}"
        )


def load_all(cache: KVCache, table: Table) -> None:
    """Load until nothing is missing, waiting for the disk."""
    while table.loading:
        cache.load(table, 2)
        if cache.tiers.disk:
            cache.tiers.disk.settle()


def start(cache: KVCache, tokens: Sequence[int], salt: str = "") -> Table:
    """Take a prompt through match, open, load and prefill."""
    table = cache.open(cache.match(tokens, salt), len(tokens))
    assert table is not None
    load_all(cache, table)
    verify(cache, table, tokens, salt)
    compute(cache, table, tokens, salt)
    verify(cache, table, tokens, salt)
    cache.check()
    return table


def run(cache: KVCache, tokens: Sequence[int], salt: str = "") -> Table:
    """The same, to the request's end."""
    table = start(cache, tokens, salt)
    cache.release(table)
    cache.check()
    return table


def cached(cache: KVCache, tokens: Sequence[int], salt: str = "") -> tuple[int, int, int]:
    """Tokens of a prompt that a request would find: device, host, disk."""
    match = cache.match(tokens, salt)
    cache.drop(match)
    return match.tokens.device, match.tokens.host, match.tokens.remote


def replay(events: Sequence[Event], index: dict[str, set[int]]) -> None:
    """Bring an index of hashes by medium up to date, as a subscriber would; raises where an event contradicts it."""
    for event in events:
        match event:
            case BlockStored(block_hashes=hashes, parent_block_hash=parent, medium=str(medium)):
                known = set().union(*index.values())
                assert parent is None or parent in known, "a block was stored before its parent"
                assert not index[medium] & set(hashes), "a block was stored twice"
                index[medium] |= set(hashes)
            case BlockRemoved(block_hashes=hashes, medium=str(medium)):
                assert index[medium] >= set(hashes), "a block was removed that was not there"
                index[medium] -= set(hashes)
            case AllBlocksCleared():
                index["GPU"].clear()
            case _:
                raise AssertionError(event)


def index_of(cache: KVCache) -> dict[str, set[int]]:
    """The hashes that the cache can find, by medium."""
    index: dict[str, set[int]] = {medium: set() for medium in MEDIA}
    for block in cache.index.blocks():
        assert block.level is not Level.NOWHERE
        index[MEDIA[block.level]].add(block.hash64)
    return index
