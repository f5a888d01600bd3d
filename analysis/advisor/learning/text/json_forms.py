"""Slots of form in JSON: it says the same, and stands in the texts in another order or written in another way."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from analysis.advisor.learning.behaviour import Seen
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.text.forms import form_slot
from analysis.advisor.learning.text.model import Sample, TextSlot
from analysis.advisor.rewriting.canonical import Json, json_values, permuted_arrays, sorted_json, structure

SHOWN = 200
_TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")|\s+', re.DOTALL)
_NUMBER = re.compile(r'("(?:[^"\\]|\\.)*")|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?', re.DOTALL)
_WAYS = {
    Cause.KEY_ORDER: "in up to {most} orders",
    Cause.WHITESPACE: "with blanks and line ends in up to {most} ways",
    Cause.UNICODE: "with characters as they are and escaped, in up to {most} ways",
}
_OTHERWISE = "with numbers in up to {most} ways, its keys in one order"


def in_several_orders(samples: Sequence[Sample]) -> frozenset[str]:
    """JSON (unordered) that these texts write in several ways."""
    forms: dict[str, set[str]] = defaultdict(set)
    for text in {sample.text for sample in samples}:
        for one in json_values(text):
            forms[one.unordered].add(one.raw)
    return frozenset(same for same, raws in forms.items() if len(raws) > 1)


def json_order(samples: Sequence[Sample], reference: str, example: int) -> Iterator[TextSlot]:
    """JSON that is the same but for the order of its keys or of its elements, or for how it is written, wherever it
    stands in the texts."""
    told = [(sample.request, value) for sample in samples for value in json_values(sample.text)]
    written = _in_forms((i, v, v.raw, v.keys) for i, v in told)
    by_way: dict[tuple[Cause, str], dict[str, Counter[str]]] = defaultdict(dict)
    for same, raws in written.items():
        by_way[way(tuple(sorted(raws)))][same] = raws
    for (why, how), several in by_way.items():
        own = [one for one in told if one[1].keys in several]
        yield _slot(why, how, several, own, _raw, reference, example)
    arrays = _in_forms((i, v, v.keys, v.unordered) for i, v in told)
    if arrays:
        why = Cause.TOOL_ORDER if any(_lists_tools(value) for _, value in told) else Cause.ITEM_ORDER
        own = [one for one in told if one[1].unordered in arrays]
        listed = permuted_arrays({sample.text for sample in samples})  # of all of the texts
        yield _slot(why, _WAYS[Cause.KEY_ORDER], arrays, own, _keys, reference, example, listed)


def _raw(value: Json) -> str:
    return value.raw


def _keys(value: Json) -> str:
    return value.keys


def _in_forms(told: Iterable[tuple[int, Json, str, str]]) -> dict[str, Counter[str]]:
    """How often each form occurs of what has several. told: request, value, its form, and what is the same in all."""
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for _, _, form, same in told:
        forms[same][form] += 1
    return {same: found for same, found in forms.items() if len(found) > 1}


@lru_cache(maxsize=4096)
def way(raws: tuple[str, ...]) -> tuple[Cause, str]:
    """In what JSON that says the same differs, and how to tell of it: the order of its keys, else blanks, else escapes;
    what is left is how its numbers are written, which goes by the order of keys, as one rule puts both right. Of calls
    it is their arguments, which are JSON in a text, where the rest is the same."""
    if len(given := {_arguments(raw) for raw in raws}) > 1 and None not in given:
        raws = tuple(sorted(filter(None, given)))
    if len({_key_order(raw) for raw in raws}) > 1:
        return Cause.KEY_ORDER, _WAYS[Cause.KEY_ORDER]
    compact = {_TOKEN.sub(r"\1", raw) for raw in raws}
    if len(compact) == 1:
        return Cause.WHITESPACE, _WAYS[Cause.WHITESPACE]
    if len({_NUMBER.sub(r"\1", raw) for raw in compact}) < len(compact):
        return Cause.KEY_ORDER, _OTHERWISE
    return Cause.UNICODE, _WAYS[Cause.UNICODE]


def _arguments(raw: str) -> str | None:
    """The arguments of a call that are JSON in a text; None for anything else."""
    told = json.loads(raw)
    given = told.get("arguments") if isinstance(told, dict) else None
    return given if isinstance(given, str) and given[:1] in ("{", "[") and sorted_json(given) else None


def _key_order(raw: str) -> tuple[str, ...]:
    """The keys of its objects as they stand."""
    keys: list[str] = []
    json.loads(raw, object_pairs_hook=lambda pairs: keys.extend(key for key, _ in pairs))
    return tuple(keys)


def _lists_tools(value: Json) -> bool:
    return value.raw.startswith("[") and '"name":' in value.keys and '"parameters":' in value.keys


def _slot(
    why: Cause,
    how: str,
    several: Mapping[str, Counter[str]],
    told: Sequence[tuple[int, Json]],
    form_of: Callable[[Json], str],
    reference: str,
    example: int,
    listed: tuple[str, ...] | None = None,
) -> TextSlot:
    """One slot for all values that are written in several forms. several: how often each form of each occurs. told:
    requests and these values. listed: what rules know them by, their key structures where not told."""
    of: dict[str, set[int]] = defaultdict(set)
    for request, value in told:
        of[form_of(value)].add(request)
    unusual = {form for found in several.values() for form, _ in found.most_common()[1:]}
    offset = min((at for _, value in told if (at := reference.find(value.raw)) >= 0), default=0)
    count, most = len(several), max(map(len, several.values()))
    return form_slot(
        why,
        reference,
        offset,
        example,
        frozenset[int]().union(*(of[form] for form in unusual)),
        tuple(
            Seen(min(of[form]), form[:SHOWN])
            for found in several.values()
            for form, _ in found.most_common(2)
        ),
        f"{count} JSON value{'s' * (count != 1)} written {how.format(most=most)}",
        tuple(sorted({structure(value.keys) for _, value in told})) if listed is None else listed,
    )
