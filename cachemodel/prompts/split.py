"""A file's text, stretch by stretch, as the JSON values that it holds: lines, or the items of one array. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import msgspec

MAX_BYTES = 16 << 20
"""Of one line or one item of an array."""
NOT_JSON, TOO_LONG = "line is no JSON", "line is too long"

_BLANK = b" \t\r\n\0"
_MOST_HELD = 16 * MAX_BYTES  # of an item whose end does not come
_QUOTE = ord('"')
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SCALAR, _BETWEEN = re.compile(rb"[^,\]\s]*"), re.compile(rb"[,\s]*")
# All up to the next bracket outside of a text, in one step; a text that has no end yet stops it.
_RUN = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_ARRAY = re.compile(rb'\s*\[\s*[{\["]')


class Piece(NamedTuple):
    """A line, or an item of an array. place: its file with its line, or its index; fault: why there is no text."""

    place: str
    data: bytes
    fault: str = ""


def pieces(path: str, start: bytes, rest: Iterable[bytes]) -> Iterator[Piece]:
    """The values of a file that begins with `start`; blank lines are passed over.

    start: long enough to tell what the file is; the next stretches are taken one after the other.
    """
    start = start.removeprefix(b"\xef\xbb\xbf")
    return _items(path, start, iter(rest)) if _is_array(start) else _lines(path, start, rest)


def _is_array(start: bytes) -> bool:
    """Whether a file is one array of records, by its first stretch: not lines that are lists each, nor one talk."""
    if not _ARRAY.match(start):
        return False
    first_line = start.lstrip(_BLANK).partition(b"\n")[0]
    try:
        value = msgspec.json.decode(first_line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True  # it goes on in the next line
    first = value[0] if isinstance(value, list) and value else None
    several = len(start.strip(_BLANK).split(b"\n", 1)) > 1
    return not several and not (isinstance(first, dict) and {"role", "from"} & first.keys())


def _lines(path: str, start: bytes, rest: Iterable[bytes]) -> Iterator[Piece]:
    parts: list[bytes] = []
    held = number = 0
    for chunk in chain((start,), rest):
        first, *more = chunk.split(b"\n")
        held += len(first)
        if held <= MAX_BYTES:
            parts.append(first)
        for line in more:
            number += 1
            yield from _line(f"{path}:{number}", b"".join(parts), held)
            parts, held = [line], len(line)
    yield from _line(f"{path}:{number + 1}", b"".join(parts), held)


def _line(place: str, line: bytes, size: int) -> Iterator[Piece]:
    if size > MAX_BYTES:
        yield Piece(place, b"", TOO_LONG)
    elif line := line.strip(_BLANK):
        yield Piece(place, line)


def _items(path: str, text: bytes, rest: Iterator[bytes]) -> Iterator[Piece]:
    """The items of an array, found by counting brackets outside of texts; each is decoded for itself."""
    at, number = text.index(b"[") + 1, 0
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        end = _item_end(text, at)
        if end is not None and end == at:  # the array's own end
            return
        place = f"{path}[{number}]"
        if end is None:  # as much again at least, so that a long item is not looked through too often
            more = _more(rest, len(text) - at)
            text, at = text[at:] + more, 0
            if not more or len(text) > _MOST_HELD:
                if text:
                    yield Piece(place, b"", NOT_JSON if not more else TOO_LONG)
                return
            continue
        yield from _line(place, text[at:end], end - at)
        number, at = number + 1, end


def _item_end(text: bytes, at: int) -> int | None:
    """Where an item ends; where it begins for the end of the array; None where that has not been read yet."""
    if at >= len(text):
        return None
    if text[at] not in b"[{":
        found = (_TEXT if text[at] == _QUOTE else _SCALAR).match(text, at)
        return found.end() if found and found.end() < len(text) else None
    depth = 0
    while True:
        at = _RUN.match(text, at).end()  # type: ignore[union-attr]
        if at >= len(text) or text[at] == _QUOTE:  # in a text that has no end yet
            return None
        depth += 1 if text[at] in b"[{" else -1
        at += 1
        if depth == 0:
            return at


def _more(source: Iterator[bytes], least: int) -> bytes:
    """The next stretches, of so many bytes together; empty at the end."""
    parts: list[bytes] = []
    size = 0
    for chunk in source:
        parts.append(chunk)
        size += len(chunk)
        if size >= least:
            break
    return b"".join(parts)
