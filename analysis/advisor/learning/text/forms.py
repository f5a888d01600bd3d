"""Slots of form: what texts say is the same, and how it is written is not. Items in another order, blanks, and Unicode
forms; `json_forms` has those of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set

from analysis.advisor.learning.behaviour import Seen
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.text.align import Span
from analysis.advisor.learning.text.model import Sample, TextSlot
from analysis.advisor.rewriting.canonical import items, moved_items
from analysis.advisor.rewriting.words import Words, squeezed

CONTEXT = 4  # words told before and behind a slot
SHOWN = 8


def item_order(samples: Sequence[Sample], reference: str, example: int) -> Iterator[TextSlot]:
    """Items that stand in another order than in the reference."""
    moved = {sample.text: moved_items(reference, sample.text) for sample in samples}
    out_of_order = {text: one for text, one in moved.items() if one}
    if not out_of_order:
        return
    known = {item for one in out_of_order.values() for item in one}
    offset = min((at for item in known if (at := reference.find(item)) >= 0), default=0)
    yield form_slot(
        Cause.ITEM_ORDER,
        reference,
        offset,
        example,
        frozenset(sample.request for sample in samples if sample.text in out_of_order),
        tuple(
            Seen(sample.request, " | ".join(item[:24] for item in moved[sample.text]))
            for sample in samples
            if sample.text in out_of_order
        ),
        f"the same {len(known)} items in {1 + _orders_of(known, out_of_order)} orders",
        tuple(item for item in map(squeezed, items(reference)) if item in known),
    )


def _orders_of(known: Set[str], texts: Iterable[str]) -> int:
    """In how many orders these items (squeezed) stand in texts."""
    return len({tuple(one for item in items(text) if (one := squeezed(item)) in known) for text in texts})


def form_slot(
    why: Cause,
    reference: str,
    offset: int,
    example: int,
    differing: frozenset[int],
    seen: tuple[Seen, ...],
    detail: str,
    listed: tuple[str, ...] = (),
    anew: float | None = None,
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
        anew=anew,
    )


def blanks_and_unicode(
    reference: Words, found: Sequence[tuple[Sample, Words, Sequence[Span]]], example: int
) -> Iterator[TextSlot]:
    """Words that are the same but for their Unicode form, and the blanks between words that are."""
    told: dict[Cause, dict[int, list[tuple[int, str, str]]]] = {Cause.WHITESPACE: {}, Cause.UNICODE: {}}
    for sample, text, spans in found:
        for why, at, ours, theirs in _forms(reference, text, spans):
            told[why].setdefault(sample.request, []).append((at, ours, theirs))
    for why, by_request in told.items():
        if not by_request:
            continue
        offset, _, usual = min((own[0][0], own[0][2], own[0][1]) for own in by_request.values())
        forms = {form for own in by_request.values() for form in own[0][1:]}
        seen = tuple(
            Seen(sample.request, _form(by_request.get(sample.request), usual)) for sample, _, _ in found
        )
        yield form_slot(
            why,
            reference.text,
            offset,
            example,
            frozenset(by_request),
            seen,
            "written as " + " and ".join(sorted(map(ascii, forms))[:3]),
            anew=float(len({one.value for one in seen}) - 1),
        )


def _form(found: Sequence[tuple[int, str, str]] | None, usual: str) -> str:
    """What a text has where it is written differently for the first time, and further forms of other kinds."""
    return " ".join(dict.fromkeys(repr(theirs) for _, _, theirs in found)) if found else repr(usual)


Form = tuple[Cause, int, str, str]
"""A cause, the place in the reference, in characters, and both forms."""


def _forms(reference: Words, text: Words, spans: Sequence[Span]) -> Iterator[Form]:
    """Where words that both have are written differently, or what stands between them."""
    ends = Span(0, 0, 0, 0), Span(len(reference), len(reference), len(text), len(text))
    before = ends[0]
    for span in (*spans, ends[1]):
        first, last, begin = before.last, span.first, before.end
        if first < last and reference.between(first, last) != text.between(begin, begin + last - first):
            yield from _within(reference, text, first, last, begin)
        for at in sorted({first, last}):
            beside = [one for one, edge in ((before, first), (span, last)) if edge == at and one not in ends]
            yield from _at_edge(reference, text, at, begin + at - first, beside)
        before = span


def _within(reference: Words, text: Words, first: int, last: int, begin: int) -> Iterator[Form]:
    """Of words first to last - 1, which the text has from `begin` on."""
    for step in range(last - first):
        ours, theirs = _written(reference, first + step), _written(text, begin + step)
        if ours != theirs:
            yield Cause.UNICODE, reference.starts[first + step], ours, theirs
        if step:
            ours, theirs = _blank(reference, first + step), _blank(text, begin + step)
            if ours != theirs:
                yield Cause.WHITESPACE, reference.ends[first + step - 1], ours, theirs


def _at_edge(reference: Words, text: Words, at: int, other: int, beside: Sequence[Span]) -> Iterator[Form]:
    """In front of a word, or of the end. beside: values there. More blanks or fewer fill the column of one, and what
    only one of the texts has brings its own along."""
    ours, theirs = _blank(reference, at), _blank(text, other)
    both = all(one.first < one.last and one.begin < one.end for one in beside)
    if ours != theirs and both and not (beside and ours.strip(" ") == theirs.strip(" ")):
        yield Cause.WHITESPACE, reference.ends[at - 1] if at else 0, ours, theirs


def _written(side: Words, at: int) -> str:
    return side.text[side.starts[at] : side.ends[at]]


def _blank(side: Words, at: int) -> str:
    """What stands in front of a word, or at the end behind the last one: blanks, and signs that nobody sees."""
    begin = side.ends[at - 1] if at else 0
    return side.text[begin : side.starts[at] if at < len(side) else len(side.text)]
