"""Do the books balance? Every slot of every tier is free, withheld or somebody's, once; every count is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from engine.cache.block import CachedBlock, Level

if TYPE_CHECKING:
    from engine.cache.kv_cache import KVCache


class CacheInconsistent(AssertionError):
    """The cache's books contradict each other; the message says where."""


def check(cache: KVCache) -> None:
    """Raise CacheInconsistent at the first contradiction.

    device  = free + withheld + cached + held but no longer cached + the tables' own
    host    = free + cached + held but no longer cached
    disk    = as the host
    """
    refs: Counter[CachedBlock] = Counter()
    for holder in (*(match.blocks for match in cache.matches), *(table.held for table in cache.tables)):
        refs.update(holder)
    indexed = list(cache.index.blocks())
    blocks = {*indexed, *refs}
    _check_references(blocks, refs)
    _check_chains(indexed)
    _check_counts(cache, indexed)
    _check_tables(cache)
    _check_slots(cache, blocks)


def _check_references(blocks: Iterable[CachedBlock], refs: Counter[CachedBlock]) -> None:
    for block in blocks:
        _same(block.refs, refs[block], f"references to {_name(block)}")


def _check_chains(indexed: list[CachedBlock]) -> None:
    for block in indexed:
        parent = block.parent
        if not block.indexed or parent is None or parent.children.get(block.tokens) is not block:
            raise CacheInconsistent(f"{_name(block)} is in the index and does not know")
        if block.lost:
            raise CacheInconsistent(f"{_name(block)} is lost and can be found")
        if parent.level > block.level:
            raise CacheInconsistent(f"{_name(block)} is on a faster level than its parent {_name(parent)}")
        if block.refs and not parent.is_root and not parent.refs:
            raise CacheInconsistent(f"{_name(block)} is held and its parent {_name(parent)} is not")
        at = Counter(child.level for child in block.children.values())
        _same(block.children_at, [at[Level(n)] for n in range(3)], f"children of {_name(block)} by level")


def _check_counts(cache: KVCache, indexed: list[CachedBlock]) -> None:
    index = cache.index
    for level in (Level.DEVICE, Level.HOST, Level.DISK):
        here = [block for block in indexed if block.level is level]
        _same(index.cached[level], len(here), f"cached blocks on {level.name}")
        _same(index.idle[level], sum(not block.refs for block in here), f"idle blocks on {level.name}")
        queued = index.queued(level)
        for block in here:
            if not block.refs and not block.children_at[level] and block not in queued:
                raise CacheInconsistent(f"{_name(block)} could be evicted and is not queued for it")


def _check_tables(cache: KVCache) -> None:
    for table in cache.tables:
        shared = table.held[: table.shared]
        if any(block.level is not Level.DEVICE for block in shared):
            raise CacheInconsistent("a table shares a block that is not on the device")
        _same(table.blocks[: table.shared], [block.slot for block in shared], "shared blocks of a table")
    for block, read in cache.tiers.reads.items():
        if block.level is not Level.DISK or not block.refs or read.slot != block.slot:
            raise CacheInconsistent(f"{_name(block)} is being read though nobody waits for it")


def _check_slots(cache: KVCache, blocks: Iterable[CachedBlock]) -> None:
    tiers = cache.tiers
    taken = {level: [block.slot for block in blocks if block.level is level] for level in Level}
    own = [number for table in cache.tables for number in table.blocks[table.shared :]]
    free, withheld = tiers.pool.state()
    _same(tiers.pool.free, len(free), "free device blocks")
    _partition("device", tiers.pool.total, [*free], [*withheld], taken[Level.DEVICE], own)
    for name, level, tier in (("host", Level.HOST, tiers.host), ("disk", Level.DISK, tiers.disk)):
        _partition(name, tier.capacity if tier else 0, tier.free if tier else [], taken[level])


def _partition(name: str, total: int, *parts: list[int]) -> None:
    uses = Counter(number for part in parts for number in part)
    if uses != Counter(range(total)):
        wrong = {number: uses[number] for number in {*uses, *range(total)} if uses[number] != 1}
        raise CacheInconsistent(f"{name} slots are not used once each: {wrong}")


def _same(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise CacheInconsistent(f"{what}: the books say {found}, there are {expected}")


def _name(block: CachedBlock) -> str:
    return f"block {block.hash64:016x} ({block.level.name} {block.slot})"
