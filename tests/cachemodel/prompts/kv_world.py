"""A server's prefix cache made small: it serves prompts in blocks and tells of every block as vLLM does."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cachemodel.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Event,
    KVEventBatch,
    encode_batch,
)

BLOCK = 4
START = 1_700_000_000.0


@dataclass(frozen=True)
class Sent:
    """A prompt with what was answered, under a salt."""

    tokens: tuple[int, ...]
    salt: str = ""

    @property
    def stored(self) -> tuple[int, ...]:
        """What blocks can tell of it."""
        return self.tokens[: len(self.tokens) // BLOCK * BLOCK]


@dataclass
class Server:
    """capacity: blocks that it holds, 0 for no limit; again: it tells of blocks that it holds, too, as one does that
    computes a beginning twice at once."""

    capacity: int = 0
    again: bool = False
    batches: list[KVEventBatch] = field(default_factory=list)
    _held: dict[int, int | None] = field(default_factory=dict)  # hash: its parent, least recently used first
    _done: dict[Sent, int] = field(default_factory=dict)

    def compute(self, sent: Sent, blocks: int) -> bool:
        """The next blocks of a prompt; whether more are left."""
        hashes = chain(sent)
        at = self._done.get(sent, 0)
        while not self.again and at < len(hashes) and hashes[at] in self._held:
            self._use(hashes[at])
            at += 1
        new = hashes[at : at + blocks]
        self._done[sent] = at + len(new)
        if new:
            parent = hashes[at - 1] if at else None
            events: list[Event] = self._evicted(len(new), keep=set(hashes))
            events.append(stored(sent, at, len(new), parent))
            for one, before in zip(new, [parent, *new], strict=False):
                self._held.pop(one, None)
                self._held[one] = before
            self._tell(events)
        if self._done[sent] < len(hashes):
            return True
        del self._done[sent]
        return False

    def clear(self, *, restart: bool = False) -> None:
        """Forget everything; a server that restarts does not even say so."""
        self._held.clear()
        self._done.clear()
        if not restart:
            self._tell([AllBlocksCleared()])

    def _use(self, block: int) -> None:
        self._held[block] = self._held.pop(block)

    def _evicted(self, more: int, keep: set[int]) -> list[Event]:
        told: list[Event] = []
        while self.capacity and len(self._held) + more > self.capacity:
            parents = set(self._held.values())
            leaf = next((one for one in self._held if one not in parents and one not in keep), None)
            if leaf is None:
                break
            del self._held[leaf]
            told.append(BlockRemoved([leaf], "GPU", 0))
        return told

    def _tell(self, events: Sequence[Event]) -> None:
        self.batches.append(KVEventBatch(START + len(self.batches), list(events)))


def chain(sent: Sent) -> list[int]:
    """The hashes of its full blocks."""
    told: list[int] = []
    before: Any = sent.salt
    for at in range(0, len(sent.stored), BLOCK):
        before = hash((before, sent.tokens[at : at + BLOCK])) & ((1 << 64) - 1)
        told.append(before)
    return told


def stored(sent: Sent, first: int, count: int, parent: int | None) -> BlockStored:
    """The event of some blocks of a prompt."""
    keys: list[Any] = [None] * count
    if sent.salt and not first:
        keys[0] = [sent.salt]
    return BlockStored(
        block_hashes=chain(sent)[first : first + count],
        parent_block_hash=parent,
        token_ids=list(sent.tokens[first * BLOCK : (first + count) * BLOCK]),
        block_size=BLOCK,
        medium="GPU",
        extra_keys=keys,
        group_idx=0,
    )


def line(batch: KVEventBatch, number: int, topic: bytes = b"kv@m", *, answer: bool = False) -> str:
    """A line of a recording. answer: as from a publisher's replay socket."""
    frames = [topic, number.to_bytes(8, "big"), encode_batch(batch)]
    told = [base64.b64encode(frame).decode() for frame in (([b""] if answer else []) + frames)]
    return json.dumps({"recv_unix_ns": int(batch.ts * 1e9), "frames_b64": told})


def recording(batches: Iterable[KVEventBatch]) -> str:
    """A file of them."""
    return "".join(line(batch, number) + "\n" for number, batch in enumerate(batches))
