"""Texts of one template laid beside each other: which stretches all have, and what each has in the others' place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from unicodedata import category

from rapidfuzz.distance import Indel

from analysis.advisor.rewriting.words import Words

MIN_ANCHOR = (
    4  # characters of a stretch that two texts have in common, below which it is chance between differences
)
_MARKED = 3  # characters of a letter with its marks
GLUE = frozenset("-:.+/_@#,'’")  # signs that hold a value together


class Span(NamedTuple):
    """Words first to last - 1 of the reference, and what a text has there: words begin to end - 1."""

    first: int
    last: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Words first to last - 1 of the reference, in which texts differ."""

    first: int
    last: int


def differences(reference: Words, text: Words) -> list[Span]:
    """Where a text differs from the reference, in order. Common words too few to be more than chance are taken as
    different, and a difference within a value is one of the whole value."""
    spans = [
        Span(code.src_start, code.src_end, code.dest_start, code.dest_end)
        for code in Indel.opcodes(reference.words, text.words)
        if code.tag != "equal"
    ]
    joined = _joined(_joined(spans, reference), reference)
    return [_whole(_trimmed(span, reference, text), reference, text) for span in joined]


def _trimmed(span: Span, reference: Words, text: Words) -> Span:
    """Without the signs at its end that both have and that begin what follows, such as those of a heading."""
    first, last, begin, end = span
    while (
        last > first
        and end > begin
        and reference.words[last - 1] == text.words[end - 1]
        and _leads(text, end - 1)
    ):
        last, end = last - 1, end - 1
    return Span(first, last, begin, end)


def _leads(side: Words, at: int) -> bool:
    """Whether a word is a sign that stands apart from what is before it."""
    return not side.words[at][0].isalnum() and at > 0 and side.ends[at - 1] < side.starts[at]


def _joined(spans: Sequence[Span], reference: Words) -> list[Span]:
    told: list[Span] = []
    for span in spans:
        if told and _is_chance(reference, told[-1].last, span.first):
            told[-1] = Span(told[-1].first, span.last, told[-1].begin, span.end)
        else:
            told.append(span)
    return told


def _is_chance(reference: Words, first: int, last: int) -> bool:
    """Whether what lies between two differences is no anchor: nothing, a few characters, or the middle of a value."""
    if first >= last:
        return True
    between = reference.between(first, last)
    glued = reference.ends[first - 1] == reference.starts[first] if first else False
    glued_on = last < len(reference) and reference.ends[last - 1] == reference.starts[last]
    if glued and glued_on and not any(char.isspace() for char in between):
        return True
    return len("".join(reference.words[first:last])) < MIN_ANCHOR


def _whole(span: Span, reference: Words, text: Words) -> Span:
    """Widened to the ends of the values it cuts into: 12:04 and not 04."""
    left = min(_reach(reference, span.first, -1), _reach(text, span.begin, -1))
    right = min(_reach(reference, span.last, 1), _reach(text, span.end, 1))
    return Span(span.first - left, span.last + right, span.begin - left, span.end + right)


def _reach(side: Words, at: int, step: int) -> int:
    """How many words from this place on are of the value that ends or begins there: nothing is between them, and a sign
    is one of them where the value goes on behind it."""
    reach = 0
    while _glued(side, at + step * reach) and _is_of_value(side, at, step, reach):
        reach += 1
    # A sign at the end belongs to the sentence.
    while reach and not _word(side, at, step, reach - 1)[0].isalnum():
        reach -= 1
    return reach


def _glued(side: Words, at: int) -> bool:
    return 0 < at < len(side) and side.ends[at - 1] == side.starts[at]


def _word(side: Words, at: int, step: int, reach: int) -> str:
    return side.words[at + reach if step > 0 else at - 1 - reach]


def _is_of_value(side: Words, at: int, step: int, reach: int) -> bool:
    """Letters of scripts without blanks hold nothing together: all of a sentence stands side by side there."""
    word = _word(side, at, step, reach)
    return (word[0].isalnum() and not _stands_alone(word)) or word in GLUE


def _stands_alone(word: str) -> bool:
    """Whether a word is a letter of a script without blanks."""
    return len(word) <= _MARKED and category(word[0]) == "Lo"


def gaps(spans: Sequence[Sequence[Span]], reference: Words) -> list[Gap]:
    """The stretches of the reference in which any of several texts differs; those that are all but one are joined."""
    told: list[Gap] = []
    for first, last in sorted({(span.first, span.last) for one in spans for span in one}):
        if told and (first <= told[-1].last or _is_chance(reference, told[-1].last, first)):
            told[-1] = Gap(told[-1].first, max(told[-1].last, last))
        else:
            told.append(Gap(first, last))
    return told


def value(gap: Gap, spans: Sequence[Span], text: Words) -> str:
    """What a text has in a gap of the reference."""
    return text.between(*place(gap, spans, text))


def place(gap: Gap, spans: Sequence[Span], text: Words) -> tuple[int, int]:
    """Which words of a text stand in a gap of the reference: first to last - 1."""
    begin = gap.first + _shift(spans, gap.first)
    end = gap.last + _shift(spans, gap.last, through=True)
    return max(0, begin), min(len(text), end)


def _shift(spans: Sequence[Span], at: int, *, through: bool = False) -> int:
    """How far a place of the reference lies to the right in the text. through: behind what differs at it."""
    shift = 0
    for span in spans:
        if span.last < at or (span.last == at and (through or span.first < span.last)):
            shift = span.end - span.last
        elif span.first < at < span.last:  # cannot be: gaps hold spans whole
            break
    return shift
