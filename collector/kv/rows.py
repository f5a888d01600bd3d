"""KV-cache events as rows of `kv_events`: the JSON text of each, without braces and without what all rows of a message
share. Pure.

Rows hold hashes and counts, never token ids. Salts and session ids can name tenants: pseudonyms stand for them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from cachemodel.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
    Event,
)
from cachemodel.kv_events.media import pseudonym, tier_of

MAX_DEPTHS = 1 << 18  # blocks whose depth is remembered, about 30 MB; the least recently stored are forgotten
MAX_TEXT = 256  # characters of a text field; each is repeated in the row of every block
MAX_KEYS = 1024  # of the JSON text of extra keys
MAX_FIELDS, MAX_NAME = 32, 64  # fields that nobody knows, and characters of their names
GROUP_SHIFT = 0x9E3779B97F4A7C15  # see `depth_key`
_MASK = (1 << 64) - 1
_encode = msgspec.json.Encoder(enc_hook=repr).encode


def depth_key(block: int, group: int | None) -> int:
    """What a block's depth is remembered under: groups count in blocks of their own size, and share hashes.

    In SQL: `block + ifNull(group_idx, 0) * GROUP_SHIFT` on UInt64.
    """
    return (block + group * GROUP_SHIFT) & _MASK if group else block


class EventRows:
    """Makes rows of events in their order, and remembers how deep in its chain each block is.

    depths: what is known already. counts: events of an unknown type.
    """

    def __init__(self, depths: Mapping[int, int] | None = None) -> None:
        self.depths: dict[int, int] = dict(depths or {})
        self.counts: Counter[str] = Counter()

    def of(self, event: Event) -> Iterator[bytes]:
        """The rows of one event."""
        if isinstance(event, BlockStored):
            yield from self._stored(event)
        elif isinstance(event, BlockRemoved):
            yield from self._removed(event)
        elif isinstance(event, BlockUpdated):
            yield from self._updated(event)
        elif isinstance(event, AllBlocksCleared):
            told = {"ownership": capped(event.ownership), "detail": detail({}, event.unknown)}
            yield row({"action": "cleared", **told})
        elif isinstance(event, CacheCreated):
            capacity = {"blocks_per_level": ", ".join(map(str, event.blocks_per_level[:16]))}
            group, beside = uint(event.group_idx, 32), detail(capacity, event.unknown)
            yield row({"action": "created", "group_idx": group, "detail": beside})
        else:
            self.counts["unknown"] += 1
            yield row({"action": "unknown", "detail": detail({"type": event.type}, event.fields)})

    def _stored(self, event: BlockStored) -> Iterator[bytes]:
        group, placeholder = uint(event.group_idx, 32), event.is_placeholder
        parent, depth = event.parent_block_hash, None if placeholder else self._depth_below(event)
        keys = list(event.extra_keys or ())[: len(event.block_hashes)]
        content = _content(event, keys)
        common = _rest(
            {
                "block_size": uint(event.block_size, 32) or None,  # placeholders say 0
                **_place(event.medium, event.ownership, group),
                "kv_cache_spec_kind": capped(event.kv_cache_spec_kind),
                "lora_name": capped(event.lora_name),
                "lora_id": "" if event.lora_id is None else capped(str(event.lora_id)),
                "token_count": _tokens_a_block(event),
                "detail": detail(_beside(event), event.unknown),
            }
        )
        for block, extra in zip_longest(event.block_hashes, keys):
            if placeholder:
                depth = self.depths.get(depth_key(block, group))
            head = b'"action":"stored","block":%d,"parent":%s,"depth":%s' % (
                block,
                _number(parent),
                _number(depth),
            )
            if content is not None:
                head, content = head + b',"content":%d' % content, None
            if extra or event.cache_salt:
                head += b',"extra_keys":' + _encode(_keys(extra, event))
            yield head + common
            if placeholder:
                continue
            if depth is not None:
                self._remember(depth_key(block, group), depth)
                depth += 1
            parent = block

    def _removed(self, event: BlockRemoved) -> Iterator[bytes]:
        group = uint(event.group_idx, 32)
        common = _rest({**_place(event.medium, event.ownership, group), "detail": detail({}, event.unknown)})
        for block in event.block_hashes:
            depth = _number(self.depths.get(depth_key(block, group)))
            yield b'"action":"removed","block":%d,"depth":%s' % (block, depth) + common

    def _updated(self, event: BlockUpdated) -> Iterator[bytes]:
        """A move is a removal and a store, so that what a medium holds follows from these two alone."""
        group = uint(event.group_idx, 32)
        known = {"block": event.block_hash, "depth": self.depths.get(depth_key(event.block_hash, group))}
        told = detail({}, event.unknown)
        if event.medium_before is None and event.medium is None:
            yield row({"action": "updated", **known, "group_idx": group, "detail": told})
        for action, medium in (("removed", event.medium_before), ("stored", event.medium)):
            if medium is not None:
                yield row({"action": action, **known, **_place(medium, None, group), "detail": told})

    def _depth_below(self, event: BlockStored) -> int | None:
        """Depth of the block that follows the event's parent; None where that was not seen."""
        if event.parent_block_hash is None:
            return 0
        key = depth_key(event.parent_block_hash, uint(event.group_idx, 32))
        depth = self.depths.get(key)
        if depth is None:
            return None
        self._remember(key, depth)
        return depth + 1

    def _remember(self, key: int, depth: int) -> None:
        """A chained hash has one depth for ever, so removal and clearing forget nothing; only room runs out."""
        self.depths.pop(key, None)
        self.depths[key] = depth
        if len(self.depths) > MAX_DEPTHS:
            del self.depths[next(iter(self.depths))]


