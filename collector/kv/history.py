"""An index made again from what the store has of one life of a publisher's rank. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cachemodel.residency import Mark, told_by
from collector.kv.index import CONTENT, BlockIndex, block_key


class StoredBlock(NamedTuple):
    """What the rows of a block in one place come to. held: whether the last of them, at (message, position), stored
    it. depth, content, isolation: None where no row has them."""

    block: int
    group: int | None
    parent: int | None
    depth: int | None
    content: int | None
    isolation: int | None
    medium: str
    ownership: str
    held: bool
    at: tuple[int, int]


class StoredRow(NamedTuple):
    """One row: stored, removed, updated, cleared, gap or resolved."""

    action: str
    block: int | None
    group: int | None
    parent: int | None
    depth: int | None
    content: int | None
    isolation: int | None
    medium: str
    ownership: str


def rebuild(index: BlockIndex, blocks: Iterable[StoredBlock], marks: Sequence[Mark]) -> None:
    """Fill an empty index. blocks: the least recently told of first: in that order they are forgotten."""
    for mark in marks:
        index.gap() if mark.is_gap else index.clear(mark.ownership)
    for block in blocks:
        place = index.place(block.medium, block.ownership)
        slot = index.hold(block_key(block.block, block.group), None)
        _learn(index, slot, block)
        if place is not None:
            told = told_by(block.held, block.at, place.tier, block.ownership, marks)
            place.told[slot] = told


def replay(index: BlockIndex, rows: Iterable[StoredRow]) -> None:
    """Bring an index up to date with the rows that came after it."""
    for row in rows:
        if row.action == "gap":
            index.gap()
        elif row.action == "cleared":
            index.clear(row.ownership)
        elif row.block is not None:
            _apply(index, row, block_key(row.block, row.group))


def _apply(index: BlockIndex, row: StoredRow, key: int) -> None:
    if row.action == "stored":
        slot = index.hold(key, index.place(row.medium, row.ownership))
    elif row.action == "removed":
        slot = index.drop(key, index.place(row.medium, row.ownership))
    else:
        slot = index.table.find(key)
    if slot >= 0:
        _learn(index, slot, row)
    if row.depth is not None and len(index.orphans):
        # its rows are stored already: what hung on it leaves the orphans, as it did then
        for _ in index.resolved(key, (row.depth, row.content or 0, row.isolation or 0)):
            pass


def _learn(index: BlockIndex, slot: int, told: StoredBlock | StoredRow) -> None:
    if told.depth is None:
        return
    parent = 0 if told.parent is None else block_key(told.parent, told.group)
    known = index.lineage(slot)
    if known is None or (told.content and not known[CONTENT]):
        index.learn(slot, parent, (told.depth, told.content or 0, told.isolation or 0))
