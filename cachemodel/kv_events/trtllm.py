"""TensorRT-LLM's KV-cache events as `POST /kv_cache_events` gives them; reading drains the server's buffer.

An answer is a JSON list of `{event_id, data, window_size, attention_dp_rank}`, data being one of

    created    num_blocks_per_cache_level
    stored     parent_hash, blocks[block_hash, tokens[token_id, token_extra_id], cache_level, priority], which follow
               each other in a chain; the last may be partial
    removed    block_hashes, of no matter which level
    updated    block_hash, cache_level and priority as differences (old_value, new_value), null where unchanged

Level 0 is the device, 1 the host. Event ids count from 0 for each attention rank and begin again with the server. There
are no times. Here a group is the attention window that the blocks belong to, or the layer group where that is told (KV
cache manager V2). Read, not run live.

Sources: tensorrt_llm/_utils.py (KVCacheEventSerializer); NVIDIA/TensorRT-LLM docs/source/features/kvcache.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from cachemodel.kv_events.events import (
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
    DecodeError,
    Event,
    UnknownEvent,
)
from cachemodel.kv_events.values import array, block_hash, block_hashes, integer, kind_of, mapping, text

MAX_LEVELS = 1 << 18  # blocks whose level is remembered, about 40 MB; the least recently stored are forgotten
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Drained:
    """One item of an answer: what it comes to, nothing where `error` says why it cannot be read.

    rank: attention data-parallel rank, None where the server has one.
    """

    event_id: int
    rank: int | None
    events: tuple[Event, ...] = ()
    error: str = ""


class Drain:
    """Reads the answers of one server, one after the other: a removal names no level, so it is remembered."""

    def __init__(self) -> None:
        self._levels: OrderedDict[tuple[int | None, int | None, int], str] = OrderedDict()

    def decode(self, body: bytes) -> tuple[list[Drained], int]:
        """The items of an answer, and how many of them do not even have an id.

        Raises DecodeError, and nothing else, where the answer is no list.
        """
        try:
            raw = _decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError, OverflowError) as error:
            raise DecodeError(f"not JSON: {error}") from None
        if not isinstance(raw, list):
            raise DecodeError(f"the answer is {kind_of(raw)}, not a list of events")
        items = [item for item in map(self._item, raw) if item is not None]
        return items, len(raw) - len(items)

    def _item(self, raw: Any) -> Drained | None:
        try:
            item = mapping(raw, "an event")
            event_id = integer(item.pop("event_id", None), "event_id")
            rank = integer(item.pop("attention_dp_rank", None), "attention_dp_rank")
        except DecodeError:
            return None
        if event_id is None or not 0 <= event_id < 1 << 64 or not 0 <= (rank or 0) < 1 << 16:
            return None
        try:
            return Drained(event_id, rank, tuple(self._events(rank, item)))
        except DecodeError as error:
            return Drained(event_id, rank, error=str(error))

    def _events(self, rank: int | None, item: dict[str, Any]) -> Iterator[Event]:
        data = mapping(item.pop("data", None), "data")
        kind = text(data.pop("type", None), "data.type")
        window = integer(item.pop("window_size", None), "window_size")
        layer_group = item.pop("layer_group_id", data.pop("layer_group_id", None))
        group = window if layer_group is None else integer(layer_group, "layer_group_id")
        beside = {**item, **({} if layer_group is None or window is None else {"window_size": window})}
        if kind == "created":
            levels = array(data.pop("num_blocks_per_cache_level", None), "num_blocks_per_cache_level") or []
            capacity = [integer(blocks, "num_blocks_per_cache_level") or 0 for blocks in levels]
            yield CacheCreated(capacity, group, data | beside)
        elif kind == "stored":
            yield from self._stored(rank, group, data, beside)
        elif kind == "removed":
            yield from self._removed(rank, group, data, beside)
        elif kind == "updated":
            yield self._updated(rank, group, data, beside)
        else:
            yield UnknownEvent(kind or "", data | beside)

    def _stored(
        self, rank: int | None, group: int | None, data: dict[str, Any], beside: dict[str, Any]
    ) -> Iterator[Event]:
        """One event a block: each has a level, a priority and, being perhaps partial, a length of its own."""
        parent = data.pop("parent_hash", None)
        parent_hash = None if parent is None else block_hash(parent, "stored")
        blocks = array(data.pop("blocks", None), "blocks") or []
        # read whole before anything is remembered, so that a broken item leaves nothing behind
        read = [_block(mapping(raw, "a stored block")) for raw in blocks]
        for found, tokens, extra, fields in read:
            medium = _medium(fields.pop("cache_level", None))
            if medium is not None:
                self._remember((rank, group, found), medium)
            yield BlockStored(
                block_hashes=[found],
                parent_block_hash=parent_hash,
                token_ids=tokens,
                lora_id=integer(fields.pop("lora_id", None), "lora_id"),
                medium=medium,
                extra_keys=[extra] if extra else None,
                group_idx=group,
                cache_salt=text(fields.pop("cache_salt", None), "cache_salt"),
                unknown=fields | data | beside,
            )
            parent_hash = found

    def _removed(
        self, rank: int | None, group: int | None, data: dict[str, Any], beside: dict[str, Any]
    ) -> Iterator[Event]:
        hashes, _ = block_hashes(data.pop("block_hashes", None), "removed")
        by_medium: dict[str | None, list[int]] = {}
        for found in hashes:
            by_medium.setdefault(self._levels.pop((rank, group, found), None), []).append(found)
        for medium, gone in by_medium.items():
            yield BlockRemoved(gone, medium, group, unknown=data | beside)

    def _updated(
        self, rank: int | None, group: int | None, data: dict[str, Any], beside: dict[str, Any]
    ) -> BlockUpdated:
        found = block_hash(data.pop("block_hash", None), "updated")
        before, after = _difference(data.pop("cache_level", None), "cache_level")
        lower, upper = _difference(data.pop("priority", None), "priority")
        if after is not None:
            self._remember((rank, group, found), f"cache_level={after}")
        told = data | beside | ({"priority": upper, "priority_before": lower} if upper is not None else {})
        return BlockUpdated(found, _medium(before), _medium(after), group, told)

    def _remember(self, block: tuple[int | None, int | None, int], medium: str) -> None:
        self._levels[block] = medium
        self._levels.move_to_end(block)
        if len(self._levels) > MAX_LEVELS:
            self._levels.popitem(last=False)


def _block(raw: dict[str, Any]) -> tuple[int, list[Any], list[Any], dict[str, Any]]:
    """Hash, token ids, extra keys and the other fields of a stored block."""
    raw.pop("type", None)
    found = block_hash(raw.pop("block_hash", None), "a stored block")
    tokens = [mapping(token, "a token") for token in array(raw.pop("tokens", None), "tokens") or []]
    keys = array(raw.pop("mm_keys", None), "mm_keys") or []
    extra = [key.get("hash") if isinstance(key, dict) else key for key in keys]
    extra += sorted({t["token_extra_id"] for t in tokens if isinstance(t.get("token_extra_id"), int)} - {0})
    for name in ("cache_level", "lora_id"):
        integer(raw.get(name), name)
    text(raw.get("cache_salt"), "cache_salt")
    return found, [t.get("token_id") for t in tokens], extra, raw


def _medium(level: Any) -> str | None:
    number = integer(level, "cache_level")
    return None if number is None else f"cache_level={number}"


def _difference(raw: Any, name: str) -> tuple[int | None, int | None]:
    """Old and new value; None where nothing changed."""
    if raw is None:
        return None, None
    values = mapping(raw, name)
    return integer(values.get("old_value"), name), integer(values.get("new_value"), name)
