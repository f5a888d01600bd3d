"""Events of NVIDIA Dynamo's event plane (NATS or ZeroMQ), in any of its serialisations. Read, not run live.

A router event is `worker_id, storage_tier, event`; an event `event_id, data, dp_rank`; data `stored` (parent_hash,
start_position, blocks[block_hash, tokens_hash]), `removed` (block_hashes) or `cleared`. Structures come as maps (JSON,
msgpack with names) or as arrays of their fields in this order (msgpack without names); `storage_tier` and
`start_position` are missing in older releases. On the wire one event or an array of them can lie in an envelope:
`publisher_id, sequence, published_at` (Unix milliseconds), `topic, payload`. Event ids rise by one for each worker.

There are no token ids. `tokens_hash`, which names the tokens of one block without what precedes them, is left out.

Sources: ai-dynamo/dynamo lib/kv-router/src/protocols.rs, lib/runtime/src/transports/event_plane (1.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from cachemodel.kv_events.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    DecodeError,
    Event,
    UnknownEvent,
)
from cachemodel.kv_events.values import array, block_hash, block_hashes, integer, kind_of, mapping, text

_ENVELOPE = ("publisher_id", "sequence", "published_at", "topic", "payload")
_from_msgpack = msgspec.msgpack.Decoder().decode
_from_json = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class RouterEvent:
    """One event of one worker. published: Unix seconds, None where there was no envelope."""

    worker_id: int
    event_id: int
    event: Event
    rank: int | None = None
    published: float | None = None


def decode_router_events(payload: bytes) -> list[RouterEvent]:
    """Read one message, with or without its envelope; raises DecodeError and nothing else."""
    raw = _plain(payload)
    published = None
    if (isinstance(raw, dict) and "payload" in raw) or (isinstance(raw, list) and _is_envelope(raw)):
        envelope = _fields(raw, _ENVELOPE, "the envelope")
        ms = integer(envelope.get("published_at"), "published_at")
        published = None if ms is None or not 0 <= ms < 1 << 53 else ms / 1000
        raw = _plain(_bytes(envelope.get("payload")))
    several = isinstance(raw, list) and bool(raw) and isinstance(raw[0], list | dict)
    return [_router_event(one, published) for one in (raw if several else [raw])]


def _router_event(raw: Any, published: float | None) -> RouterEvent:
    positions = (
        ("worker_id", "event")
        if isinstance(raw, list) and len(raw) == 2
        else ("worker_id", "storage_tier", "event")
    )
    outer = _fields(raw, positions, "a router event")
    inner = _fields(outer.pop("event", None), ("event_id", "data", "dp_rank"), "an event")
    worker, event_id = (
        integer(outer.pop("worker_id", None), "worker_id"),
        integer(inner.get("event_id"), "event_id"),
    )
    if worker is None or event_id is None:
        raise DecodeError("a router event lacks its worker_id or event_id")
    tier = text(outer.pop("storage_tier", None), "storage_tier")
    rank = integer(inner.get("dp_rank"), "dp_rank")
    # without a tier: the time before there were any, when only the device was told of
    return RouterEvent(
        worker, event_id, _event(inner.get("data"), (tier or "device").lower(), outer), rank, published
    )


def _event(raw: Any, medium: str, unknown: dict[str, Any]) -> Event:
    if isinstance(raw, str):
        kind, content = raw, None
    else:
        variant = mapping(raw, "an event's data")
        if len(variant) != 1:
            raise DecodeError("an event's data does not have one kind")
        kind, content = next(iter(variant.items()))
    match kind.lower():
        case "stored":
            return _stored(content, medium, unknown)
        case "removed":
            gone = _fields(content, ("block_hashes",), "removed")
            hashes, bits = block_hashes(gone.pop("block_hashes", None), "removed")
            return BlockRemoved(hashes, medium, hash_bits=bits, unknown=unknown | gone)
        case "cleared":
            return AllBlocksCleared(unknown=unknown)
    return UnknownEvent(kind, unknown if content is None else {**unknown, "data": content})


def _stored(content: Any, medium: str, unknown: dict[str, Any]) -> BlockStored:
    positions = (
        ("parent_hash", "blocks")
        if isinstance(content, list) and len(content) == 2
        else ("parent_hash", "start_position", "blocks")
    )
    stored = _fields(content, positions, "stored")
    parent = stored.pop("parent_hash", None)
    blocks = array(stored.pop("blocks", None), "blocks") or []
    names = ("block_hash", "tokens_hash", "mm_extra_info")
    read = [_fields(block, names, "a stored block") for block in blocks]
    images = [_image_keys(block.get("mm_extra_info")) for block in read]
    return BlockStored(
        block_hashes=[block_hash(block.get("block_hash"), "a stored block") for block in read],
        parent_block_hash=None if parent is None else block_hash(parent, "stored"),
        medium=medium,
        extra_keys=images if any(images) else None,
        tells_tokens=False,
        unknown=unknown | {name: value for name, value in stored.items() if value is not None},
    )


def _image_keys(raw: Any) -> list[int] | None:
    """Hashes of the images that a block has a part of."""
    if raw is None:
        return None
    objects = array(_fields(raw, ("mm_objects",), "mm_extra_info").get("mm_objects"), "mm_objects") or []
    return [block_hash(_fields(o, ("mm_hash",), "an image").get("mm_hash"), "an image") for o in objects]


def _is_envelope(raw: Sequence[Any]) -> bool:
    return len(raw) == len(_ENVELOPE) and isinstance(raw[3], str) and isinstance(raw[4], bytes | list)


def _fields(raw: Any, positions: tuple[str, ...], what: str) -> dict[str, Any]:
    if isinstance(raw, list):
        known = dict(zip(positions, raw, strict=False))
        return known | {f"position_{n}": v for n, v in enumerate(raw) if n >= len(positions)}
    return mapping(raw, what)


def _bytes(raw: Any) -> bytes:
    """A payload: bytes in msgpack, an array of numbers in JSON."""
    if isinstance(raw, bytes):
        return raw
    if isinstance(raw, list) and all(isinstance(b, int) and 0 <= b < 256 for b in raw):
        return bytes(raw)
    raise DecodeError(f"the payload is {kind_of(raw)}, not bytes")


def _plain(payload: bytes) -> Any:
    """The value that JSON or msgpack text holds; no structure in msgpack begins like one in JSON."""
    decode = _from_json if payload.lstrip()[:1] in (b"{", b"[") else _from_msgpack
    try:
        return decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise DecodeError(f"neither JSON nor msgpack: {error}") from None
