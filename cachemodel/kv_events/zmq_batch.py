"""The batches that vLLM, and servers that follow it, publish over ZeroMQ.

A message's payload is a msgpack batch `[ts, events, data_parallel_rank]`; an event is a map with a `type` (vLLM 0.24
and newer, SGLang) or a positional array that begins with it (vLLM 0.9 to 0.23, older SGLang). One vLLM main commit had
the batch as a map too, so both forms are read at both levels. Fields and events this module does not know are kept,
never dropped.

SGLang calls the rank `attn_dp_rank`, sends one event for consecutive pages, pairs of token ids where it hashes bigrams,
an adapter's id as text, and in some releases a map of named fields in the place of array position 7. TensorRT-LLM's KV
cache manager V2 publishes vLLM's form. Both were read, not run live.

Sources: vllm/distributed/kv_events.py and its history (pull requests 16750, 19737, 27577, 33304, 37688, 40984, 42892);
sglang/srt/disaggregation/kv_events.py (0.5.23); ai-dynamo pull request 14530; NVIDIA/TensorRT-LLM pull request 17023.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec

from cachemodel.kv_events.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    DecodeError,
    Event,
    KVEventBatch,
    UnknownEvent,
)
from cachemodel.kv_events.values import (
    HASH_MASK,
    MAX_BLOCKS_PER_EVENT,
    array,
    block_hash,
    block_hashes,
    integer,
    kind_of,
    mapping,
    text,
)

MAX_PAYLOAD_BYTES = 64 << 20

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
_POSITIONS = {"BlockStored": STORED_POSITIONS, "BlockRemoved": REMOVED_POSITIONS}
_NOT_ON_THE_WIRE = ("hash_bits", "tells_tokens", "unknown")


class _Stored(msgspec.Struct, tag="BlockStored", forbid_unknown_fields=True):
    """The usual form of an event, which msgspec reads at once; anything else takes the long way."""

    block_hashes: list[int]
    parent_block_hash: int | None = None
    token_ids: list[int] = []
    block_size: int | None = None
    lora_id: int | str | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    cache_salt: str | None = None
    session_id: str | None = None
    ownership: str | None = None


class _Removed(msgspec.Struct, tag="BlockRemoved", forbid_unknown_fields=True):
    block_hashes: list[int]
    medium: str | None = None
    group_idx: int | None = None
    ownership: str | None = None


class _Cleared(msgspec.Struct, tag="AllBlocksCleared", forbid_unknown_fields=True):
    ownership: str | None = None


class _Batch(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    ts: float
    events: list[_Stored | _Removed | _Cleared]
    rank: int | None = None


_decode_batch = msgspec.msgpack.Decoder(_Batch).decode
_decode = msgspec.msgpack.Decoder().decode
_encode = msgspec.msgpack.Encoder().encode


def decode_batch(payload: bytes) -> KVEventBatch:
    """Read one message's payload; raises DecodeError and nothing else."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise DecodeError(f"{len(payload)} bytes are more than a batch may have ({MAX_PAYLOAD_BYTES})")
    usual = _decode_usual(payload)
    if usual is not None:
        return usual
    try:
        raw = _decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise DecodeError(f"not msgpack: {error}") from None
    batch = _named(raw, BATCH_POSITIONS, "the batch")
    ts, events, rank = batch.pop("ts", None), batch.pop("events", None), batch.pop("data_parallel_rank", None)
    if rank is None:
        rank = batch.pop("attn_dp_rank", None)
    if isinstance(ts, bool) or not isinstance(ts, int | float):
        raise DecodeError(f"the batch's time is {kind_of(ts)}, not a number")
    if not isinstance(events, list):
        raise DecodeError(f"the batch's events are {kind_of(events)}, not an array")
    try:
        seconds = float(ts)
    except OverflowError:
        raise DecodeError("the batch's time is beyond any number") from None
    return KVEventBatch(seconds, [_event(e) for e in events], integer(rank, "data_parallel_rank"), batch)


def encode_batch(batch: KVEventBatch, *, arrays: bool = False) -> bytes:
    """The payload of a batch: events as maps (vLLM 0.24 and newer) or, with `arrays`, in the older positional form,
    which has no place for newer fields.

    Raises ValueError for an event that only other wires know.
    """
    events = [_as_array(e) if arrays else _as_map(e) for e in batch.events]
    return _encode([batch.ts, events, batch.rank])


