"""Forms of a text in which what means the same is the same: JSON in one order, items in the order of another text."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from analysis.advisor.rewriting.words import squeezed

_decode = msgspec.json.Decoder().decode
_OPENING = re.compile(r"[{\[]\s*[\[{\"]")
_ARRAY = re.compile(r'\[\s*["{]')
_BLANKS = re.compile(r"[\s,]*")
MAX_VALUES = 200  # of a text are looked at
MAX_ARRAYS = 1000  # of a text, wherever in it, are looked at
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


def keys_in_order(text: str, only: Set[str] | None = None) -> str:
    """The text with the keys of JSON in it in order: of all of it, or of what has one of these `structure`s."""
    return "".join(
        piece.keys if piece.keys and (only is None or structure(piece.keys) in only) else piece.raw
        for piece in _pieces(text)
    )


def structure(told: str) -> str:
    """The keys of a JSON value at all depths, without what they stand for and in any order."""
    return _dumped(_keys(json.loads(told)))


def _keys(value: object) -> object:
    if isinstance(value, dict):
        return {name: _keys(one) for name, one in value.items()}
    return sorted({_dumped(_keys(one)) for one in value}) if isinstance(value, list) else None


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


def permuted_arrays(texts: Iterable[str]) -> tuple[str, ...]:
    """Arrays (`array_key`) that these texts have in several orders. One that stands in two orders within a text is
    none: there the order says something."""
    orders: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    meant: set[str] = set()
    for text in texts:
        own: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        for piece in json_values(text):
            for array in _arrays(json.loads(piece.raw)):
                own[array_key(array)].add(tuple(map(_rank, array)))
        meant |= {known for known, found in own.items() if len(found) > 1}
        for known, found in own.items():
            orders[known] |= found
    return tuple(sorted(known for known, found in orders.items() if len(found) > 1 and known not in meant))


def _arrays(value: object) -> Iterator[list[Any]]:
    """Those of objects and of texts, at all depths."""
    if isinstance(value, list) and len(value) > 1 and all(isinstance(one, (dict, str)) for one in value):
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        yield from _arrays(one)


def array_key(array: Sequence[Any]) -> str:
    """By what an array is known again in any order: by all of its elements, one of tools by their names and fields."""
    if all(map(_called, array)):
        return _dumped({"tools": sorted([_called(one), *sorted(one)] for one in array)})
    return _dumped({"array": sorted(map(_dumped, array))})


def is_array_key(item: str) -> bool:
    """Whether an item is an `array_key`, and not what stands in a text."""
    return item.startswith(('{"tools":[', '{"array":['))


def _called(value: Any) -> str:
    """The name of a tool's definition; empty for anything else."""
    inner = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(inner, dict) or not ("parameters" in inner or "input_schema" in inner):
        return ""
    return name if isinstance(name := inner.get("name"), str) else ""


def _rank(value: Any) -> str:
    return _called(value) or _dumped(value)


def arrays_in_order(text: str, known: Set[str]) -> str:
    """The text with the arrays that are `known` (`array_key`) in the order of their elements, of tools of their names.
    How each element is written stays, and so do all other arrays."""
    told, at = [], 0
    for tried, match in enumerate(_ARRAY.finditer(text)):
        if tried == MAX_ARRAYS:
            break
        if match.start() < at or not (found := _elements(text, match.start(), known)):
            continue
        ends = [found[0][1], *(begin for _, begin, _ in found[1:]), found[-1][2]]
        gaps = [text[end : ends[i + 1]] for i, (_, _, end) in enumerate(found)]
        in_order = sorted(found, key=lambda one: one[0])
        told.append(text[at : ends[0]])
        for (_, begin, end), gap in zip(in_order, gaps):  # noqa: B905 - `strict` came with Python 3.10
            told += [arrays_in_order(text[begin:end], known), gap]
        at = ends[-1]
    return "".join((*told, text[at:]))


def _elements(text: str, at: int, known: Set[str]) -> list[tuple[str, int, int]]:
    """Of the array that begins there: rank, first character and the one behind each element. Empty for one that is not
    known."""
    decoder, found = json.JSONDecoder(), []
    try:
        array, _ = decoder.raw_decode(text, at)
        if len(array) < 2 or array_key(array) not in known:
            return []
    except (ValueError, RecursionError):
        return []
    at += 1
    for element in array:
        begin = _behind_blanks(text, at)
        _, at = decoder.raw_decode(text, begin)
        found.append((_rank(element), begin, at))
    return found


def _behind_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at


@lru_cache(maxsize=4096)
def items(text: str) -> tuple[str, ...]:
    """What the text lists: its paragraphs where there are several, else its lines."""
    paragraphs = [part for part in text.split("\n\n") if part.strip()]
    parts = _without_heading(paragraphs) if len(paragraphs) > 2 else text.split("\n")
    return tuple(part for part in parts if part.strip())


def _without_heading(paragraphs: Sequence[str]) -> list[str]:
    """Paragraphs, the one line that introduces them all apart: each of several would be a title of its own."""
    headed = [
        at for at, part in enumerate(paragraphs) if part.partition("\n")[0].rstrip().endswith((":", "\uff1a"))
    ]
    if len(headed) != 1 or "\n" not in paragraphs[headed[0]].strip():
        return list(paragraphs)
    first, _, rest = paragraphs[headed[0]].partition("\n")
    return [*paragraphs[: headed[0]], first, rest, *paragraphs[headed[0] + 1 :]]


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
