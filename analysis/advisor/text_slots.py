"""Slots in the text of one place: where the texts that the requests of a cluster have there differ, and how."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from analysis.advisor.align import Gap, Span, differences, gaps, value
from analysis.advisor.behaviour import Behaviour, Seen, behaviour, cause
from analysis.advisor.canonical import Json, json_in_order, json_values, moved_items, reordered
from analysis.advisor.cause import Cause
from analysis.advisor.words import Words, sentences, squeezed, words

MOST = 240  # texts of one place that are compared, spread over all
LASTING = 0.6  # of the texts have a sentence that is of their template
MOSTLY = 0.6  # of what texts say is looked up where less of it lasts
FREE = 0.7  # share of a text that differs, beyond which it is nobody's template
CONTEXT = 4  # words told before and behind a slot
WINDOW = 80  # characters that a text has lost at its beginning, and another has not
NEAR = 24  # characters between two values of one cause that are one


@dataclass(frozen=True, slots=True)
class Sample:
    """The text that a request has at a place."""

    request: int
    text: str
    time: float | None
    session: str
    user: str


@dataclass(frozen=True, slots=True)
class TextSlot:
    """offset: characters of the reference before it. example: the request whose text the reference is. differing:
    requests that have something else than most. fixed_behind: characters of the reference behind it, slots left out."""

    cause: Cause
    offset: int
    before: str
    after: str
    example: int
    seen: tuple[Seen, ...]
    behaviour: Behaviour | None
    differing: frozenset[int]
    fixed_behind: int
    detail: str = ""


def text_slots(samples: Sequence[Sample], *, whole: bool = False) -> list[TextSlot]:
    """The slots of a place: those of form, then those of words. Empty for texts that are all the same.

    Texts that have too little in common to be of one template are one slot where they are asked for as a `whole`, as
    what stands before a conversation, and none otherwise.
    """
    chosen = _spread(samples)
    texts = Counter(sample.text for sample in samples)
    if len(texts) < 2:
        return []
    reference = _reference(texts)
    example = next(sample.request for sample in samples if sample.text == reference)
    forms = [*_json_order(chosen, reference, example), *_item_order(chosen, reference, example)]
    compared = _compared(chosen, reference)
    if compared.free or _mostly_varies([text.text for text in compared.texts]):
        return [*forms, _whole_slot(chosen, reference, example)] if whole else forms
    forms += _blanks_and_unicode(compared, example)
    return [*forms, *_values(compared, example)]


def _spread(samples: Sequence[Sample]) -> list[Sample]:
    """Some that stand for all: every text that is rare, and the others evenly over time."""
    if len(samples) <= MOST:
        return list(samples)
    step = len(samples) / MOST
    return [samples[int(at * step)] for at in range(MOST)]


def _reference(texts: Counter[str]) -> str:
    """The commonest text; of those that are all different the one of the middle length."""
    (text, often), *_ = texts.most_common(1)
    if often > 1:
        return text
    return sorted(texts, key=len)[len(texts) // 2]


@dataclass(frozen=True)
class _Compared:
    """Texts of a place beside the reference, their items in its order and their JSON in one."""

    reference: Words
    samples: Sequence[Sample]
    texts: Sequence[Words]
    spans: Sequence[Sequence[Span]]
    gaps: Sequence[Gap]

    @property
    def free(self) -> bool:
        size = len(self.reference.text)
        differs = sum(len(self.reference.between(gap.first, gap.last)) for gap in self.gaps)
        return size == 0 or differs > FREE * size


def _compared(samples: Sequence[Sample], reference: str) -> _Compared:
    several = _in_several_orders(samples)
    told = words(json_in_order(reference, several))

    @cache
    def beside(text: str) -> tuple[Words, tuple[Span, ...]]:
        own = words(json_in_order(reordered(text, reference), several))
        return own, tuple(differences(told, own))

    found = [beside(sample.text) for sample in samples]
    spans = [spans for _, spans in found]
    return _Compared(told, samples, [own for own, _ in found], spans, gaps(spans, told))


def _in_several_orders(samples: Sequence[Sample]) -> frozenset[str]:
    """JSON (unordered) that these texts write in several ways."""
    forms: dict[str, set[str]] = defaultdict(set)
    for text in {sample.text for sample in samples}:
        for one in json_values(text):
            forms[one.unordered].add(one.raw)
    return frozenset(same for same, raws in forms.items() if len(raws) > 1)


def _mostly_varies(told: Sequence[str]) -> bool:
    """Whether most of what the texts say are sentences that few others have: looked up, and not written by hand."""
    texts = [sentences(text) for text in told]
    counts = Counter(sentence for text in texts for sentence in set(text))
    few = LASTING * len(texts)
    varying = sum(len(one) for text in texts for one in text if counts[one] < few)
    return varying > MOSTLY * sum(len(one) for text in texts for one in text)


def _whole_slot(samples: Sequence[Sample], reference: str, example: int) -> TextSlot:
    seen = tuple(Seen(one.request, one.text, one.time, one.session, one.user) for one in samples)
    usual = Counter(one.text for one in samples).most_common(1)[0][0]
    return TextSlot(
        cause=_cause(seen),
        offset=0,
        before="",
        after=" ".join(reference[:60].split()[:CONTEXT]),
        example=example,
        seen=seen,
        behaviour=behaviour(seen),
        differing=frozenset(one.request for one in samples if one.text != usual),
        fixed_behind=0,
    )


def _values(compared: _Compared, example: int) -> Iterator[TextSlot]:
    """A slot for each gap; neighbours of one cause are one."""
    merged: list[tuple[Gap, Cause]] = []
    for gap in compared.gaps:
        own = _cause(_seen(compared, gap))
        if merged and own is merged[-1][1] and _near(compared.reference, merged[-1][0], gap):
            merged[-1] = Gap(merged[-1][0].first, gap.last), own
        else:
            merged.append((gap, own))
    for gap, _ in merged:
        seen = _seen(compared, gap)
        yield _slot(compared.reference, gap, _cause(seen), example, seen, compared.gaps)


def _cause(seen: Sequence[Seen]) -> Cause:
    """By how the values behave; where most requests have the same one, by those of the others."""
    usual, often = Counter(one.value for one in seen).most_common(1)[0]
    others = [one for one in seen if one.value != usual]
    if often < len(seen) / 2 or not others:
        others = list(seen)
    values = sorted({one.value for one in seen}, key=len)
    if len(values[-1]) > WINDOW and all(values[-1].endswith(value) for value in values):
        return Cause.SLIDING_WINDOW
    return cause(others, behaviour(others))


def _near(reference: Words, first: Gap, second: Gap) -> bool:
    between = reference.text[_end(reference, first.last) : _begin(reference, second.first)]
    return len(between) <= NEAR and "\n" not in between


def _begin(side: Words, at: int) -> int:
    return side.starts[at] if at < len(side) else len(side.text)


def _end(side: Words, at: int) -> int:
    return side.ends[at - 1] if at else 0


def _seen(compared: _Compared, gap: Gap) -> tuple[Seen, ...]:
    return tuple(
        Seen(sample.request, value(gap, spans, text), sample.time, sample.session, sample.user)
        for sample, text, spans in zip(compared.samples, compared.texts, compared.spans, strict=True)
    )


def _slot(
    reference: Words,
    gap: Gap,
    why: Cause,
    example: int,
    seen: tuple[Seen, ...],
    others: Sequence[Gap],
) -> TextSlot:
    behind = len(reference.text) - _end(reference, gap.last)
    behind -= sum(len(reference.between(o.first, o.last)) for o in others if o.first >= gap.last)
    usual = Counter(one.value for one in seen).most_common(1)[0][0]
    unusual = frozenset(one.request for one in seen if one.value != usual)
    return TextSlot(
        cause=why,
        offset=_begin(reference, gap.first),
        before=reference.between(max(0, gap.first - CONTEXT), gap.first),
        after=reference.between(gap.last, min(len(reference), gap.last + CONTEXT)),
        example=example,
        seen=seen,
        behaviour=behaviour(seen),
        differing=unusual,
        fixed_behind=max(0, behind),
    )


def _json_order(samples: Sequence[Sample], reference: str, example: int) -> Iterator[TextSlot]:
    """JSON that is the same but for the order of its keys or of its elements, wherever it stands in the texts."""
    told = [(sample.request, value) for sample in samples for value in json_values(sample.text)]
    yield from _orders(
        [(i, v, squeezed(v.raw), v.keys) for i, v in told], Cause.KEY_ORDER, reference, example
    )
    arrays = [(i, v, v.keys, v.unordered) for i, v in told]
    why = Cause.TOOL_ORDER if any(_lists_tools(value) for _, value in told) else Cause.ITEM_ORDER
    yield from _orders(arrays, why, reference, example)


def _lists_tools(value: Json) -> bool:
    return value.raw.startswith("[") and '"name":' in value.keys and '"parameters":' in value.keys


def _orders(
    told: Sequence[tuple[int, Json, str, str]], why: Cause, reference: str, example: int
) -> Iterator[TextSlot]:
    """One slot for all values that are written in several forms. told: request, value, its form, and what is the same
    in all its forms."""
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    of: dict[str, set[int]] = defaultdict(set)
    for request, _, form, same in told:
        forms[same][form] += 1
        of[form].add(request)
    several = {same: found for same, found in forms.items() if len(found) > 1}
    if not several:
        return
    raws = {value.raw for _, value, _, same in told if same in several}
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
    )


def _item_order(samples: Sequence[Sample], reference: str, example: int) -> Iterator[TextSlot]:
    """Items that stand in another order than in the reference."""
    moved = {sample.text: moved_items(reference, sample.text) for sample in samples}
    out_of_order = {text: one for text, one in moved.items() if one}
    if not out_of_order:
        return
    items = {item for one in out_of_order.values() for item in one}
    offset = min((at for item in items if (at := reference.find(item)) >= 0), default=0)
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
        f"the same {len(items)} items in {len(set(out_of_order.values())) + 1} orders",
    )


def _form_slot(
    why: Cause,
    reference: str,
    offset: int,
    example: int,
    differing: frozenset[int],
    seen: tuple[Seen, ...],
    detail: str,
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
    )


def _blanks_and_unicode(compared: _Compared, example: int) -> Iterator[TextSlot]:
    """Words that are the same but for their Unicode form, and the blanks between words that are."""
    found: dict[Cause, dict[int, tuple[int, str, str]]] = {Cause.WHITESPACE: {}, Cause.UNICODE: {}}
    for sample, text, spans in zip(compared.samples, compared.texts, compared.spans, strict=True):
        for why, at, ours, theirs in _forms(compared.reference, text, spans):
            found[why].setdefault(sample.request, (at, ours, theirs))
    for why, by_request in found.items():
        if not by_request:
            continue
        offset = min(at for at, _, _ in by_request.values())
        forms = {theirs for _, _, theirs in by_request.values()} | {
            ours for _, ours, _ in by_request.values()
        }
        yield _form_slot(
            why,
            compared.reference.text,
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
