"""Slots in the text of one place: where the texts that the requests of a cluster have there differ, and how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from analysis.advisor.learning.behaviour import FEW, Seen, behaviour, cause
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.text.align import Gap, Span, differences, gaps, place, value
from analysis.advisor.learning.text.forms import (
    CONTEXT,
    blanks_and_unicode,
    item_order,
)
from analysis.advisor.learning.text.json_forms import in_several_orders, json_order
from analysis.advisor.learning.text.lines import Found, by_line
from analysis.advisor.learning.text.looked_up import drawn, mostly_drawn
from analysis.advisor.learning.text.model import Sample, TextSlot
from analysis.advisor.learning.text.pattern import ALIKE, Sentence, label, referred_to, sentence
from analysis.advisor.rewriting.canonical import json_in_order, reordered
from analysis.advisor.rewriting.search import search
from analysis.advisor.rewriting.words import Words, words

MOST = 240  # texts of one place that are compared, spread over all
MOSTLY = 0.6  # of what texts say is looked up where less of it lasts
FREE = 0.7  # share of a text that differs, beyond which it is nobody's template
WINDOW = 80  # characters that a text has lost at its beginning, and another has not
FEWEST = 3  # values that begin alike, to be a kind of their own
_WRITTEN = (
    Cause.VARIANT,
    Cause.MEASUREMENT,
    Cause.NONCE,
    Cause.NONCE_IN_USE,
    Cause.CLOCK,
    Cause.COUNTER,
)  # what values of a text that was replaced look like
NEAR = 24  # characters between two values of one cause that are one


def text_slots(samples: Sequence[Sample], *, whole: bool = False) -> list[TextSlot]:
    """The slots of a place: those of form, then those of words. Empty for texts that are all the same.

    Texts that have too little in common to be of one template are one slot where they are asked for as a `whole`, as
    what stands before a conversation, and none otherwise.
    """
    texts = Counter(sample.text for sample in samples)
    if len(texts) < 2:
        return []
    chosen = _spread(samples)
    stands_for = len(samples) / len(chosen)
    return [
        replace(slot, stands_for=stands_for, anew=_anew(slot, len(samples)))
        for slot in _slots(samples, chosen, texts, whole)
        if not _deployed(slot)
    ]


def _deployed(slot: TextSlot) -> bool:
    """Whether each of a few values gave way to the next one for good, as those of a text do that is written anew."""
    distinct = len({one.value for one in slot.seen})
    if slot.cause not in _WRITTEN or distinct > min(FEW, len(slot.seen) / 4):
        return False
    return distinct == 1 + sum(a.value != b.value for a, b in pairwise(slot.seen))


def _anew(slot: TextSlot, requests: int) -> float | None:
    """In how many requests a value stands that none before them had: those among the ones that were compared, and of
    the others as large a part as has a value alone here (Good and Turing's estimate of what was not seen yet)."""
    if slot.behaviour is None:
        return None
    counts = Counter(one.value for one in slot.seen)
    alone = sum(count == 1 for count in counts.values())
    return len(counts) - 1 + alone / len(slot.seen) * (requests - len(slot.seen))


def _slots(
    samples: Sequence[Sample], chosen: Sequence[Sample], texts: Counter[str], whole: bool
) -> list[TextSlot]:
    reference = _reference(texts)
    example = next(sample.request for sample in samples if sample.text == reference)
    forms = [*json_order(chosen, reference, example), *item_order(chosen, reference, example)]
    compared = _compared(chosen, reference)
    if compared.free or mostly_drawn([text.text for _, text, _ in compared.found], MOSTLY, of_head=whole):
        return [*forms, _whole_slot(chosen, reference, example)] if whole else forms
    forms += blanks_and_unicode(compared.reference, compared.found, example)
    return [*forms, *_values(compared, example)]


def _spread(samples: Sequence[Sample]) -> list[Sample]:
    """Some that stand for all, evenly over time."""
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
    found: Sequence[tuple[Sample, Words, Sequence[Span]]]
    gaps: Sequence[Gap]

    @property
    def free(self) -> bool:
        size = len(self.reference.text)
        differs = sum(len(self.reference.between(gap.first, gap.last)) for gap in self.gaps)
        return size == 0 or differs > FREE * size


def _compared(samples: Sequence[Sample], reference: str) -> _Compared:
    several = in_several_orders(samples)
    told = words(json_in_order(reference, several))

    @cache
    def beside(text: str) -> tuple[Words, tuple[Span, ...]]:
        own = words(json_in_order(reordered(text, reference), several))
        return own, tuple(differences(told, own))

    found: list[Found] = [(sample, *beside(sample.text)) for sample in samples]
    told_gaps, found = by_line(gaps([spans for _, _, spans in found], told), found, told, _cause)
    return _Compared(told, found, drawn(told_gaps, told, [own.text for _, own, _ in found]))


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
        whole=True,
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
        for seen in _kinds(_seen(compared, gap)):
            yield _slot(compared, gap, _cause(seen), example, seen)


def _kinds(seen: tuple[Seen, ...]) -> list[tuple[Seen, ...]]:
    """The values of a gap that is empty for most, apart by how they begin: what several senders put there is several
    things. Each with the others' left out."""
    groups: dict[str, int] = Counter(_beginning(one.value) for one in seen if one.value)
    if len(groups) < 2 or Counter(one.value for one in seen).most_common(1)[0][0]:
        return [seen]
    several = [group for group, count in groups.items() if count >= FEWEST]
    return [
        tuple(one if _beginning(one.value) == group else replace(one, value="") for one in seen)
        for group in several
    ] or [seen]


def _beginning(value: str) -> str:
    """Its first word, or sign; of a number that it is one."""
    told = words(value[:80]).words[:1]
    return "" if not told else "9" if told[0][0].isdigit() else told[0]


def _cause(seen: Sequence[Seen]) -> Cause:
    """By how the values behave; where most requests have the same one, by those of the others."""
    usual, often = Counter(one.value for one in seen).most_common(1)[0]
    others = [one for one in seen if one.value != usual]
    if often < len(seen) / 2 or not others:
        others = list(seen)
    values = sorted({one.value for one in seen}, key=len)
    if len(values[-1]) > WINDOW and all(values[-1].endswith(value) for value in values):
        return Cause.SLIDING_WINDOW
    if not usual:
        others = _without_label(others)
    return cause(others, behaviour(others))


def _without_label(seen: Sequence[Seen]) -> list[Seen]:
    """Values that stand in a sentence which others do not have, without the words that they all begin with."""
    cut = len(label([one.value for one in seen]))
    return [replace(one, value=one.value[cut:] or one.value) for one in seen]


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
        for sample, text, spans in compared.found
    )


