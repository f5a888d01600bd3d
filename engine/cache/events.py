"""What happened to which block, in vLLM's words; neighbours of one chain become one event."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from cachemodel.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from engine.cache.block import CachedBlock, Level

MEDIA = ("GPU", "CPU", "DISK")
"""By level."""


class _Entry(NamedTuple):
    kind: str
    level: Level
    run: int
    block: CachedBlock


class EventLog:
    """Events since the last `drain`."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._entries: list[_Entry | None] = []
        self._run = 0

    def stored(self, block: CachedBlock, level: Level) -> None:
        """`block` can be found on `level` from now on."""
        last = self._entries[-1] if self._entries else None
        if last is None or last.block is not block.parent:
            self._run += 1
        self._entries.append(_Entry("stored", level, self._run, block))

    def removed(self, block: CachedBlock, level: Level) -> None:
        """`block` is no longer on `level`."""
        self._entries.append(_Entry("removed", level, 0, block))

    def cleared(self) -> None:
        """Nothing is on the device any more."""
        self._entries.append(None)

    def drain(self) -> list[Event]:
        """The events so far, in order."""
        entries, self._entries = self._entries, []
        events: list[Event] = []
        for key, group in groupby(entries, key=_belongs_to):
            blocks = [entry.block for entry in group if entry]
            if key is None:
                events.append(AllBlocksCleared())
            elif key[0] == "stored":
                events.append(self._stored(blocks, MEDIA[key[1]]))
            else:
                events.append(BlockRemoved([block.hash64 for block in blocks], medium=MEDIA[key[1]]))
        return events

    def _stored(self, blocks: list[CachedBlock], medium: str) -> BlockStored:
        return BlockStored(
            block_hashes=[block.hash64 for block in blocks],
            parent_block_hash=blocks[0].parent_hash64,
            token_ids=[token for block in blocks for token in block.tokens],
            block_size=self._block_size,
            medium=medium,
            extra_keys=[_shown_keys(block) for block in blocks],
        )


def _belongs_to(entry: _Entry | None) -> tuple[str, Level, int] | None:
    return None if entry is None else (entry.kind, entry.level, entry.run)


def _shown_keys(block: CachedBlock) -> list[str] | None:
    """A salt enters a chain at its first block, and is shown bare."""
    return [block.salt] if block.salt and block.parent_hash64 is None else None
