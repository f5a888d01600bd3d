"""Blocks by key in columns, the least recently touched being forgotten beyond a bound.

A dict from integers to tuples takes about 250 bytes a block; this takes 52 with its hash table (linear probing, at
most half full, backward shift on removal). A *slot* is a block's place in the columns; it is another block's once that
was forgotten.
"""

from __future__ import annotations

from array import array

NONE = 0xFFFFFFFF  # no slot; a depth that is not known
_MIX = 0x9E3779B97F4A7C15  # keys can be consecutive numbers
_SHIFT = 40
_FIRST_SIZE = 256

COLUMNS = ("keys", "parent", "content", "isolation", "depth", "older", "newer", "index")


class BlockTable:
    """keys: of the blocks. parent: key of the block before it, 0 where it is the first or not known. depth: NONE where
    not known. content, isolation: see cachemodel/content.py. limit: blocks, at least 1."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.keys, self.parent = array("Q"), array("Q")
        self.content, self.isolation = array("Q"), array("Q")
        self.depth = array("I")
        self.older, self.newer = array("I"), array("I")
        self.index = array("I", bytes(4 * _FIRST_SIZE))  # slot + 1, 0 where empty
        self._mask = _FIRST_SIZE - 1
        self.oldest = self.newest = NONE

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, key: int) -> int:
        """The slot of a block; -1 where it is not known."""
        index, keys, mask = self.index, self.keys, self._mask
        at = (key * _MIX >> _SHIFT) & mask
        while entry := index[at]:
            if keys[entry - 1] == key:
                return entry - 1
            at = (at + 1) & mask
        return -1

    def add(self, key: int) -> int:
        """The slot of a block that is not there yet, as the newest. Where it was another's, its columns are reset."""
        if len(self.keys) >= self.limit:
            slot = self.oldest
            self._forget(slot)
            self.keys[slot] = key
            self.parent[slot] = self.content[slot] = self.isolation[slot] = 0
            self.depth[slot] = NONE
        else:
            slot = len(self.keys)
            self.keys.append(key)
            for column in (self.parent, self.content, self.isolation):
                column.append(0)
            for links in (self.depth, self.older, self.newer):
                links.append(NONE)
            if 2 * len(self.keys) > self._mask:
                self._grow()
                self._append(slot)
                return slot
        self._insert(slot, key)
        self._append(slot)
        return slot

    def touch(self, slot: int) -> None:
        """Make a block the newest."""
        if slot != self.newest:
            self._unlink(slot)
            self._append(slot)

    # -- the hash table

    def _insert(self, slot: int, key: int) -> None:
        index, mask = self.index, self._mask
        at = (key * _MIX >> _SHIFT) & mask
        while index[at]:
            at = (at + 1) & mask
        index[at] = slot + 1

    def _grow(self) -> None:
        size = 2 * len(self.index)
        self.index, self._mask = array("I", bytes(4 * size)), size - 1
        for slot, key in enumerate(self.keys):
            self._insert(slot, key)

    def _forget(self, slot: int) -> None:
        """Take a block out; those that were pushed on by it move up."""
        index, keys, mask = self.index, self.keys, self._mask
        at = (keys[slot] * _MIX >> _SHIFT) & mask
        while index[at] != slot + 1:
            at = (at + 1) & mask
        hole = at
        while entry := index[at := (at + 1) & mask]:
            home = (keys[entry - 1] * _MIX >> _SHIFT) & mask
            if (at - home) & mask >= (at - hole) & mask:
                index[hole], hole = entry, at
        index[hole] = 0
        self._unlink(slot)

    # -- the order of use

    def _unlink(self, slot: int) -> None:
        older, newer = self.older[slot], self.newer[slot]
        if older == NONE:
            self.oldest = newer
        else:
            self.newer[older] = newer
        if newer == NONE:
            self.newest = older
        else:
            self.older[newer] = older

    def _append(self, slot: int) -> None:
        newest = self.newest
        self.older[slot], self.newer[slot] = newest, NONE
        if newest == NONE:
            self.oldest = slot
        else:
            self.newer[newest] = slot
        self.newest = slot

    # -- outliving the process

    def columns(self) -> dict[str, array[int]]:
        """All there is, by name."""
        return {name: getattr(self, name) for name in COLUMNS}

    @classmethod
    def of(cls, limit: int, oldest: int, newest: int, columns: dict[str, bytes]) -> BlockTable:
        """A table from its columns' bytes. Raises ValueError where they do not fit together."""
        table = cls(limit)
        for name in COLUMNS:
            column = array(getattr(table, name).typecode)
            column.frombytes(columns[name])
            setattr(table, name, column)
        table._mask = len(table.index) - 1
        table.oldest, table.newest = oldest, newest
        lengths = {len(getattr(table, name)) for name in COLUMNS[:-1]}
        if len(lengths) != 1 or len(table) > limit or 2 * len(table) > len(table.index) or not table.index:
            raise ValueError("columns of different lengths, or more blocks than fit")
        return table
