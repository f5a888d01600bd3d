"""Fields of rows of `kv_events`: what columns can hold, what is private, what is told by its size. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from cachemodel.content import ContentHasher
from cachemodel.kv_events import BlockStored
from cachemodel.kv_events.media import tier_of

MAX_TEXT = 256  # characters of a text field; each is repeated in the row of every block
MAX_KEYS = 1024  # of the JSON text of extra keys
MAX_FIELDS, MAX_NAME = 32, 64  # fields that nobody knows, and characters of their names
MAX_NUMBER = 1_000_000  # as large a number that nobody knows is told as it is
_NAME = re.compile(rf"[A-Za-z0-9_]{{1,{MAX_NAME}}}")
encode = msgspec.json.Encoder(enc_hook=repr).encode


def row(fields: Mapping[str, Any]) -> bytes:
    """The JSON text of a row's fields, without braces."""
    return encode(fields)[1:-1]


def rest(fields: Mapping[str, Any]) -> bytes:
    """The fields that say something, to follow others; what is left out is NULL or empty in the store."""
    told = {name: value for name, value in fields.items() if value not in (None, "")}
    return b"," + row(told) if told else b""


def uint(value: int | None, bits: int) -> int | None:
    """The value where its column can hold it, else None."""
    return value if value is not None and 0 <= value < 1 << bits else None


def capped(value: str | None, limit: int = MAX_TEXT) -> str:
    """A text as long as a row may have it; empty for None."""
    return "" if value is None else value if len(value) <= limit else value[: limit - 1] + "…"


def place(medium: str | None, ownership: str | None, group: int | None) -> dict[str, Any]:
    """The columns that say where a block is."""
    return {
        "medium": capped(medium),
        "tier": tier_of(medium) or "",
        "ownership": capped(ownership),
        "group_idx": group,
    }


def detail(known: Mapping[str, Any], unknown: Mapping[str, Any]) -> str:
    """JSON text of fields that have no column.

    What nobody knows is told by its size unless it is a small number: it may be token ids, the text of a prompt, or a
    number that stands for a person. The same goes for its name.
    """
    told = {name: capped(value) if isinstance(value, str) else value for name, value in known.items()}
    for name, value in list(unknown.items())[:MAX_FIELDS]:
        told.setdefault(named(name), _size(value))
    return _text(told)


def named(text: str) -> str:
    """The name of something that nobody knows, where it looks like one; else how long it is."""
    return text if _NAME.fullmatch(text) else f"a name of {len(text)} characters"


def beside(event: BlockStored, hasher: ContentHasher) -> dict[str, Any]:
    """What of an event has no column."""
    told: dict[str, Any] = {"kv_cache_spec_sliding_window": event.kv_cache_spec_sliding_window}
    told["session_id"] = None if event.session_id is None else hasher.pseudonym(event.session_id)
    told["hash_bits"] = None if event.hash_bits == 64 else event.hash_bits
    told["bigram"] = event.is_bigram or None
    return {name: value for name, value in told.items() if value is not None}


def tokens_a_block(event: BlockStored) -> int | None:
    """Tokens of each block; None where the event has none, or not the same number for all."""
    count = len(event.block_hashes)
    return (
        event.token_count // count if event.token_count and count and not event.token_count % count else None
    )


def shown_keys(extra: object, event: BlockStored, hasher: ContentHasher) -> str:
    """JSON text of a block's extra keys and its event's salt, with pseudonyms for what may name a tenant."""
    salt = [hasher.pseudonym(event.cache_salt)] if event.cache_salt else []
    private = (_private(key, event.lora_name, hasher) for key in _listed(extra))
    return capped(_text([*private, *salt]), MAX_KEYS)


def own_keys(extra: object, event: BlockStored, *, is_first: bool, hasher: ContentHasher) -> int:
    """Hash of what isolates a block beside the blocks before it; 0 for nothing.

    A salt and an adapter are of the whole chain: they count on its first block, wherever else they stand. An adapter
    goes by its name, and by its number only where it has none.
    """
    adapter, number = event.lora_name, None if event.lora_id is None else str(event.lora_id)
    of_chain = {adapter, number, event.cache_salt}
    texts = [key if isinstance(key, str) else repr(key) for key in _listed(extra) if key is not None]
    told = [text for text in texts if text not in of_chain]
    if is_first:
        told += [text for text in (adapter or number, event.cache_salt) if text]
    return hasher.keys(told)


def _listed(extra: object) -> list[object]:
    return list(extra) if isinstance(extra, list | tuple) else [] if extra is None else [extra]


def _private(key: object, lora_name: str | None, hasher: ContentHasher) -> object:
    """An extra key with pseudonyms for its texts; an adapter's name, which has a column, stays readable."""
    if isinstance(key, str | bytes):
        return key if key == lora_name else hasher.pseudonym(key)
    if isinstance(key, list | tuple):
        return [_private(part, lora_name, hasher) for part in key]
    return key if isinstance(key, bool | int | float | None) else hasher.pseudonym(repr(key))


def _size(value: object) -> object:
    """A small number, or how much there is of anything else."""
    match value:
        case bool() | None:
            return value
        case float():
            return value if abs(value) < MAX_NUMBER else "a number of 1e6 or more"
        case int():
            return value if abs(value) < MAX_NUMBER else f"{len(str(abs(value)))} digits"
        case str():
            return f"{len(value)} characters"
        case bytes():
            return f"{len(value)} bytes"
        case list() | tuple() | dict():
            return f"{len(value)} items"
    return type(value).__name__


def _text(value: object) -> str:
    """JSON text of a value; empty for what is empty."""
    return encode(value).decode() if value else ""
