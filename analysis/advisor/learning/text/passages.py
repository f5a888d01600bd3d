"""Documents that come again in other requests: in another order, with scores beside them, or behind a question."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

from analysis.advisor.learning.behaviour import Seen
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.text.looked_up import LASTING
from analysis.advisor.learning.text.model import Sample, TextSlot
from analysis.advisor.learning.text.orders import Again, Item, again
from analysis.advisor.rewriting.canonical import items
from analysis.advisor.rewriting.words import squeezed

MIN_BYTES = 40  # of a line that is known again: shorter ones come again by chance
FEWEST = 3  # requests that have it
MOSTLY = 0.5  # of what a text says, and of the texts of a place
COMBINATIONS = 6  # of documents, fewer of which somebody may have written as variants
SOME = 0.2  # of the requests that pay, do so for one reason
ALL_BUT_FEW = 0.9  # of the documents are one item each
MOST_ITEMS = 400  # that a rule lists
SHOWN, CONTEXT = 8, 4
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


class _Line(NamedTuple):
    text: str
    at: int


def looked_up(samples: Sequence[Sample], slots: Sequence[TextSlot]) -> list[TextSlot]:
    """The slots of a template, those that lie where documents stand as one. They are documents, and no values, where
    the same lines come in many combinations; those of one combination in several orders are a matter of that."""
    if not slots:
        return []
    texts = {sample.request: _lines(sample.text) for sample in samples}
    known = _known(list(texts.values()))
    own = {request: frozenset(one.text for one in text) & known for request, text in texts.items()}
    homes = Counter(line for one in set(own.values()) for line in one)
    if len(set(own.values())) < COMBINATIONS or sum(n > 1 for n in homes.values()) < SOME * len(homes):
        return list(slots)
    found = again(
        [
            (request, [Item(one.text, 1) for one in text if one.text in known])
            for request, text in texts.items()
        ]
    )
    begin, end = _range(texts, known)
    within = [slot for slot in slots if begin <= slot.offset < end or _lists(slot, known)]
    if not within or found:
        return list(slots)
    usual = Counter(own.values()).most_common(1)[0][0]
    costliest = max(within, key=lambda slot: (begin <= slot.offset, len(slot.differing)))
    one = replace(
        costliest,
        cause=Cause.MEMORY,
        differing=frozenset(request for request, lines in own.items() if lines != usual),
        fixed_behind=max(0, max(len(sample.text) for sample in samples) - end),
        detail="",
        pattern="",
        items=(),
        stands_for=1.0,
        anew=float(len(set(own.values())) - 1),
    )
    return [*(slot for slot in slots if slot not in within), one]


def _lists(slot: TextSlot, known: AbstractSet[str]) -> bool:
    return any(line in item for item in slot.items for line in known)


def _range(texts: dict[int, list[_Line]], known: AbstractSet[str]) -> tuple[int, int]:
    """Where documents stand: from the first place that one, or the title before it, begins at to the last that one ends
    at."""
    begins = (
        text[max(0, at - 1)].at for text in texts.values() for at, one in enumerate(text) if one.text in known
    )
    ends = (one.at + len(one.text) for text in texts.values() for one in text if one.text in known)
    return min(begins), max(ends)


def passages(samples: Sequence[Sample]) -> list[TextSlot]:
    """The slots of a place of the user's: empty where most of what its texts say does not come again."""
    texts = {sample.request: _lines(sample.text) for sample in samples}
    known = _known(list(texts.values()))
    told = {
        request: [Item(one.text, len(one.text), one.text in known) for one in own]
        for request, own in texts.items()
    }
    if sum(map(_mostly_known, told.values())) < MOSTLY * len(told):
        return []
    found = again(list(told.items()))
    return list(_slots(samples, texts, known, found)) if found else []


def _lines(text: str) -> list[_Line]:
    told, at = list[_Line](), 0
    for line in text.split("\n"):
        if line.strip():
            told.append(_Line(squeezed(line), at + len(line) - len(line.lstrip())))
        at += len(line) + 1
    return told


