"""How blocks move: down when a tier is full, up when a request hits them, out when there is no other place.

A block is in one place only: the host and the disk hold what the device gave up (a victim cache each), so that the
tiers' sizes add up and a hit has one source. The price is that a block used again is copied again when it is evicted
again. Along a chain the levels never get faster: parents are promoted before children and demoted after them.
"""

from __future__ import annotations

import math

import torch

from engine.cache.block import TIERS, CachedBlock, Level
from engine.cache.disk import DiskTier, Read
from engine.cache.host import HostTier
from engine.cache.index import PrefixIndex
from engine.cache.pool import DevicePool, block_shape
from engine.cache.stats import Counts
from engine.config import EngineConfig
from engine.model.config import ModelConfig
from engine.model.load import DTYPES

MAX_READS = 32
"""Blocks that are read from the disk at a time or wait to be moved on."""


class Tiers:
    """The pool, the host and the disk, as far as there are any, with the index over them.

    counts: shared with the facade. Called on the core's thread.
    """

    def __init__(
        self, model: ModelConfig, config: EngineConfig, index: PrefixIndex, *, poison: bool = False
    ) -> None:
        shape, dtype = block_shape(model, config), DTYPES[config.dtype]
        self.index, self.counts = index, Counts()
        self.disk: DiskTier | None = None
        self.host: HostTier | None = None
        caching = config.prefix_caching
        if caching and config.host_blocks:
            self.host = HostTier(config.host_blocks, shape, dtype, pinned=config.device == "cuda")
        self.pool = DevicePool(model, config, poison=poison)
        if caching and config.disk_blocks:  # last, since it starts a thread
            self.disk = DiskTier(config.disk_path, config.disk_blocks, shape, dtype)
        self.block_bytes = math.prod(shape) * dtype.itemsize
        self.reads: dict[CachedBlock, Read] = {}
        self._disk_gone = False

    # Room

    def make_room(self, blocks: int) -> bool:
        """Evict from the device until so many blocks are free. False, and nothing done, where that cannot be."""
        if self.pool.free + self.index.idle[Level.DEVICE] < blocks:
            return False
        while self.pool.free < blocks:
            self.evict(Level.DEVICE)
        return True

    def evict(self, level: Level) -> bool:
        """Move a level's least recently used leaf down, or out. False where all its blocks are held."""
        block = self.index.pop_leaf(level)
        if block is None:
            return False
        self.counts.evictions[TIERS[level]] += 1
        if not (self._to_host(block) if level is Level.DEVICE and self.host else self._to_disk(block)):
            self.counts.dropped[TIERS[level]] += 1
            self.forget(block)
        return True

    def pay(self) -> None:
        """Give back blocks that the pool owes since it was made smaller."""
        while self.pool.owed and self.evict(Level.DEVICE):
            pass

    def _to_host(self, block: CachedBlock) -> bool:
        if self.host is None:
            return False
        slot = self.host.take()
        if slot is None and self.evict(Level.HOST):
            slot = self.host.take()
        if slot is None:
            return False
        self.host.kv[slot].copy_(self.pool.block(block.slot))
        self._settle(block, Level.HOST, slot)
        self.counts.moved_bytes[TIERS[Level.HOST]] += self.block_bytes
        return True

    def _to_disk(self, block: CachedBlock) -> bool:
        if self.disk is None or block.level is Level.DISK or not self.disk.reserve_write():
            return False
        slot = self.disk.take()
        if slot is None and self.evict(Level.DISK):
            slot = self.disk.take()
        if slot is None:
            self.disk.cancel_write()
            return False
        self.disk.write(slot, self._copy(block), block)
        self._settle(block, Level.DISK, slot)
        self.counts.moved_bytes[TIERS[Level.DISK]] += self.block_bytes
        return True

    def _copy(self, block: CachedBlock) -> torch.Tensor:
        """Its KV, apart from the place it leaves."""
        if block.level is Level.HOST and self.host:
            return self.host.kv[block.slot].clone()
        return self.pool.block(block.slot).to("cpu", copy=True, memory_format=torch.contiguous_format)

    # Up

    def promote(self, block: CachedBlock, to: int) -> bool:
        """Copy a block to the device block `to`, which it owns then. False: it is still on its way, or `lost`."""
        if block.level is Level.HOST and self.host:
            self.pool.block(to).copy_(self.host.kv[block.slot], non_blocking=True)
        else:
            read = self.fetch(block)
            if read is None or not read.done:
                return False
            self.reads.pop(block)
            if read.kv is None:
                self.lose(block)
                return False
            self.pool.block(to).copy_(read.kv)
        self.adopt(block, to)
        self.counts.moved_bytes[TIERS[Level.DEVICE]] += self.block_bytes
        return True

    def adopt(self, block: CachedBlock, to: int) -> None:
        """The device block `to` has this block's KV: it lives there from now on."""
        self.cancel(block)
        self._settle(block, Level.DEVICE, to)

    def fetch(self, block: CachedBlock) -> Read | None:
        """The read of a block on the disk, begun if need be; None where too many are under way."""
        read = self.reads.get(block)
        if read is None and self.disk and len(self.reads) < MAX_READS:
            read = self.reads[block] = self.disk.read(block.slot)
        return read

    def cancel(self, block: CachedBlock) -> None:
        """Nobody waits for a block from the disk any more."""
        read = self.reads.pop(block, None)
        if read:
            read.cancelled = True

    # Out

    def let_go(self, block: CachedBlock) -> None:
        """One fewer holds it; where it cannot be found any more and nobody is left, its place is free."""
        self.index.let_go(block)
        if not block.refs:
            self.cancel(block)
            if not block.indexed:
                self._free(block.level, block.slot)

    def lose(self, block: CachedBlock) -> None:
        """Its KV cannot be had, nor that of what follows it be used."""
        block.lost = True
        if block.indexed:
            self.forget(block)

    def forget(self, block: CachedBlock, *, quiet: bool = False) -> None:
        """Take it and all that follows it from the index, on whatever level; who holds one of them keeps it.

        quiet: of the device, an event tells of it otherwise.
        """
        for gone in self.index.subtree(block):
            self.index.remove(gone, quiet=quiet and gone.level is Level.DEVICE)
            if not gone.refs:
                self._free(gone.level, gone.slot)

    def poll(self) -> None:
        """Take note of what the disk's thread found."""
        if self.disk is None:
            return
        while self.disk.failed:
            block = self.disk.failed.popleft()
            if block.level is Level.DISK:
                self.lose(block)
        if self.disk.off and not self._disk_gone:
            self._disk_gone = True
            for block in [b for b in self.index.blocks() if b.level is Level.DISK]:
                self.lose(block)

    def _settle(self, block: CachedBlock, level: Level, slot: int) -> None:
        """It is in another place now, and the old one is free."""
        old_level, old_slot = block.level, block.slot
        self.index.move(block, level, slot)
        self._free(old_level, old_slot)

    def _free(self, level: Level, slot: int) -> None:
        if level is Level.DEVICE:
            self.pool.give(slot)
        elif level is Level.HOST and self.host:
            self.host.give(slot)
        elif self.disk:
            self.disk.give(slot)
