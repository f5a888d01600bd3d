"""Readers of single values off a wire; each raises DecodeError and nothing else."""

from __future__ import annotations

from typing import Any

from cachemodel.kv_events.events import DecodeError

MAX_BLOCKS_PER_EVENT = 1 << 20
HASH_MASK = (1 << 64) - 1


def block_hash(raw: Any, kind: str) -> int:
    """Unsigned 64 bits of a hash that comes unsigned (vLLM, TensorRT-LLM), signed (SGLang) or as bytes (vLLM with
    VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0: the last eight)."""
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw & HASH_MASK
    if isinstance(raw, bytes) and raw:
        return int.from_bytes(raw[-8:], "big")
    raise DecodeError(f"{kind} has a block hash that is {kind_of(raw)}, not an integer or bytes")


def block_hashes(raw: Any, kind: str) -> tuple[list[int], int]:
    """Hashes, and how wide the first was in bits."""
    if not isinstance(raw, list):
        raise DecodeError(f"{kind}.block_hashes is {kind_of(raw)}, not an array")
    if len(raw) > MAX_BLOCKS_PER_EVENT:
        raise DecodeError(f"{kind} names {len(raw)} blocks, more than {MAX_BLOCKS_PER_EVENT}")
    bits = 8 * len(raw[0]) if raw and isinstance(raw[0], bytes) else 64
    return [block_hash(value, kind) for value in raw], bits


def integer(raw: Any, name: str) -> int | None:
    """An integer or None."""
    if raw is None or (isinstance(raw, int) and not isinstance(raw, bool)):
        return raw
    raise DecodeError(f"{name} is {kind_of(raw)}, not an integer")


def text(raw: Any, name: str) -> str | None:
    """A text or None."""
    if raw is None or isinstance(raw, str):
        return raw
    raise DecodeError(f"{name} is {kind_of(raw)}, not text")


def array(raw: Any, name: str) -> list[Any] | None:
    """An array or None."""
    if raw is None or isinstance(raw, list):
        return raw
    raise DecodeError(f"{name} is {kind_of(raw)}, not an array")


def mapping(raw: Any, what: str) -> dict[str, Any]:
    """A copy of a map of names to values."""
    if not isinstance(raw, dict):
        raise DecodeError(f"{what} is {kind_of(raw)}, not a map")
    if not all(isinstance(name, str) for name in raw):
        raise DecodeError(f"{what} has a field whose name is no text")
    return dict(raw)


def kind_of(raw: Any) -> str:
    """How an error names what is there instead."""
    return "missing" if raw is None else f"of type {type(raw).__name__}"
