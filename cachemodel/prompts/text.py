"""What JSON values say as text, media as hashes, and the places of a body as paths."""

from __future__ import annotations

import binascii
import re
import sys
from base64 import b64decode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

intern = sys.intern
"""For paths and for texts made here: the same one in many prompts is kept once, and let go with the last of them."""

_MOST_SPELLED = 1 << 18  # as many as a vocabulary has
_encode = msgspec.json.Encoder().encode
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_DATA_URL = re.compile(r"data:[^,]{0,200};base64,")


class _Spelled(dict[int, str]):
    """Numbers of tokens as they are written."""

    def __missing__(self, number: int) -> str:
        if len(self) >= _MOST_SPELLED:
            self.clear()
        told = self[number] = str(number)
        return told


_spelled = _Spelled()


def spelled(ids: Iterable[int]) -> str:
    """Ids of tokens as a text."""
    return " ".join(map(_spelled.__getitem__, ids))


def compact(value: object) -> str:
    """A JSON value without blanks, its keys in the order in which they were sent."""
    return intern(_encode(value).decode())


def without(value: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """A JSON object without some of its fields; itself where it has none of them."""
    if value.keys().isdisjoint(names):
        return value
    return {name: field for name, field in value.items() if name not in names}


def hashed(kind: str, value: object, *, base64: bool = False) -> str:
    """Kind and SHA-256 of what was sent: the bytes of a data URL or, if so told, of base64; else the text or JSON."""
    if not isinstance(value, str):
        told = _encode(value)
    elif mark := _DATA_URL.match(value):
        told = _bytes(value[mark.end() :])
    else:
        told = _bytes(value) if base64 else value.encode()
    return intern(f"{kind} sha256:{sha256(told).hexdigest()}")


def _bytes(text: str) -> bytes:
    """What base64 spells, the text's own bytes where it spells nothing."""
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()


def steps(path: str) -> tuple[str | int, ...]:
    """Names and indices that lead to a part's place: of `tools[0].name` they are tools, 0 and name."""
    return tuple(int(index) if index else name for name, index in _STEP.findall(path))


def at(body: object, path: str) -> Any:
    """The value in a part's place of a body. Raises LookupError where there is no such place."""
    value = body
    for step in steps(path):
        if isinstance(value, Mapping if isinstance(step, str) else list):
            value = value[step]  # type: ignore[index]
        else:
            raise LookupError(path)
    return value
