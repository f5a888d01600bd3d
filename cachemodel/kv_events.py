"""The KV-cache event codec: what vLLM, and servers that follow it, publish over ZeroMQ.

A message's payload is a msgpack batch `[ts, events, data_parallel_rank]`; an event is a map with a `type` (vLLM 0.24
and newer) or a positional array that begins with it (0.9 to 0.23). One vLLM main commit had the batch as a map too, so
both forms are read at both levels. Block hashes come as unsigned 64-bit integers (vLLM), signed ones (SGLang) or bytes
(vLLM with VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0); here a hash is always the unsigned 64-bit integer of its last eight
bytes, and `hash_bits` keeps how wide it was. Fields and events this module does not know are kept, never dropped.

Source: vllm/distributed/kv_events.py and its history (pull requests 16750, 19737, 27577, 33304, 37688, 40984, 42892).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec

MAX_PAYLOAD_BYTES = 64 << 20
MAX_BLOCKS_PER_EVENT = 1 << 20

# Positions after the type, in the array form.
STORED_POSITIONS = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
)
REMOVED_POSITIONS = ("block_hashes", "medium", "group_idx")
BATCH_POSITIONS = ("ts", "events", "data_parallel_rank")

_MASK = (1 << 64) - 1
_decode = msgspec.msgpack.Decoder().decode
_encode = msgspec.msgpack.Encoder().encode


class DecodeError(ValueError):
    """The payload is no batch of KV events; the message says where it stops being one."""


@dataclass(frozen=True, slots=True)
class BlockStored:
    """Blocks that follow each other in one chain were stored.

    token_ids: block_size times the number of blocks, empty for a connector's placeholder. extra_keys: one entry a
    block, None where it has none; a cache salt, adapter or image key stands there untagged.
    """

    block_hashes: Sequence[int]
    parent_block_hash: int | None = None
    token_ids: Sequence[Any] = ()
    block_size: int | None = None
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: Sequence[Any] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    hash_bits: int = 64
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def token_count(self) -> int:
        """Tokens in all of the event's blocks."""
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """Blocks left a medium."""

    block_hashes: Sequence[int]
    medium: str | None = None
    group_idx: int | None = None
    hash_bits: int = 64
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """The cache of the batch's rank was emptied. vLLM says so only with its next step."""

    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event of a type this version does not know, as it came."""

    type: str
    fields: Mapping[str, Any]


Event = BlockStored | BlockRemoved | AllBlocksCleared | UnknownEvent


@dataclass(frozen=True, slots=True)
class KVEventBatch:
    """What one engine step did to its cache; the order of events matters.

    ts: Unix seconds on the server's clock. rank: data-parallel rank, None where the server does not say.
    """

    ts: float
    events: Sequence[Event]
    rank: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)


def decode_batch(payload: bytes) -> KVEventBatch:
    """Read one message's payload; raises DecodeError and nothing else."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise DecodeError(f"{len(payload)} bytes are more than a batch may have ({MAX_PAYLOAD_BYTES})")
    try:
        raw = _decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise DecodeError(f"not msgpack: {error}") from None
    batch = _named(raw, BATCH_POSITIONS, "the batch")
    ts, events, rank = batch.pop("ts", None), batch.pop("events", None), batch.pop("data_parallel_rank", None)
    if rank is None:
        rank = batch.pop("attn_dp_rank", None)
    if isinstance(ts, bool) or not isinstance(ts, int | float):
        raise DecodeError(f"the batch's time is {_kind(ts)}, not a number")
    if not isinstance(events, list):
        raise DecodeError(f"the batch's events are {_kind(events)}, not an array")
    return KVEventBatch(float(ts), [_event(e) for e in events], _integer(rank, "data_parallel_rank"), batch)


def encode_batch(batch: KVEventBatch, *, arrays: bool = False) -> bytes:
    """The payload of a batch: events as maps (vLLM 0.24 and newer) or, with `arrays`, in the older positional form."""
    events = [_as_array(e) if arrays else _as_map(e) for e in batch.events]
    return _encode([batch.ts, events, batch.rank])


def _event(raw: Any) -> Event:
    if isinstance(raw, list):
        if not raw or not isinstance(raw[0], str):
            raise DecodeError("an event in array form does not begin with its type")
        kind, positional = raw[0], raw[1:]
        names = (
            STORED_POSITIONS if kind == "BlockStored" else REMOVED_POSITIONS if kind == "BlockRemoved" else ()
        )
        values = _named(positional, names, kind)
    elif isinstance(raw, dict):
        values = _named(raw, (), "an event")
        kind = values.pop("type", None)
        if not isinstance(kind, str):
            raise DecodeError("an event in map form has no type")
    else:
        raise DecodeError(f"an event is {_kind(raw)}, not a map or an array")
    if kind == "BlockStored":
        return _stored(values)
    if kind == "BlockRemoved":
        hashes, bits = _hashes(values.pop("block_hashes", None), kind)
        medium, group = values.pop("medium", None), values.pop("group_idx", None)
        return BlockRemoved(hashes, _text(medium, "medium"), _integer(group, "group_idx"), bits, values)
    return AllBlocksCleared(values) if kind == "AllBlocksCleared" else UnknownEvent(kind, values)


