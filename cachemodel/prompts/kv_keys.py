"""What a stored block tells beside its place: the ids of its tokens, and the keys that isolate it. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cachemodel.kv_events import BlockStored

STAND_IN = 1 << 31  # ids from here on stand for images, and no vocabulary has them


def ids_of(told: Sequence[Any]) -> NDArray[np.uint32] | None:
    """Token ids below STAND_IN, of pairs the first; None for anything else."""
    try:
        tokens = np.asarray(told)
    except (ValueError, OverflowError):
        return None
    if tokens.ndim == 2 and tokens.shape[1] == 2:
        tokens = tokens[:, 0]
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu" or tokens.min() < 0 or tokens.max() >= STAND_IN:
        return None
    return tokens.astype(np.uint32)


# -- extra keys


def _listed(extra: object) -> list[object]:
    return list(extra) if isinstance(extra, list | tuple) else [] if extra is None else [extra]


def _is_media(key: object) -> bool:
    """Whether a key is of something in the prompt: with the place where it begins."""
    return isinstance(key, list | tuple)


def _named(key: object) -> str:
    return key if isinstance(key, str) else key.hex() if isinstance(key, bytes) else repr(key)


def adapter(event: BlockStored) -> tuple[str, ...]:
    if event.lora_name:
        return (event.lora_name,)
    return () if event.lora_id is None else (f"adapter {event.lora_id}",)


def keys_of_chain(event: BlockStored) -> tuple[str, ...]:
    """Salt and adapter of a chain that begins with this event, each once."""
    first = _listed(event.extra_keys[0]) if event.extra_keys else []
    told = [_named(key) for key in first if key is not None and not _is_media(key)]
    salt = [event.cache_salt] if event.cache_salt else []
    return tuple(dict.fromkeys((*adapter(event), *salt, *told)))


def mark_images(
    tokens: NDArray[np.uint32],
    size: int,
    extra_keys: Sequence[Any] | None,
    known: Sequence[str],
    *,
    at_root: bool,
) -> None:
    """Put stand-ins into blocks that have keys of their own. known: of the chain, on its first block, too."""
    for at, extra in enumerate((extra_keys or ())[: len(tokens) // size]):
        own = [
            key
            for key in _listed(extra)
            if key is not None
            and (_is_media(key) or (not (at == 0 and at_root) and _named(key) not in known))
        ]
        if own:
            tokens[at * size] = STAND_IN | zlib.crc32(repr(own).encode(errors="replace")) & (STAND_IN - 1)