def _slot(compared: _Compared, gap: Gap, why: Cause, example: int, seen: tuple[Seen, ...]) -> TextSlot:
    reference, others = compared.reference, compared.gaps
    behind = len(reference.text) - _end(reference, gap.last)
    behind -= sum(len(reference.between(o.first, o.last)) for o in others if o.first >= gap.last)
    apart = [
        o for o in others if o.first < gap.first or o.last > gap.last
    ]  # it may be several of them in one
    own, values = [*apart, gap], [one.value for one in seen]
    sentences = sentence(reference, gap, own, values, dated=why is Cause.CLOCK, listed=why is Cause.VARIANT)
    told = next((one for one in sentences if _finds(one, gap, compared, seen)), Sentence("", alone=True))
    if why is Cause.NONCE and referred_to(reference, gap, own, values):
        why = Cause.NONCE_IN_USE
    since = max((o.last for o in others if o.last <= gap.first), default=0)  # words that are the same in all
    why, detail = _listed(why, values)
    upto = min((o.first for o in others if o.first >= gap.last), default=len(reference))
    usual = Counter(one.value for one in seen).most_common(1)[0][0]
    unusual = frozenset(one.request for one in seen if one.value != usual)
    return TextSlot(
        cause=why,
        offset=_begin(reference, gap.first),
        before=reference.between(max(since, gap.first - CONTEXT), gap.first),
        after=reference.between(gap.last, min(upto, gap.last + CONTEXT)),
        example=example,
        seen=seen,
        behaviour=behaviour(seen),
        differing=unusual,
        fixed_behind=max(0, behind),
        detail=detail,
        pattern=told.pattern,
        alone=told.alone,
    )


def _listed(why: Cause, values: Sequence[str]) -> tuple[Cause, str]:
    """The cause of values that are what all list in one line, now in this order and now in that, and what to say of it;
    else the one that is told."""
    told = [value for value in values if value]
    (same, often), *_ = Counter(tuple(sorted(words(one).words)) for one in told).most_common(1) or [((), 0)]
    orders = len(set(told))
    few = min(len(same), orders) < FEWEST
    if few or often < ALIKE * len(told) or why in (Cause.CLOCK, Cause.COUNTER):
        return why, ""
    return Cause.ITEM_ORDER, f"the same {sum(map(str.isalnum, same))} words in {orders} orders"


def _finds(told: Sentence, gap: Gap, compared: _Compared, seen: Sequence[Seen]) -> bool:
    """Whether the pattern finds all that stands in the gap, and nothing in its stead: what says too little of the
    sentence finds any, and of several lines one."""
    right = 0
    for (_, text, spans), one in zip(compared.found, seen, strict=True):
        match = search(told.pattern, text.text)
        if match and match[0].strip():
            first, last = place(gap, spans, text)
            at = _begin(text, first)
            right += match.start() <= at and max(at, _end(text, last)) <= match.end()
        else:
            right += not one.value
    return right >= ALIKE * len(seen)