def _stored(values: dict[str, Any]) -> BlockStored:
    hashes, bits = _hashes(values.pop("block_hashes", None), "BlockStored")
    parent = values.pop("parent_block_hash", None)
    tokens = values.pop("token_ids", None)
    extra = values.pop("extra_keys", None)
    for name, value in (("token_ids", tokens), ("extra_keys", extra)):
        if value is not None and not isinstance(value, list):
            raise DecodeError(f"BlockStored.{name} is {_kind(value)}, not an array")
    return BlockStored(
        block_hashes=hashes,
        parent_block_hash=None if parent is None else _hash(parent, "BlockStored"),
        token_ids=tokens or (),
        block_size=_integer(values.pop("block_size", None), "block_size"),
        lora_id=_integer(values.pop("lora_id", None), "lora_id"),
        medium=_text(values.pop("medium", None), "medium"),
        lora_name=_text(values.pop("lora_name", None), "lora_name"),
        extra_keys=extra,
        group_idx=_integer(values.pop("group_idx", None), "group_idx"),
        kv_cache_spec_kind=_text(values.pop("kv_cache_spec_kind", None), "kv_cache_spec_kind"),
        kv_cache_spec_sliding_window=_integer(
            values.pop("kv_cache_spec_sliding_window", None), "sliding_window"
        ),
        hash_bits=bits,
        unknown=values,
    )


def _named(raw: Any, positions: tuple[str, ...], what: str) -> dict[str, Any]:
    """A map of names to values out of either form; positions past the known ones are kept under their number."""
    if isinstance(raw, dict):
        if not all(isinstance(name, str) for name in raw):
            raise DecodeError(f"{what} has a field whose name is no text")
        return dict(raw)
    if not isinstance(raw, list):
        raise DecodeError(f"{what} is {_kind(raw)}, not a map or an array")
    values: dict[str, Any] = {}
    for number, value in enumerate(raw):
        # SGLang can put a map of named fields in the place of a positional one; no position of ours holds a map.
        if isinstance(value, dict):
            for name, named in value.items():
                values.setdefault(str(name), named)
        else:
            values.setdefault(positions[number] if number < len(positions) else f"position_{number}", value)
    return values


def _hashes(raw: Any, kind: str) -> tuple[list[int], int]:
    if not isinstance(raw, list):
        raise DecodeError(f"{kind}.block_hashes is {_kind(raw)}, not an array")
    if len(raw) > MAX_BLOCKS_PER_EVENT:
        raise DecodeError(f"{kind} names {len(raw)} blocks, more than {MAX_BLOCKS_PER_EVENT}")
    bits = 8 * len(raw[0]) if raw and isinstance(raw[0], bytes) else 64
    return [_hash(value, kind) for value in raw], bits


def _hash(raw: Any, kind: str) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw & _MASK
    if isinstance(raw, bytes) and raw:
        return int.from_bytes(raw[-8:], "big")
    raise DecodeError(f"{kind} has a block hash that is {_kind(raw)}, not an integer or bytes")


def _integer(raw: Any, name: str) -> int | None:
    if raw is None or (isinstance(raw, int) and not isinstance(raw, bool)):
        return raw
    raise DecodeError(f"{name} is {_kind(raw)}, not an integer")


def _text(raw: Any, name: str) -> str | None:
    if raw is None or isinstance(raw, str):
        return raw
    raise DecodeError(f"{name} is {_kind(raw)}, not text")


def _kind(raw: Any) -> str:
    return "missing" if raw is None else f"of type {type(raw).__name__}"


def _as_map(event: Event) -> dict[str, Any]:
    if isinstance(event, UnknownEvent):
        return {"type": event.type, **event.fields}
    values = {f.name: getattr(event, f.name) for f in fields(event) if f.name not in ("hash_bits", "unknown")}
    named = {name: value for name, value in values.items() if value is not None}
    return {"type": type(event).__name__, **named, **event.unknown}


def _as_array(event: Event) -> list[Any]:
    if isinstance(event, UnknownEvent):
        return [event.type, *event.fields.values()]
    positions = {BlockStored: STORED_POSITIONS, BlockRemoved: REMOVED_POSITIONS, AllBlocksCleared: ()}[
        type(event)
    ]
    return [type(event).__name__, *(getattr(event, name) for name in positions)]
