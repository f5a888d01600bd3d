"""Slots of form: what texts say is the same, and how it is written is not. JSON and items in another order, blanks, and
Unicode forms."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

from analysis.advisor.learning.behaviour import Seen
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.text.align import Span
from analysis.advisor.learning.text.model import Sample, TextSlot
from analysis.advisor.rewriting.canonical import (
    Json,
    items,
    json_values,
    moved_items,
    permuted_arrays,
    structure,
)
from analysis.advisor.rewriting.words import Words, squeezed

CONTEXT = 4  # words told before and behind a slot
SHOWN = 8


def in_several_orders(samples: Sequence[Sample]) -> frozenset[str]:
    """JSON (unordered) that these texts write in several ways."""
    forms: dict[str, set[str]] = defaultdict(set)
    for text in {sample.text for sample in samples}:
        for one in json_values(text):
            forms[one.unordered].add(one.raw)
    return frozenset(same for same, raws in forms.items() if len(raws) > 1)


def json_order(samples: Sequence[Sample], reference: str, example: int) -> Iterator[TextSlot]:
    """JSON that is the same but for the order of its keys or of its elements, wherever it stands in the texts."""
    told = [(sample.request, value) for sample in samples for value in json_values(sample.text)]
    yield from _orders(
        [(i, v, squeezed(v.raw), v.keys) for i, v in told], Cause.KEY_ORDER, reference, example, _structures
    )
    arrays = [(i, v, v.keys, v.unordered) for i, v in told]
    why = Cause.TOOL_ORDER if any(_lists_tools(value) for _, value in told) else Cause.ITEM_ORDER
    permuted = lambda _: permuted_arrays({sample.text for sample in samples})  # noqa: E731 - of all of the texts
    yield from _orders(arrays, why, reference, example, permuted)


def _structures(values: Sequence[Json]) -> tuple[str, ...]:
    return tuple(sorted({structure(value.keys) for value in values}))


def _lists_tools(value: Json) -> bool:
    return value.raw.startswith("[") and '"name":' in value.keys and '"parameters":' in value.keys


def _orders(
    told: Sequence[tuple[int, Json, str, str]],
    why: Cause,
    reference: str,
    example: int,
    known_by: Callable[[Sequence[Json]], tuple[str, ...]],
) -> Iterator[TextSlot]:
    """One slot for all values that are written in several forms. told: request, value, its form, and what is the same
    in all its forms. known_by: what rules know such values by."""
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    of: dict[str, set[int]] = defaultdict(set)
    for request, _, form, same in told:
        forms[same][form] += 1
        of[form].add(request)
    several = {same: found for same, found in forms.items() if len(found) > 1}
    if not several:
        return
    values = [value for _, value, _, same in told if same in several]
    raws = {value.raw for value in values}
    unusual = {form for found in several.values() for form, _ in found.most_common()[1:]}
    offset = min((at for raw in raws if (at := reference.find(raw)) >= 0), default=0)
    count, most = len(several), max(map(len, several.values()))
    yield _form_slot(
        why,
        reference,
        offset,
        example,
        frozenset[int]().union(*(of[form] for form in unusual)),
        tuple(
            Seen(min(of[form]), form[:200]) for found in several.values() for form, _ in found.most_common(2)
        ),
        f"{count} JSON value{'s' * (count != 1)} written in up to {most} orders",
        known_by(values),
    )


def item_order(samples: Sequence[Sample], reference: str, example: int) -> Iterator[TextSlot]:
    """Items that stand in another order than in the reference."""
    moved = {sample.text: moved_items(reference, sample.text) for sample in samples}
    out_of_order = {text: one for text, one in moved.items() if one}
    if not out_of_order:
        return
    known = {item for one in out_of_order.values() for item in one}
    offset = min((at for item in known if (at := reference.find(item)) >= 0), default=0)
    yield _form_slot(
        Cause.ITEM_ORDER,
        reference,
        offset,
        example,
        frozenset(sample.request for sample in samples if sample.text in out_of_order),
        tuple(
            Seen(sample.request, " | ".join(item[:24] for item in moved[sample.text]))
            for sample in samples
            if sample.text in out_of_order
        )[:8],
        f"the same {len(known)} items in {1 + _orders_of(known, out_of_order)} orders",
        tuple(item for item in map(squeezed, items(reference)) if item in known),
    )


def _orders_of(known: Set[str], texts: Iterable[str]) -> int:
    """In how many orders these items (squeezed) stand in texts."""
    return len({tuple(one for item in items(text) if (one := squeezed(item)) in known) for text in texts})


def _form_slot(
    why: Cause,
    reference: str,
    offset: int,
    example: int,
    differing: frozenset[int],
    seen: tuple[Seen, ...],
    detail: str,
    listed: tuple[str, ...] = (),
) -> TextSlot:
    return TextSlot(
        cause=why,
        offset=offset,
        before=" ".join(reference[max(0, offset - 40) : offset].split()[-CONTEXT:]),
        after=" ".join(reference[offset : offset + 60].split()[:CONTEXT]),
        example=example,
        seen=seen,
        behaviour=None,
        differing=differing,
        fixed_behind=len(reference) - offset,
        detail=detail,
        items=listed,
    )


def blanks_and_unicode(
    reference: Words, found: Sequence[tuple[Sample, Words, Sequence[Span]]], example: int
) -> Iterator[TextSlot]:
    """Words that are the same but for their Unicode form, and the blanks between words that are."""
    told: dict[Cause, dict[int, tuple[int, str, str]]] = {Cause.WHITESPACE: {}, Cause.UNICODE: {}}
    for sample, text, spans in found:
        for why, at, ours, theirs in _forms(reference, text, spans):
            told[why].setdefault(sample.request, (at, ours, theirs))
    for why, by_request in told.items():
        if not by_request:
            continue
        offset = min(at for at, _, _ in by_request.values())
        forms = {theirs for _, _, theirs in by_request.values()} | {
            ours for _, ours, _ in by_request.values()
        }
        yield _form_slot(
            why,
            reference.text,
            offset,
            example,
            frozenset(by_request),
            tuple(Seen(request, repr(theirs)) for request, (_, _, theirs) in list(by_request.items())[:8]),
            "written as " + " and ".join(sorted(map(ascii, forms))[:3]),
        )


def _forms(reference: Words, text: Words, spans: Sequence[Span]) -> Iterator[tuple[Cause, int, str, str]]:
    """Where words that both have are written differently: the place in the reference, and both forms."""
    first = begin = 0
    for span in (*spans, Span(len(reference), len(reference), len(text), len(text))):
        for step in range(span.first - first):
            ours, theirs = _written(reference, first + step), _written(text, begin + step)
            if ours != theirs:
                yield Cause.UNICODE, reference.starts[first + step], ours, theirs
            if step:
                ours, theirs = _blank(reference, first + step), _blank(text, begin + step)
                if ours != theirs:
                    yield Cause.WHITESPACE, reference.ends[first + step - 1], ours, theirs
        first, begin = span.last, span.end


def _written(side: Words, at: int) -> str:
    return side.text[side.starts[at] : side.ends[at]]


def _blank(side: Words, at: int) -> str:
    return side.text[side.ends[at - 1] : side.starts[at]]
