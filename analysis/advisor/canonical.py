"""Forms of a text in which what means the same is the same: JSON in one order, items in the order of another text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence, Set
from functools import lru_cache
from typing import NamedTuple

import msgspec

from analysis.advisor.words import squeezed

_decode = msgspec.json.Decoder().decode
_OPENING = re.compile(r"[{\[]\s*[\[{\"]")
MAX_VALUES = 200  # of a text are looked at
MIN_ITEM = 12  # characters: shorter lines stand in any order by chance


@lru_cache(maxsize=8192)
def sorted_json(text: str) -> str | None:
    """A JSON object or array with the keys of all its objects in order and no blanks; None for anything else."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = _decode(text.encode(errors="surrogatepass"))
    except (msgspec.DecodeError, RecursionError, UnicodeError, ValueError):
        return None
    return _dumped(value)


class Json(NamedTuple):
    """A JSON object or array in a text. raw: as written; keys: with its keys in order; unordered: with its keys and the
    elements of its arrays in order, the same for all that say the same in any order."""

    raw: str
    keys: str
    unordered: str


def json_values(text: str) -> tuple[Json, ...]:
    """The JSON objects and arrays that stand in a text and have an order: two keys or two elements at the least."""
    return tuple(piece for piece in _pieces(text) if piece.keys)


def keys_in_order(text: str) -> str:
    """The text with the keys of all JSON in it in order."""
    return "".join(piece.keys or piece.raw for piece in _pieces(text))


def json_in_order(text: str, only: Set[str] | None = None) -> str:
    """The text with JSON in it written in one order of keys and elements: all of it, or what is `only` (unordered)."""
    return "".join(
        piece.unordered if piece.unordered and (only is None or piece.unordered in only) else piece.raw
        for piece in _pieces(text)
    )


@lru_cache(maxsize=4096)
def _pieces(text: str) -> tuple[Json, ...]:
    """The text in pieces; those that are no JSON have no ordered form."""
    decoder, begin, at = json.JSONDecoder(), 0, 0
    told: list[Json] = []
    for match in _OPENING.finditer(text):
        if match.start() < at or len(told) > 2 * MAX_VALUES:
            continue
        try:
            value, end = decoder.raw_decode(text, match.start())
            if not _has_order(value):
                continue
            keys, unordered = _dumped(value), _dumped(_unordered(value))
        except (ValueError, RecursionError):
            continue
        at = match.start()
        told.append(Json(text[begin:at], "", ""))
        told.append(Json(text[at:end], keys, unordered))
        begin = at = end
    return (*told, Json(text[begin:], "", ""))


def _has_order(value: object) -> bool:
    if isinstance(value, dict):
        return len(value) > 1 or any(map(_has_order, value.values()))
    return isinstance(value, list) and len(value) > 1 and all(isinstance(one, (dict, str)) for one in value)


def _dumped(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _unordered(value: object) -> object:
    if isinstance(value, dict):
        return {name: _unordered(one) for name, one in value.items()}
    return sorted(map(_unordered, value), key=_dumped) if isinstance(value, list) else value


@lru_cache(maxsize=4096)
def items(text: str) -> tuple[str, ...]:
    """What the text lists: its paragraphs where there are several, else its lines."""
    paragraphs = [part for part in text.split("\n\n") if part.strip()]
    parts = paragraphs if len(paragraphs) > 2 else text.split("\n")
    return tuple(part for part in parts if part.strip())


def moved_items(first: str, second: str) -> tuple[str, ...]:
    """Items of two texts that stand in both, once each, and not in the same order: as they stand in the first. Empty
    where none is out of order."""
    a, b = ([squeezed(item) for item in items(text)] for text in (first, second))
    once_a, once_b = Counter(a), Counter(b)
    common = {item for item in a if once_a[item] == 1 == once_b[item] and len(item) >= MIN_ITEM}
    ours, theirs = [x for x in a if x in common], [x for x in b if x in common]
    if ours == theirs:
        return ()
    begin = next(i for i, (x, y) in enumerate(zip(ours, theirs, strict=True)) if x != y)
    end = next(i for i, (x, y) in enumerate(zip(ours[::-1], theirs[::-1], strict=True)) if x != y)
    return tuple(ours[begin : len(ours) - end])


def reordered(text: str, like: str) -> str:
    """The text with those of its items that another text has, too, in the order of that one; their places stay."""
    moved = moved_items(like, text)
    return placed(text, moved) if moved else text


def placed(text: str, order: Sequence[str]) -> str:
    """The text with these items (squeezed) in this order, where it has them; the places of items stay."""
    rank = {item: at for at, item in enumerate(order)}
    listed = [(item, rank.get(squeezed(item))) for item in items(text)]
    in_order = iter(sorted((item for item in listed if item[1] is not None), key=lambda item: item[1] or 0))
    told, at = [], 0
    for item, known in listed:
        begin = text.index(item, at)
        told += [text[at:begin], item if known is None else next(in_order)[0]]
        at = begin + len(item)
    return "".join((*told, text[at:]))