def _decode_usual(payload: bytes) -> KVEventBatch | None:
    """A batch in the usual form; None where it is in another, or none."""
    try:
        raw = _decode_batch(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError, OverflowError):
        return None
    events: list[Event] = []
    for event in raw.events:
        if isinstance(event, _Cleared):
            events.append(AllBlocksCleared(event.ownership))
            continue
        hashes = event.block_hashes
        if len(hashes) > MAX_BLOCKS_PER_EVENT:
            return None
        if hashes and min(hashes) < 0:
            hashes = [number & HASH_MASK for number in hashes]
        if isinstance(event, _Removed):
            events.append(BlockRemoved(hashes, event.medium, event.group_idx, event.ownership))
            continue
        parent = event.parent_block_hash
        events.append(
            BlockStored(
                hashes,
                None if parent is None else parent & HASH_MASK,
                event.token_ids or (),
                event.block_size,
                event.lora_id,
                event.medium,
                event.lora_name,
                event.extra_keys,
                event.group_idx,
                event.kv_cache_spec_kind,
                event.kv_cache_spec_sliding_window,
                event.cache_salt,
                event.session_id,
                event.ownership,
            )
        )
    return KVEventBatch(raw.ts, events, raw.rank)


def _event(raw: Any) -> Event:
    if isinstance(raw, list):
        if not raw or not isinstance(raw[0], str):
            raise DecodeError("an event in array form does not begin with its type")
        kind = raw[0]
        values = _named(raw[1:], _POSITIONS.get(kind, ()), kind)
    elif isinstance(raw, dict):
        values = mapping(raw, "an event")
        kind = values.pop("type", None)
        if not isinstance(kind, str):
            raise DecodeError("an event in map form has no type")
    else:
        raise DecodeError(f"an event is {kind_of(raw)}, not a map or an array")
    if kind == "BlockStored":
        return _stored(values)
    if kind == "BlockRemoved":
        return _removed(values)
    if kind == "AllBlocksCleared":
        return AllBlocksCleared(text(values.pop("ownership", None), "ownership"), values)
    return UnknownEvent(kind, values)


def _stored(values: dict[str, Any]) -> BlockStored:
    hashes, bits = block_hashes(values.pop("block_hashes", None), "BlockStored")
    parent = values.pop("parent_block_hash", None)
    lora_id = values.pop("lora_id", None)

    def words(name: str) -> str | None:
        return text(values.pop(name, None), name)

    def number(name: str) -> int | None:
        return integer(values.pop(name, None), name)

    return BlockStored(
        block_hashes=hashes,
        parent_block_hash=None if parent is None else block_hash(parent, "BlockStored"),
        token_ids=array(values.pop("token_ids", None), "BlockStored.token_ids") or (),
        block_size=number("block_size"),
        lora_id=lora_id if isinstance(lora_id, str) else integer(lora_id, "lora_id"),
        medium=words("medium"),
        lora_name=words("lora_name"),
        extra_keys=array(values.pop("extra_keys", None), "BlockStored.extra_keys"),
        group_idx=number("group_idx"),
        kv_cache_spec_kind=words("kv_cache_spec_kind"),
        kv_cache_spec_sliding_window=number("kv_cache_spec_sliding_window"),
        cache_salt=words("cache_salt"),
        session_id=words("session_id"),
        ownership=words("ownership"),
        hash_bits=bits,
        unknown=values,
    )


def _removed(values: dict[str, Any]) -> BlockRemoved:
    hashes, bits = block_hashes(values.pop("block_hashes", None), "BlockRemoved")
    return BlockRemoved(
        block_hashes=hashes,
        medium=text(values.pop("medium", None), "medium"),
        group_idx=integer(values.pop("group_idx", None), "group_idx"),
        ownership=text(values.pop("ownership", None), "ownership"),
        hash_bits=bits,
        unknown=values,
    )


def _named(raw: Any, positions: tuple[str, ...], what: str) -> dict[str, Any]:
    """A map of names to values out of either form; positions past the known ones are kept under their number."""
    if isinstance(raw, dict):
        return mapping(raw, what)
    if not isinstance(raw, list):
        raise DecodeError(f"{what} is {kind_of(raw)}, not a map or an array")
    values: dict[str, Any] = {}
    for number, value in enumerate(raw):
        # SGLang can put a map of named fields in the place of a positional one; no position of ours holds a map.
        if isinstance(value, dict):
            for name, named in value.items():
                values.setdefault(str(name), named)
        else:
            values.setdefault(positions[number] if number < len(positions) else f"position_{number}", value)
    return values


def _as_map(event: Event) -> dict[str, Any]:
    if isinstance(event, UnknownEvent):
        return {"type": event.type, **event.fields}
    if not isinstance(event, BlockStored | BlockRemoved | AllBlocksCleared):
        raise ValueError(f"{type(event).__name__} has no form in a batch")
    values = {f.name: getattr(event, f.name) for f in fields(event) if f.name not in _NOT_ON_THE_WIRE}
    named = {name: value for name, value in values.items() if value is not None}
    return {"type": type(event).__name__, **named, **event.unknown}


def _as_array(event: Event) -> list[Any]:
    if isinstance(event, UnknownEvent):
        return [event.type, *event.fields.values()]
    if not isinstance(event, BlockStored | BlockRemoved | AllBlocksCleared):
        raise ValueError(f"{type(event).__name__} has no form in a batch")
    kind = type(event).__name__
    return [kind, *(getattr(event, name) for name in _POSITIONS.get(kind, ()))]
