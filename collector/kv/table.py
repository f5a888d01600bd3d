"""Blocks by key in columns, the least recently touched being forgotten beyond a bound.

A dict from integers to tuples takes about 250 bytes a block; this takes 52 with its hash table (linear probing, at
most half full, backward shift on removal). A *slot* is a block's place in the columns; it is another block's once that
was forgotten.

Keys come from publishers, who may choose them. Each table therefore hashes with a secret of its own: the bits from 64
on of the product with a random 88-bit number (Dietzfelbinger's multiply-shift), which no two keys share but by chance.
"""

from __future__ import annotations

import secrets
from array import array

NONE = 0xFFFFFFFF  # no slot; a depth that is not known
_SHIFT, _MIX_BITS = 64, 88  # so that a table can have 2^24 places
_FIRST_SIZE = 256

COLUMNS = ("keys", "parent", "content", "isolation", "depth", "older", "newer")


class BlockTable:
    """keys: of the blocks. parent: key of the block before it, 0 where it is the first or not known. depth: NONE where
    not known. content, isolation: see cachemodel/content.py. limit: blocks, at least 1."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.keys, self.parent = array("Q"), array("Q")
        self.content, self.isolation = array("Q"), array("Q")
        self.depth = array("I")
        self.older, self.newer = array("I"), array("I")
        self._mix = secrets.randbits(_MIX_BITS) | 1
        self.index = array("I", bytes(4 * _FIRST_SIZE))  # slot + 1, 0 where empty
        self._mask = _FIRST_SIZE - 1
        self.oldest = self.newest = NONE

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, key: int) -> int:
        """The slot of a block; -1 where it is not known."""
        index, keys, mask = self.index, self.keys, self._mask
        at = (key * self._mix >> _SHIFT) & mask
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
                self._rehash()
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
        at = (key * self._mix >> _SHIFT) & mask
        while index[at]:
            at = (at + 1) & mask
        index[at] = slot + 1

    def _rehash(self) -> None:
        """Make the hash table again, as large as the keys want it."""
        size = _FIRST_SIZE
        while 2 * len(self.keys) >= size:
            size *= 2
        index, mask, mix = array("I", bytes(4 * size)), size - 1, self._mix
        for slot, key in enumerate(self.keys, 1):
            at = (key * mix >> _SHIFT) & mask
            while index[at]:
                at = (at + 1) & mask
            index[at] = slot
        self.index, self._mask = index, mask

    def _forget(self, slot: int) -> None:
        """Take a block out; those that were pushed on by it move up."""
        index, keys, mask = self.index, self.keys, self._mask
        at = (keys[slot] * self._mix >> _SHIFT) & mask
        while index[at] != slot + 1:
            at = (at + 1) & mask
        hole = at
        while entry := index[at := (at + 1) & mask]:
            home = (keys[entry - 1] * self._mix >> _SHIFT) & mask
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
        """All there is but the hash table, by name."""
        return {name: getattr(self, name) for name in COLUMNS}

    @classmethod
    def of(cls, limit: int, oldest: int, newest: int, columns: dict[str, bytes]) -> BlockTable:
        """A table from its columns' bytes. Raises ValueError where they do not fit together."""
        table = cls(limit)
        for name in COLUMNS:
            column = array(getattr(table, name).typecode)
            column.frombytes(columns[name])
            setattr(table, name, column)
        table.oldest, table.newest = oldest, newest
        lengths = {len(getattr(table, name)) for name in COLUMNS}
        if len(lengths) != 1 or len(table) > limit:
            raise ValueError("columns of different lengths, or more blocks than fit")
        table._rehash()
        return table
