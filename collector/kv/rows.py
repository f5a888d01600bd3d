"""KV-cache events as rows of `kv_events`: the JSON text of each, without braces and without what all rows of a message
share. Pure.

Rows hold keyed hashes and counts, never token ids. Salts and session ids can name tenants: pseudonyms stand for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from cachemodel.content import ContentHasher
from cachemodel.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
    Event,
    UnknownEvent,
)
from collector.kv import orphans
from collector.kv.fields import (
    beside,
    capped,
    detail,
    encode,
    named,
    own_keys,
    place,
    rest,
    row,
    shown_keys,
    tokens_a_block,
    uint,
)
from collector.kv.index import CONTENT, ROOT, BlockIndex, Lineage, block_key, follow

_MAX_CACHED = 512

Row = bytes
"""JSON text of a row's own fields, without braces."""


class EventRows:
    """Makes rows of events in their order, and keeps the index of what the cache holds.

    index: what is known already. counts: events of an unknown type, blocks resolved.
    """

    def __init__(self, hasher: ContentHasher, index: BlockIndex | None = None) -> None:
        self.index = BlockIndex(hasher) if index is None else index
        self.counts: Counter[str] = Counter()
        self._hasher = hasher
        self._seq, self._time, self._pos = 0, 0.0, 0
        self._shared: dict[tuple[object, ...], tuple[bytes, bytes]] = {}

    def begin(self, seq: int, time: float) -> None:
        """The events that follow are of that message, made at `time` (Unix seconds)."""
        self._seq, self._time, self._pos = seq, time, 0

    def of(self, event: Event) -> list[Row]:
        """The rows of one event, in their order, with their positions in its message."""
        out: list[Row] = []
        if isinstance(event, BlockStored):
            self._stored(event, out)
        elif isinstance(event, BlockRemoved):
            self._removed(event, out)
        elif isinstance(event, BlockUpdated):
            self._updated(event, out)
        else:
            out.append(b'"pos":%d,%s' % (self._pos + 1, row(self._of_cache(event))))
        self._pos += len(out)
        return out

    def _of_cache(self, event: AllBlocksCleared | CacheCreated | UnknownEvent) -> dict[str, Any]:
        """The row of what is told of the whole cache, or in no words that are known."""
        if isinstance(event, AllBlocksCleared):
            ownership = capped(event.ownership)
            self.index.clear(ownership)
            return {"action": "cleared", "ownership": ownership, "detail": detail({}, event.unknown)}
        if isinstance(event, CacheCreated):
            capacity = {"blocks_per_level": ", ".join(map(str, event.blocks_per_level[:16]))}
            group, told = uint(event.group_idx, 32), detail(capacity, event.unknown)
            return {"action": "created", "group_idx": group, "detail": told}
        self.counts["unknown"] += 1
        return {"action": "unknown", "detail": detail({"type": named(event.type)}, event.fields)}

    def _stored(self, event: BlockStored, out: list[Row]) -> None:
        index, hasher, group = self.index, self._hasher, uint(event.group_idx, 32)
        held_in = index.place(capped(event.medium), capped(event.ownership))
        count, tokens = len(event.block_hashes), tokens_a_block(event)
        where, common = self._stored_fields(event, group, tokens)
        pieces = self._pieces(event, tokens) or [0] * count
        extras = [*(event.extra_keys or ())][:count]
        has_keys = bool(event.cache_salt or event.lora_name or event.lora_id is not None)
        has_extras, is_placeholder = any(extras), event.is_placeholder
        parent = event.parent_block_hash
        parent_key = 0 if parent is None else block_key(parent, group)
        before = None if is_placeholder else ROOT if parent is None else self._lineage_before(parent_key)
        for at, block in enumerate(event.block_hashes):
            key = block_key(block, group) if group else block
            slot, piece, own, keys = index.hold(key, held_in), pieces[at], 0, b""
            if has_extras or has_keys:
                extra = extras[at] if at < len(extras) else None
                own = own_keys(extra, event, is_first=parent is None, hasher=hasher)
                if extra or event.cache_salt:
                    keys = b',"extra_keys":' + encode(shown_keys(extra, event, hasher))
            known = index.lineage(slot)
            lineage = known if before is None else follow(hasher, before, piece, own)
            if lineage is not known:
                if lineage and known and known[CONTENT] and not lineage[CONTENT]:
                    lineage = known  # it was told of before, when more was said
                elif lineage and lineage != known:
                    index.learn(slot, parent_key, lineage)
            local = b',"local":%d' % piece if piece else b""
            out.append(
                b'"pos":%d,"action":"stored","block":%d,"parent":%s%s%s%s%s'
                % (
                    *(self._pos + len(out) + 1, block, b"null" if parent is None else b"%d" % parent),
                    *(_lineage(lineage), local, keys, common),
                )
            )
            if lineage is None:
                orphan = self._note("stored", key, block, where, out)
                if parent is not None:
                    index.orphans.hang(orphan, parent, parent_key, piece, own)
            elif lineage != known and len(index.orphans):
                self._resolve(key, lineage, out)
            if not is_placeholder:
                parent, parent_key, before = block, key, lineage

    def _removed(self, event: BlockRemoved, out: list[Row]) -> None:
        group, index = uint(event.group_idx, 32), self.index
        was_in = index.place(capped(event.medium), capped(event.ownership))
        where, common = self._removed_fields(event, group)
        for block in event.block_hashes:
            key = block_key(block, group) if group else block
            lineage = index.lineage(index.drop(key, was_in))
            out.append(
                b'"pos":%d,"action":"removed","block":%d%s%s'
                % (self._pos + len(out) + 1, block, _lineage(lineage), common)
            )
            if lineage is None and index.orphans.get(key):
                self._note("removed", key, block, where, out)

    def _updated(self, event: BlockUpdated, out: list[Row]) -> None:
        """A move is a removal and a store, so that what a medium holds follows from these two alone."""
        group, index, block = uint(event.group_idx, 32), self.index, event.block_hash
        key, told = block_key(block, group), rest({"detail": detail({}, event.unknown)})

        def add(action: str, lineage: Lineage | None, where: bytes) -> None:
            head = b'"pos":%d,"action":"%s"' % (self._pos + len(out) + 1, action.encode())
            out.append(b'%s,"block":%d%s%s%s' % (head, block, _lineage(lineage), where, told))

        if event.medium_before is None and event.medium is None:
            add("updated", index.lineage_of(key), rest({"group_idx": group}))
        for action, medium in (("removed", event.medium_before), ("stored", event.medium)):
            if medium is None:
                continue
            at = place(medium, None, group)
            in_place, where = index.place(at["medium"], ""), rest(at)
            slot = index.hold(key, in_place) if action == "stored" else index.drop(key, in_place)
            lineage = index.lineage(slot)
            add(action, lineage, where)
            if lineage is None and (action == "stored" or index.orphans.get(key)):
                self._note(action, key, block, where, out)

    def _stored_fields(
        self, event: BlockStored, group: int | None, tokens: int | None
    ) -> tuple[bytes, bytes]:
        """The fields that all rows of an event share, of them first those that say where."""
        unlike = None if event.unknown or event.session_id is not None else event.is_bigram
        who = (event.medium, event.ownership, group, event.lora_name, event.lora_id, event.kv_cache_spec_kind)
        sizes = (event.block_size, tokens, event.kv_cache_spec_sliding_window, event.hash_bits, unlike)
        if unlike is not None and (made := self._shared.get((who, sizes))):
            return made
        # placeholders say 0
        where = rest({"block_size": uint(event.block_size, 32) or None, **place(*who[:2], group)})
        common = {
            "kv_cache_spec_kind": capped(event.kv_cache_spec_kind),
            "lora_name": capped(event.lora_name),
            "lora_id": "" if event.lora_id is None else capped(str(event.lora_id)),
            "token_count": tokens,
            "detail": detail(beside(event, self._hasher), event.unknown),
        }
        return self._share((who, sizes), (where, where + rest(common)), keep=unlike is not None)

    def _removed_fields(self, event: BlockRemoved, group: int | None) -> tuple[bytes, bytes]:
        who = (event.medium, event.ownership, group)
        if not event.unknown and (made := self._shared.get(who)):
            return made
        where = rest(place(*who))
        common = where + rest({"detail": detail({}, event.unknown)})
        return self._share(who, (where, common), keep=not event.unknown)

    def _share(
        self, key: tuple[object, ...], made: tuple[bytes, bytes], *, keep: bool
    ) -> tuple[bytes, bytes]:
        if keep:
            if len(self._shared) >= _MAX_CACHED:
                self._shared.clear()
            self._shared[key] = made
        return made

    def _lineage_before(self, key: int) -> Lineage | None:
        """Where an event's parent stands; one that others follow is remembered."""
        slot = self.index.table.find(key)
        if slot < 0:
            return None
        self.index.table.touch(slot)
        return self.index.lineage(slot)

    def _pieces(self, event: BlockStored, tokens: int | None) -> list[int] | None:
        """Hashes of the tokens of each block; None where there are none, or they are no token ids."""
        if tokens is None:
            return None
        try:
            ids: Sequence[int] = [pair[0] for pair in event.token_ids] if event.is_bigram else event.token_ids
            pieces = self._hasher.pieces(ids, tokens)
        except (TypeError, OverflowError, IndexError):
            return None
        return pieces if len(pieces) == len(event.block_hashes) else None

    def _note(self, action: str, key: int, block: int, where: bytes, out: list[Row]) -> orphans.Orphan:
        """The event whose row was just made told of a block without a place."""
        orphan = self.index.orphans.add(key, block)
        at = orphans.Event(action, self._time, self._seq, self._pos + len(out), where)
        self.index.orphans.note(orphan, at)
        return orphan

    def _resolve(self, key: int, lineage: Lineage, out: list[Row]) -> None:
        """A row for each event that told of a block whose place is known only now."""
        for orphan, found in self.index.resolved(key, lineage):
            self.counts["resolved"] += 1
            parent = b"null" if orphan.parent is None else b"%d" % orphan.parent
            for event in orphan.events:
                told = {"action": event.action, "time": event.time, "seq": event.seq, "pos": event.pos}
                head = b'"pos":%d,"action":"resolved","block":%d' % (self._pos + len(out) + 1, orphan.block)
                beside_it = rest({"detail": encode({"told": told}).decode()})
                out.append(b'%s,"parent":%s%s%s%s' % (head, parent, _lineage(found), event.place, beside_it))


def _lineage(lineage: Lineage | None) -> bytes:
    """The columns that say where a block stands, to follow others."""
    if lineage is None:
        return b',"depth":null'
    if lineage[CONTENT]:
        return b',"depth":%d,"content":%d,"isolation":%d' % lineage
    return b',"depth":%d,"isolation":%d' % (lineage[0], lineage[2])
