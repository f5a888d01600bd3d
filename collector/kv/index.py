"""What one cache (a rank of a server, as one source tells of it) holds, and where each of its blocks stands in its
chain. The rules of residency are in cachemodel/residency.py, the memory in table.py and orphans.py.

Telling the same twice changes nothing: a block is held in a place or not, by (medium, ownership, group, hash).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from cachemodel.content import ContentHasher
from cachemodel.kv_events.media import tier_of
from cachemodel.layers import Tier
from cachemodel.residency import Completeness, Told, after_clear, after_gap, holds, is_device_like
from collector.kv.orphans import Orphan, Orphans
from collector.kv.table import NONE, BlockTable

MAX_BLOCKS = 1 << 20  # of one cache, about 60 MB; the least recently told of are forgotten
MAX_PLACES = 32  # media and ownerships of one cache; a byte a block each
GROUP_SHIFT = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


Lineage = tuple[int, int, int]
"""Where a block stands: blocks before it; `content` and `isolation` of it and them, see cachemodel/content.py; content
is 0 where its tokens, or those of a block before it, are not known."""
CONTENT = 1
ROOT: Lineage = (-1, 0, 0)
"""What stands before the first block of a chain."""


def block_key(block: int, group: int | None) -> int:
    """What a block is known under: groups count in blocks of their own size, and share hashes."""
    return (block + group * GROUP_SHIFT) & _MASK if group else block


def follow(hasher: ContentHasher, parent: Lineage, piece: int, own_keys: int) -> Lineage:
    """The lineage of the block that follows. piece, own_keys: hashes of its tokens and isolating keys, or 0."""
    depth, content, isolation = parent
    return (
        depth + 1,
        hasher.follow(content, piece) if piece and (content or depth < 0) else 0,
        hasher.isolated(isolation, own_keys) if own_keys else isolation,
    )


@dataclass(slots=True)
class Place:
    """A medium. told: by slot, see cachemodel.residency.Told. forgot: some of what it held was forgotten for room."""

    medium: str
    ownership: str
    tier: Tier | None
    told: bytearray
    forgot: bool = False


class BlockIndex:
    """counts: forgotten (held blocks that there was no room to remember), places_left_out (events)."""

    def __init__(
        self, hasher: ContentHasher, table: BlockTable | None = None, complete: Completeness | None = None
    ) -> None:
        self.hasher = hasher
        self.table = BlockTable(MAX_BLOCKS) if table is None else table
        self.complete = Completeness() if complete is None else complete
        self.places: dict[tuple[str, str], Place] = {}
        self.orphans = Orphans()
        self.counts: Counter[str] = Counter()

    # -- what events tell

    def place(self, medium: str, ownership: str) -> Place | None:
        """The place of that name; None where there are too many."""
        place = self.places.get((medium, ownership))
        if place is None:
            if len(self.places) >= MAX_PLACES:
                self.counts["places_left_out"] += 1
                return None
            place = Place(medium, ownership, tier_of(medium), bytearray(len(self.table)))
            self.places[medium, ownership] = place
        return place

    def hold(self, key: int, place: Place | None) -> int:
        """A block was stored. Returns its slot."""
        slot = self.table.find(key)
        if slot < 0:
            slot = self._add(key)
        else:
            self.table.touch(slot)
        if place is not None:
            place.told[slot] = Told.HELD
        return slot

    def drop(self, key: int, place: Place | None) -> int:
        """A block was removed. Returns its slot."""
        slot = self.table.find(key)
        if slot < 0:
            slot = self._add(key)
        if place is not None:
            place.told[slot] = Told.GONE
        return slot

    def clear(self, ownership: str) -> None:
        """The cache was emptied, of that ownership only unless it is empty."""
        self.complete.clear(ownership)
        for place in self.places.values():
            if ownership in ("", place.ownership):
                place.told = after_clear(place.told, place.tier)
                place.forgot = place.forgot and not is_device_like(place.tier)

    def gap(self) -> None:
        """Events were lost."""
        self.complete.gap()
        for place in self.places.values():
            place.told = after_gap(place.told)

    # -- where blocks stand

    def lineage(self, slot: int) -> Lineage | None:
        """Where the block in a slot stands; None where that is not known."""
        table = self.table
        depth = table.depth[slot]
        return None if depth == NONE else (depth, table.content[slot], table.isolation[slot])

    def lineage_of(self, key: int) -> Lineage | None:
        slot = self.table.find(key)
        return None if slot < 0 else self.lineage(slot)

    def learn(self, slot: int, parent_key: int, lineage: Lineage) -> None:
        """Where a block stands was told."""
        table = self.table
        table.parent[slot] = parent_key
        table.depth[slot], table.content[slot], table.isolation[slot] = lineage

    def resolved(self, key: int, lineage: Lineage) -> Iterator[tuple[Orphan, Lineage]]:
        """The orphans whose place is known now that this block's is: itself, and all that hang on it, parents first."""
        orphans, hasher = self.orphans, self.hasher
        found = orphans.pop(key)
        if found is not None:
            yield found, lineage
        known = [(key, lineage)]
        while known:
            parent_key, parent = known.pop()
            for child in orphans.children(parent_key):
                orphan = orphans.pop(child)
                if orphan is None:
                    continue
                place = follow(hasher, parent, orphan.piece, orphan.own_keys)
                slot = self.table.find(child)
                if slot >= 0:
                    self.learn(slot, parent_key, place)
                yield orphan, place
                known.append((child, place))

    # -- what is asked of it

    def holds(self, block: int, medium: str, ownership: str = "", group: int | None = None) -> bool | None:
        """Whether a block is in a place; None where that cannot be known."""
        place = self.places.get((medium, ownership))
        complete = self.complete.of(tier_of(medium), ownership)
        if place is None:
            left_out = len(self.places) >= MAX_PLACES
            return holds(Told.NOTHING, complete=complete and not left_out)
        slot = self.table.find(block_key(block, group))
        told = Told.NOTHING if slot < 0 else place.told[slot]
        return holds(told, complete=complete and not place.forgot)

    def totals(self) -> dict[str, tuple[int, int]]:
        """By tier (empty: not known), of all places together: blocks held, and blocks once held of which is unknown
        whether they still are. May be asked from any thread."""
        found: dict[str, tuple[int, int]] = {}
        for place in list(self.places.values()):
            told, tier = place.told, place.tier or ""
            held, unknown = found.get(tier, (0, 0))
            found[tier] = (held + told.count(Told.HELD), unknown + told.count(Told.WAS_HELD))
        return found

    def _add(self, key: int) -> int:
        table = self.table
        before = len(table)
        slot = table.add(key)
        for place in self.places.values():
            if slot == before:
                place.told.append(Told.NOTHING)
                continue
            if place.told[slot] in (Told.HELD, Told.WAS_HELD):
                place.forgot = True
                self.counts["forgotten"] += place.told[slot] == Told.HELD
            place.told[slot] = Told.NOTHING
        return slot