def row(fields: Mapping[str, Any]) -> bytes:
    """The JSON text of a row's fields, without braces."""
    return _encode(fields)[1:-1]


def uint(value: int | None, bits: int) -> int | None:
    """The value where its column can hold it, else None."""
    return value if value is not None and 0 <= value < 1 << bits else None


def capped(value: str | None, limit: int = MAX_TEXT) -> str:
    """A text as long as a row may have it; empty for None."""
    return "" if value is None else value if len(value) <= limit else value[: limit - 1] + "…"


def detail(known: Mapping[str, Any], unknown: Mapping[str, Any]) -> str:
    """JSON text of fields that have no column.

    What nobody knows is told by its size unless it is a number: it may be token ids, or the text of a prompt.
    """
    told = {name: capped(value) if isinstance(value, str) else value for name, value in known.items()}
    for name, value in list(unknown.items())[:MAX_FIELDS]:
        told.setdefault(capped(name, MAX_NAME), _size(value))
    return _text(told)


def _size(value: object) -> object:
    """A number, or how much there is of anything else."""
    match value:
        case bool() | int() | float() | None:
            return value
        case str():
            return f"{len(value)} characters"
        case bytes():
            return f"{len(value)} bytes"
        case list() | tuple() | dict():
            return f"{len(value)} items"
    return type(value).__name__


def _beside(event: BlockStored) -> dict[str, Any]:
    """What of an event has no column."""
    told: dict[str, Any] = {"kv_cache_spec_sliding_window": event.kv_cache_spec_sliding_window}
    told["session_id"] = None if event.session_id is None else pseudonym(event.session_id)
    told["hash_bits"] = None if event.hash_bits == 64 else event.hash_bits
    told["bigram"] = event.is_bigram or None
    return {name: value for name, value in told.items() if value is not None}


def _place(medium: str | None, ownership: str | None, group: int | None) -> dict[str, Any]:
    return {
        "medium": capped(medium),
        "tier": tier_of(medium) or "",
        "ownership": capped(ownership),
        "group_idx": group,
    }


def _tokens_a_block(event: BlockStored) -> int | None:
    """Tokens of each block; None where the event has none, or not the same number for all."""
    count = len(event.block_hashes)
    return (
        event.token_count // count if event.token_count and count and not event.token_count % count else None
    )


def _content(event: BlockStored, keys: Sequence[Any]) -> int | None:
    """What a chain begins with, as a number that does not depend on the seed of the server's hashes."""
    tokens = _tokens_a_block(event)
    if event.parent_block_hash is not None or tokens is None:
        return None
    told = [event.token_ids[:tokens], keys[0] if keys else None, event.lora_name, event.cache_salt]
    return int.from_bytes(hashlib.blake2b(_encode(told), digest_size=8).digest(), "big")


def _keys(extra: object, event: BlockStored) -> str:
    """JSON text of a block's extra keys and its event's salt."""
    keys = list(extra) if isinstance(extra, list | tuple) else [] if extra is None else [extra]
    salt = [pseudonym(event.cache_salt)] if event.cache_salt else []
    return capped(_text([*(_private(key, event.lora_name) for key in keys), *salt]), MAX_KEYS)


def _private(key: object, lora_name: str | None) -> object:
    """An extra key with pseudonyms for its texts; an adapter's name, which has a column, stays readable."""
    if isinstance(key, str | bytes):
        return key if key == lora_name else pseudonym(key)
    if isinstance(key, list | tuple):
        return [_private(part, lora_name) for part in key]
    return key if isinstance(key, bool | int | float | None) else pseudonym(repr(key))


def _text(value: object) -> str:
    """JSON text of a value; empty for what is empty."""
    return _encode(value).decode() if value else ""


def _rest(fields: Mapping[str, Any]) -> bytes:
    """The fields that say something, to follow others; what is left out is NULL or empty in the store."""
    told = {name: value for name, value in fields.items() if value not in (None, "")}
    return b"," + row(told) if told else b""


def _number(value: int | None) -> bytes:
    return b"null" if value is None else b"%d" % value
