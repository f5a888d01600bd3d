"""The KV cache as the scheduler and the runner use it: look a prompt up, open a table of blocks, load, extend, commit,
release.

    match ---open---> table: load until nothing is loading, then extend and commit by turns ---release---> cached
      `----drop

Full blocks of committed tokens can be found by others at once. Two requests that compute the same block share the first
one's. Nothing raises for want of room or because of a disk. Called on the core's thread only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from cachemodel.alignment import Alignment
from cachemodel.blocks import vllm_root
from cachemodel.kv_events import Event
from cachemodel.layers import Tier
from engine.cache.block import CachedBlock, Level, Match, Table, TierTokens
from engine.cache.check import check
from engine.cache.events import EventLog
from engine.cache.expiry import Expiry
from engine.cache.index import PrefixIndex
from engine.cache.stats import CacheStats, TierStats
from engine.cache.tiers import MAX_READS, Tiers
from engine.config import EngineConfig
from engine.model.config import ModelConfig


@dataclass(slots=True)
class Loaded:
    """What one `load` moved to the device: blocks and bytes by the tier they came from."""

    blocks: dict[str, int] = field(default_factory=dict)
    nbytes: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.blocks.values())

    def add(self, tier: Tier, nbytes: int) -> None:
        """One block more."""
        self.blocks[tier] = self.blocks.get(tier, 0) + 1
        self.nbytes[tier] = self.nbytes.get(tier, 0) + nbytes


class KVCache:
    """kv: Tensor[layers, 2, blocks, block_size, kv_heads, head_dim], where the model writes and reads.

    poison: fill freed device blocks with NaN. clock: seconds that never go back. Raises UserError where there is not so
    much memory, or the disk tier has no usable folder.
    """

    def __init__(
        self,
        model: ModelConfig,
        config: EngineConfig,
        *,
        poison: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.block_size, self._caching = config.block_size, config.prefix_caching
        self._law = Alignment(config.cache_unit or config.block_size, int(config.drop_last_unit))
        root = os.urandom(32) if config.hash_seed == "random" else vllm_root(config.hash_seed)
        self._events = EventLog(config.block_size)
        self.index = PrefixIndex(root, self._events, clock)
        self.tiers = Tiers(model, config, self.index, poison=poison)
        self.kv = self.tiers.pool.kv
        self._expiry = Expiry(self.tiers, config.cache_ttl, clock)
        self.matches: set[Match] = set()
        self.tables: set[Table] = set()

    # Requests

    def match(self, tokens: Sequence[int], salt: str = "", *, read: bool = True) -> Match:
        """Look a prompt up and hold what is found, as far as the alignment lets it be used; the last token is never
        part of it. read: look for nothing where False."""
        self.tiers.poll()
        size, blocks = self.block_size, []
        contents = [tuple(tokens[at : at + size]) for at in range(0, len(tokens) - size + 1, size)]
        if self._caching and read:
            blocks = self.index.find(contents, salt)
            del blocks[self._law.served(len(tokens), len(blocks) * size) // size :]
        for block in blocks:
            self.index.hold(block)
        match = Match(blocks, self.index.digests(blocks, contents, salt), salt)
        match.tokens = self._tokens(blocks)
        self.matches.add(match)
        return match

    def open(self, match: Match, tokens: int) -> Table | None:
        """Turn a match into a table with room for `tokens`, those of the match included.

        None: there is no room now, nothing was taken, and the match still holds its blocks.
        """
        held = match.blocks
        needed = max(self._blocks(tokens), len(held))
        levels = [block.level for block in held]
        shared = levels.count(Level.DEVICE)  # levels get slower along a chain, so these come first
        if not self.tiers.make_room(needed - shared):
            return None
        blocks = [block.slot for block in held[:shared]]
        blocks += self.tiers.pool.take(needed - shared, blocks[-1] if blocks else None)
        match.tokens = self._tokens(held)
        table = Table(blocks, held, shared, shared * self.block_size, match.digests, match.salt, levels)
        match.blocks = []
        self.matches.discard(match)
        self.tables.add(table)
        return table

    def drop(self, match: Match) -> None:
        """Let a match go; a look alone is no use that would keep a block longer. Does nothing once it was opened."""
        self.matches.discard(match)
        blocks, match.blocks = match.blocks, []
        self._let_go(blocks)

    def load(self, table: Table, max_blocks: int) -> Loaded:
        """Move up to `max_blocks` of a table's match to the device, as far as they are at hand.

        All come from the tier that it waits for now; the next tier is another call's, so that its time is told apart.

        A block that another request brought there in the meantime is shared. One that cannot be read ends the match:
        `loading` is None then, `lost` says what is missing.
        """
        self.tiers.poll()
        loaded, tier = Loaded(), table.loading
        while tier and table.loading is tier:
            block, own = table.held[table.shared], table.blocks[table.shared]
            if block.level is not Level.DEVICE and not block.lost:
                if loaded.total == max_blocks:
                    break
                if self.tiers.promote(block, own):
                    loaded.add(tier, self.tiers.block_bytes)
                elif not block.lost:
                    break
            if block.lost:
                self._shorten(table)
                break
            if block.slot != own:
                self._share(table, table.shared, block)
            table.shared += 1
            table.ready += self.block_size
        self._read_ahead(table)
        return loaded

    def fail(self, table: Table) -> None:
        """The tier that a table waits for does not answer: the match ends here. Others may find its blocks again."""
        self._shorten(table)

    def report(self, table: Table) -> None:
        """Tell of the blocks of a table's match as if they had been stored now."""
        for block in table.held:
            self._events.stored(block, block.level)

    def extend(self, table: Table, tokens: int) -> bool:
        """Make room for `tokens` in total. False: nothing is left to evict, and the table is as it was."""
        missing = self._blocks(tokens) - len(table.blocks)
        if missing <= 0:
            return True
        if not self.tiers.make_room(missing):
            return False
        table.blocks += self.tiers.pool.take(missing, table.blocks[-1] if table.blocks else None)
        return True

    def commit(self, table: Table, tokens: Sequence[int]) -> None:
        """The KV of `tokens`, from position 0, is there: their full blocks can be found from now on.

        Raises ValueError while the table is loading or where it has no room for so many.
        """
        if table.loading or self._blocks(len(tokens)) > len(table.blocks):
            raise ValueError("KV of a table that is loading, or has no room for it, cannot be there")
        table.ready = max(table.ready, len(tokens))
        if self._caching and len(tokens) // self.block_size > len(table.held):
            self._index(table, tokens)

    def release(self, table: Table) -> None:
        """Give a table's blocks back, at a request's end or preemption. What was committed stays cached."""
        self.tables.discard(table)
        for block in reversed(table.blocks[table.shared :]):
            self.tiers.pool.give(block)
        held, table.held, table.blocks, table.shared = table.held, [], [], 0
        self.index.touch(held)
        self._let_go(held)

    # The whole

    def evict(self, share: float) -> int:
        """Evict this share (0 to 1) of the device's cached blocks, at least one unless it is 0, as far as nobody holds
        them; returns how many went."""
        wanted, gone = max(share > 0, round(share * self.index.cached[Level.DEVICE])), 0
        while gone < wanted and self.tiers.evict(Level.DEVICE):
            gone += 1
        return gone

    def resize(self, device_blocks: int) -> None:
        """Use so many device blocks at most from now on; blocks that are held are given back when they are let go."""
        self.tiers.pool.resize(device_blocks)
        self.tiers.pay()

    def clear(self) -> None:
        """Forget all cached blocks, as vLLM's reset_prefix_cache; requests keep those they hold until they end."""
        for root in self.index.roots():
            for block in list(root.children.values()):
                self.tiers.forget(block, quiet=True)
        self._events.cleared()

    def expire(self) -> float | None:
        """Forget what was not used for the time blocks live; seconds until the next look, None where none is due."""
        return self._expiry.look()

    def drain_events(self) -> list[Event]:
        """What happened since the last call, in order."""
        return self._events.drain()

    def check(self) -> None:
        """Raise CacheInconsistent where the books do not balance; takes time in the order of the cache's size."""
        check(self)

    def stats(self) -> CacheStats:
        """What is where now, and what was counted since the start."""
        tiers, disk = self.tiers, self.tiers.disk
        held = [cached - idle for cached, idle in zip(self.index.cached, self.index.idle, strict=True)]
        cached, pool = self.index.cached, tiers.pool
        taken = pool.total - pool.free - (pool.withheld - pool.owed) - self.index.idle[Level.DEVICE]
        by_tier = {Tier.DEVICE: TierStats(pool.capacity, taken, cached[Level.DEVICE])}
        if tiers.host:
            by_tier[Tier.HOST] = TierStats(tiers.host.capacity, held[Level.HOST], cached[Level.HOST])
        if disk:
            capacity = 0 if disk.off else disk.capacity
            by_tier[Tier.REMOTE] = TierStats(capacity, held[Level.DISK], cached[Level.DISK])
            tiers.counts.disk_failures = disk.failures
        return CacheStats(by_tier, deepcopy(tiers.counts))

    def close(self) -> None:
        """End the disk's thread and give its space back."""
        if self.tiers.disk:
            self.tiers.disk.close()

    # Parts

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def _tokens(self, blocks: Sequence[CachedBlock]) -> TierTokens:
        levels = [block.level for block in blocks]
        size = self.block_size
        return TierTokens(*(size * levels.count(level) for level in (Level.DEVICE, Level.HOST, Level.DISK)))

    def _let_go(self, blocks: Sequence[CachedBlock]) -> None:
        for block in reversed(blocks):
            self.tiers.let_go(block)
        self.tiers.pay()

    def _read_ahead(self, table: Table) -> None:
        for block in table.held[table.shared : table.shared + MAX_READS]:
            if block.level is Level.DISK and not block.lost and self.tiers.fetch(block) is None:
                break

    def _shorten(self, table: Table) -> None:
        """The match ends where it has got to; the blocks taken for the rest are the table's to compute into."""
        rest = table.held[table.shared :]
        del table.held[table.shared :], table.sources[table.shared :]
        table.lost += len(rest) * self.block_size
        self.tiers.counts.load_failures += 1
        self.tiers.counts.lost += len(rest) * self.block_size
        self._let_go(rest)

    def _index(self, table: Table, tokens: Sequence[int]) -> None:
        """Make a table's full blocks findable, or share those that are already."""
        parent = table.held[-1] if table.held else self.index.root(table.salt)
        size = self.block_size
        for at in range(len(table.held), len(tokens) // size):
            if not parent.indexed:  # the cache was cleared under it
                return
            content = tuple(tokens[at * size : (at + 1) * size])
            block, own = parent.children.get(content), table.blocks[at]
            if block is None:
                known = table.digests[at] if at < len(table.digests) else None
                block = self.index.add(parent, content, own, known)
            else:
                self.index.hold(block)
                if block.level is Level.DEVICE:
                    self._share(table, at, block)
                else:
                    self.tiers.adopt(block, own)
            table.held.append(block)
            table.shared += 1
            parent = block
        self.tiers.pay()

    def _share(self, table: Table, at: int, block: CachedBlock) -> None:
        """Use the block that another request brought to the device in the place of the table's own."""
        self.tiers.pool.give(table.blocks[at])
        table.blocks[at] = block.slot
