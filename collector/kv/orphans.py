"""Blocks whose place in a chain is not known: what is kept of them until it is.

A block is an orphan where its parent was not seen, or where a connector told no more than its hash. Once the block
itself or its parent is told of with a known place (a late replay, a full report), all that hang on it get theirs.
Bounded: the oldest are given up, and stay unresolved.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_ORPHANS = 1 << 16  # 40 MB with one event each, 135 MB with as many as are kept
MAX_TOLD = 16  # events of one orphan that are kept, the newest


class Event(NamedTuple):
    """An event that told of an orphan. place: the JSON text of its row's fields that say where, begins with a comma."""

    action: str
    time: float
    seq: int
    pos: int
    place: bytes


@dataclass(slots=True)
class Orphan:
    """key, parent_key: as the index knows blocks, the latter None where no parent was told. piece, own_keys: hashes of
    its tokens and of its own isolating keys, 0 where it has none. events: those that told of it, oldest first."""

    key: int
    block: int
    parent: int | None = None
    parent_key: int | None = None
    piece: int = 0
    own_keys: int = 0
    events: list[Event] = field(default_factory=list)


class Orphans:
    """dropped: how many were given up."""

    def __init__(self) -> None:
        self._by_key: OrderedDict[int, Orphan] = OrderedDict()
        self._children: dict[int, dict[int, None]] = {}  # keys of those that wait for a parent
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Orphan]:
        return iter(self._by_key.values())

    def get(self, key: int) -> Orphan | None:
        return self._by_key.get(key)

    def add(self, key: int, block: int) -> Orphan:
        """The orphan of that key, a new one where it is none yet."""
        orphan = self._by_key.get(key)
        if orphan is None:
            if len(self._by_key) >= MAX_ORPHANS:
                self._take(next(iter(self._by_key)))
                self.dropped += 1
            orphan = self._by_key[key] = Orphan(key, block)
        return orphan

    def put(self, orphan: Orphan) -> None:
        """An orphan with all that is known of it, as it was in another run."""
        self._by_key[orphan.key] = orphan
        if orphan.parent_key is not None:
            self._children.setdefault(orphan.parent_key, {})[orphan.key] = None

    def hang(self, orphan: Orphan, parent: int, parent_key: int, piece: int, own_keys: int) -> None:
        """Its parent is told."""
        self._unhang(orphan)
        orphan.parent, orphan.parent_key, orphan.piece, orphan.own_keys = parent, parent_key, piece, own_keys
        self._children.setdefault(parent_key, {})[orphan.key] = None

    def note(self, orphan: Orphan, event: Event) -> None:
        """Keep an event that told of it."""
        orphan.events.append(event)
        if len(orphan.events) > MAX_TOLD:
            del orphan.events[0]

    def pop(self, key: int) -> Orphan | None:
        """The orphan of that key, which is none any more."""
        return self._take(key) if key in self._by_key else None

    def children(self, key: int) -> list[int]:
        """Keys of the orphans that hang on a block."""
        return list(self._children.get(key, ()))

    def _take(self, key: int) -> Orphan:
        orphan = self._by_key.pop(key)
        self._unhang(orphan)
        return orphan

    def _unhang(self, orphan: Orphan) -> None:
        if orphan.parent_key is not None and (waiting := self._children.get(orphan.parent_key)):
            waiting.pop(orphan.key, None)
            if not waiting:
                del self._children[orphan.parent_key]