def _known(texts: Sequence[Sequence[_Line]]) -> AbstractSet[str]:
    """Lines that come again and are not of the template. What differs from others in its numbers alone, such as a title
    with a score, is none."""
    counts = Counter(line for text in texts for line in {one.text for one in text})
    shapes = Counter(_NUMBER.sub("", line) for line in counts)
    return {
        line
        for line, count in counts.items()
        if FEWEST <= count < LASTING * len(texts)
        and len(line.encode(errors="replace")) >= MIN_BYTES
        and shapes[_NUMBER.sub("", line)] == 1
    }


def _mostly_known(own: Sequence[Item]) -> bool:
    return sum(item.size * item.known for item in own) > MOSTLY * sum(item.size for item in own)


def _slots(
    samples: Sequence[Sample], texts: dict[int, list[_Line]], known: AbstractSet[str], found: Again
) -> Iterator[TextSlot]:
    """What breaks most of them first, and the order of the documents where it changes."""
    counts = Counter(line for text in texts.values() for line in {one.text for one in text})
    shapes = Counter(_NUMBER.sub("", line) for line in counts)
    alone = {
        line for line, count in counts.items() if count < FEWEST and shapes[_NUMBER.sub("", line)] < FEWEST
    }
    front = [at for at in found.lost if _leads(texts[at], found.broken[at], known, alone)]
    moved = [at for at in found.lost if at in found.moved]
    beside = [at for at in found.lost if at not in {*moved, *front}]
    enough = max(SOME * len(found.lost), FEWEST)
    if len(front) >= enough:
        yield _slot(Cause.SHARED_BEHIND, texts, found, front, "stands before documents that others have, too")
    if len(moved) >= enough:
        listed = _movable(samples, known)
        what = f"the same {found.size} documents in {found.orders:,} orders"
        if not listed and len(front) < enough:
            what += ", with titles that change with their places"
        yield _slot(Cause.ITEM_ORDER, texts, found, moved, what, listed, known)
    if len(beside) >= enough:
        line = texts[beside[-1]][found.broken[beside[-1]]].text
        why = Cause.MEASUREMENT if _NUMBER.search(line) else Cause.SHARED_BEHIND
        yield _slot(why, texts, found, beside, "stands beside documents that others have, too")


def _leads(own: Sequence[_Line], broken: int, known: AbstractSet[str], alone: AbstractSet[str]) -> bool:
    """Whether a text parts from others before its first document, at what is its own: a question, and no title."""
    return broken < _first(own, known) and own[broken].text in alone


def _first(own: Sequence[_Line], known: AbstractSet[str]) -> int:
    return next((at for at, line in enumerate(own) if line.text in known), 0)


def _movable(samples: Sequence[Sample], known: AbstractSet[str]) -> tuple[str, ...]:
    """The documents as a rule lists them, the commonest first; empty where their items are more than the documents,
    such as with a number in front of each, or too many."""
    of_line, counts = defaultdict[str, set[str]](set), Counter[str]()
    for sample in samples:
        for item in map(squeezed, items(sample.text)):
            counts[item] += 1
    for text in {sample.text for sample in samples}:
        for item in items(text):
            for line in known & set(map(squeezed, item.split("\n"))):
                of_line[line].add(squeezed(item))
    single = [next(iter(own)) for own in of_line.values() if len(own) == 1]
    if len(single) < ALL_BUT_FEW * len(of_line) or len(single) > MOST_ITEMS:
        return ()
    return tuple(sorted(set(single), key=lambda item: -counts[item]))


def _slot(
    why: Cause,
    texts: dict[int, list[_Line]],
    found: Again,
    requests: Sequence[int],
    detail: str,
    listed: tuple[str, ...] = (),
    within: AbstractSet[str] = frozenset(),
) -> TextSlot:
    """within: lines, before the first of which it is not."""
    begins = {one: max(found.broken[one], _first(texts[one], within)) for one in requests}
    example = requests[-1]
    own, at = texts[example], begins[example]
    return TextSlot(
        cause=why,
        offset=own[at].at,
        before=" ".join(own[at - 1].text.split()[-CONTEXT:]) if at else "",
        after=" ".join(own[at].text.split()[:CONTEXT]),
        example=example,
        seen=tuple(Seen(one, texts[one][begins[one]].text[:60]) for one in requests[:SHOWN]),
        behaviour=None,
        differing=frozenset(requests),
        fixed_behind=round(sum(found.lost[one] for one in requests) / len(requests)),
        detail=detail,
        items=listed,
        whole=not listed,
    )
