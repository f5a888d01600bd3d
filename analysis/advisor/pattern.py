"""The sentence that a value stands in, as a regular expression: words that all texts have, and the shape of values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from analysis.advisor.align import Gap
from analysis.advisor.words import SENTENCE_END, Words

ALIKE = 0.95  # share of the values of one shape, for the shape to stand for all
MOST_LISTED = 2000  # characters of values that are listed in a pattern
_DATED = re.compile(r"(?:[^\W\d_]+\.?,\s*)?\d+(?:(?:\.? | de | of |/|-)[^\W\d_]+\.?,?(?= \d))?")
_LABEL = re.compile(r"(?:[^\W\d_]+\W+)*")
FEWEST = 3  # values that begin alike, for that to be what they are called
_RUN = re.compile(r"[^\W\d_]+|\d+|\s+|.", re.DOTALL)


class Sentence(NamedTuple):
    """pattern: from ^ or the sentence before it to its end. alone: whether it holds no other value."""

    pattern: str
    alone: bool


def sentence(
    reference: Words,
    gap: Gap,
    gaps: Sequence[Gap],
    values: Sequence[str],
    *,
    dated: bool = False,
    listed: bool = False,
) -> Sentence:
    """The sentence or line of a gap. gaps: all of the text, whose contents are left open. values: of this one, by which
    its shape is known. dated: it tells the time, so that the numbers and names beside it are of the day of the log.
    listed: somebody wrote the values one by one, and nothing else stands there."""
    fixed = _dated if dated else _fixed
    own = _listed(values) if listed and sum(map(len, set(values))) <= MOST_LISTED else _shape(values)
    begin, end = _bounds(reference, gap)
    told, at, held = [], begin, 0
    for other in sorted({(g.first, g.last) for g in gaps}):
        first, last = _place(reference, Gap(*other))
        if last < begin or first > end or first < at:
            continue
        told.append(fixed(reference.text[at:first]))
        told.append(own if other == (gap.first, gap.last) else r"[^\n]*?")
        at, held = last, held + 1
    told.append(fixed(reference.text[at:end]))
    pattern = "".join(told)
    return Sentence(rf"^{pattern}$" if _is_line(reference.text, begin, end) else pattern, held == 1)


def _place(reference: Words, gap: Gap) -> tuple[int, int]:
    """First and last character of a gap; an empty one stands before its word."""
    text = reference.text
    first = reference.starts[gap.first] if gap.first < len(reference) else len(text)
    last = reference.ends[gap.last - 1] if gap.last > gap.first else first
    return first, last


def _bounds(reference: Words, gap: Gap) -> tuple[int, int]:
    """Where the sentence or line of a gap begins and ends. One that is empty in the reference, at the beginning of a
    sentence, is a sentence of its own."""
    text = reference.text
    first, last = _place(reference, gap)
    ends = [(match.start(), match.end()) for match in SENTENCE_END.finditer(text)]
    begin = max((end for _, end in ends if end <= first), default=0)
    stop = min((start for start, _ in ends if start >= last), default=len(text))
    return (first, first) if first == last and begin == first else (begin, stop)


def _is_line(text: str, begin: int, end: int) -> bool:
    return (begin == 0 or text[begin - 1] == "\n") and (
        end == len(text) or text[end : end + 1] in "\r\n" or begin == end
    )


def _fixed(text: str) -> str:
    return r"\s+".join(map(re.escape, re.split(r"\s+", text)))


def _dated(text: str) -> str:
    """Numbers left open, and the words between them or, with a comma, in front of them: days and months."""
    told, at = [], 0
    for match in _DATED.finditer(text):
        told += [_fixed(text[at : match.start()]), "".join(map(_kind, _RUN.findall(match[0])))]
        at = match.end()
    return "".join((*told, _fixed(text[at:])))


def _listed(values: Sequence[str]) -> str:
    """One of them: the longer ones first, of which others may be the beginning."""
    return f"(?:{'|'.join(_fixed(value) for value in sorted(set(values), key=lambda one: (-len(one), one)))})"


def _shape(values: Sequence[str]) -> str:
    """Of values that nearly all have one shape: runs that are the same in all as they are, others as runs of letters or
    digits. Anything else is left open."""
    told = [value for value in values if value]
    runs = Counter(tuple(map(_kind, _RUN.findall(value))) for value in told)
    (shape, often), *_ = runs.most_common(1) or [((), 0)]
    if not told or often < ALIKE * len(told):
        if called := label(told).rstrip():
            return _fixed(called) + r"[^\n]+?"
        return r"[^\n]+?" if told and len(told) == len(values) else r"[^\n]*?"
    alike = [found for value in told if tuple(map(_kind, found := _RUN.findall(value))) == shape]
    return "".join(
        re.escape(column[0]) if len(set(column)) == 1 and not column[0][0].isdigit() else kind
        for kind, column in zip(shape, zip(*alike, strict=True), strict=True)
    )


def label(values: Sequence[str]) -> str:
    """The words that all of several values begin with: what they are called."""
    if len(values) < FEWEST:
        return ""
    first, last = min(values), max(values)  # what these begin with, all between them do
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    found = _LABEL.match(first[:same])
    return found[0] if found else ""


def _kind(run: str) -> str:
    if run[0].isdigit():
        return r"\d+"
    if run.isalpha():
        return r"[^\W\d_]+"
    return r"\s+" if run.isspace() else re.escape(run)
