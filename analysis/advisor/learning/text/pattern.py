"""The sentence that a value stands in, as a regular expression: words that all texts have, and the shape of values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from analysis.advisor.learning.text.align import Gap
from analysis.advisor.rewriting.words import SURE_END, Words, says, words

ALIKE = 0.95  # share of the values of one shape, for the shape to stand for all
MOST_LISTED = 2000  # characters of values that are listed in a pattern
_NAME = r"[^\W\d_]+"
_DATED = re.compile(
    rf"(?:{_NAME}\.?,\s*)?"  # Sunday,
    rf"(?:{_NAME}\s+(?=\d\d?\.\s{_NAME},?\s\d)|{_NAME}\.?\s+(?=\d\d?,\s\d{{4}}))?"  # der 29. May 2026; Nov. 29, 2026
    rf"\d+(?:(?:\.? | de | of |/|-){_NAME}\.?,?(?= \d))?"
)
_LABEL = re.compile(r"(?:[^\W\d_]+\W+)*")
MOST_SAID = 8  # fixed words of a sentence that goes with its value: one of more says something by itself
MOST_CALLED = 5  # of these in front of or behind each of several values
LONG, SHORT = 5, 3  # letters of words that say little about what they are called, alone and in pairs
_CLOSING = {"[": "]", "(": ")", "<": ">", "{": "}", "【": "】", "«": "»"}
_BRACKETS = re.escape("".join((*_CLOSING, *_CLOSING.values())))
_OPENED = re.compile(rf"[ \t]*([{re.escape(''.join(_CLOSING))}])[^\n{_BRACKETS}]*")
_SIGN = r"[:|>\u00b7\u2013\u2014-]+(?=\s)"
_SIGNED = re.compile(rf"[ \t]*{_SIGN}(?=[ \t]+\S)")
FEWEST = 3  # values that begin alike, for that to be what they are called
_RUN = re.compile(r"[^\W\d_]+|\d+|\s+|.", re.DOTALL)


class Sentence(NamedTuple):
    """pattern: from ^ or the sentence before it to its end. alone: whether it holds no other value."""

    pattern: str
    alone: bool


class _Part(NamedTuple):
    """Of a text, characters first to last - 1: fixed, or those of a gap."""

    first: int
    last: int
    gap: Gap | None


def sentence(
    reference: Words,
    gap: Gap,
    gaps: Sequence[Gap],
    values: Sequence[str],
    *,
    dated: bool = False,
    listed: bool = False,
) -> tuple[Sentence, ...]:
    """The sentence or line of a gap, or what of it can be told apart, likeliest first; none where it says much more
    than the value. gaps: all of the text, whose contents are left open. values: of this one, by which its shape is
    known. dated: it tells the time, so that the numbers and names beside it are of the day of the log. listed: somebody
    wrote the values one by one, and nothing else stands there."""
    fixed = _dated if dated else _fixed
    own = _listed(values) if listed and sum(map(len, set(values))) <= MOST_LISTED else _shape(values)
    parts, is_head = _parts(reference, gap, gaps)
    begin, end = parts[0].first, parts[-1].last
    said = [reference.text[part.first : part.last] for part in parts if part.gap is None]
    held = len(parts) - len(said)
    if _says_more([_DATED.sub(" ", one) for one in said] if dated else said, held):
        return ()

    def told(part: _Part) -> str:
        if part.gap is None:
            return fixed(reference.text[part.first : part.last])
        return own if part.gap == gap else r"[^\n]*?"

    pattern = "".join(map(told, parts))
    alone = held == 1
    if is_head:
        return (Sentence(f"^{pattern}", alone),)
    if not _is_line(reference.text, begin, end):
        return (Sentence(pattern, alone),)
    whole, before = Sentence(f"^{pattern}$", alone), Sentence(f"^{pattern}", alone)
    # what most texts do not have is a line, or stands in front of one that they do
    return (whole, before) if begin == end and not own.endswith("?") else (whole,)


def _parts(reference: Words, gap: Gap, gaps: Sequence[Gap]) -> tuple[list[_Part], bool]:
    """The sentence of a gap in parts, and whether it is the head of a line only."""
    head = _head(reference, gap)
    begin, end = head or _bounds(reference, gap)
    if not head:  # behind the head of its line, which goes by itself
        heads = (_head(reference, other) for other in gaps)
        first = _place(reference, gap)[0]
        begin = max(
            [begin, *(_behind_blanks(reference.text, at[1]) for at in heads if at and at[1] <= first)]
        )
    told, at = list[_Part](), begin
    for other in sorted({(g.first, g.last) for g in gaps}):
        first, last = _place(reference, Gap(*other))
        if other != (gap.first, gap.last) and (last < begin or first > end or first < at):
            continue
        told += [_Part(at, first, None), _Part(first, last, Gap(*other))]
        at = last
    return [*told, _Part(at, end, None)], bool(head)


def _says_more(said: Sequence[str], held: int) -> bool:
    """Whether what stands between values is more than what they are called."""
    each = [says(one) for one in said]
    return sum(each) > MOST_SAID and (held == 1 or max(each) > MOST_CALLED)


def referred_to(reference: Words, gap: Gap, gaps: Sequence[Gap], values: Sequence[str]) -> bool:
    """Whether what a value is called stands elsewhere in the text, too: two words of it in a row, or a long one. It is
    called by the words in front of it in its sentence, and behind it where none are."""
    parts, _ = _parts(reference, gap, gaps)
    own = next(at for at, part in enumerate(parts) if part.gap == gap)
    before, behind = (
        _told(reference.text[part.first : part.last]) for part in (parts[own - 1], parts[own + 1])
    )
    called = before or _told(label([value.lstrip("".join(_CLOSING)) for value in values if value])) or behind
    long = {word for word in called if len(word) > LONG}
    pairs = {pair for pair in pairwise(called) if max(map(len, pair)) > SHORT}
    rest = reference.text[: parts[0].first], reference.text[parts[-1].last :]
    return any(long & set(one) or pairs & set(pairwise(one)) for one in map(_told, rest))


def _told(text: str) -> list[str]:
    """Its words of letters, as they are compared."""
    return [word.casefold() for word in words(text).words if word[:1].isalpha()]


def _head(reference: Words, gap: Gap) -> tuple[int, int] | None:
    """Where a value stands at the beginning of a line and is set apart from what follows, by brackets or by a sign:
    from the beginning of the line to the end of these."""
    text, (first, last) = reference.text, _place(reference, gap)
    begin = text.rfind("\n", 0, first) + 1
    if first == last:
        return None
    if opened := _OPENED.fullmatch(text, begin, first):
        closing = re.compile(
            rf"[^\n{_BRACKETS}]*{re.escape(_CLOSING[opened[1]])}(?:[ \t]*{_SIGN})?(?=[ \t]*[^\s])"
        )
        closed = closing.match(text, last)
    elif not text[begin:first].strip() and any(map(str.isdigit, text[first:last])):
        closed = _SIGNED.match(text, last)
    else:
        return None
    return (begin, closed.end()) if closed else None


def _behind_blanks(text: str, at: int) -> int:
    return len(text) - len(text[at:].lstrip(" \t"))


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
    ends = [(match.start(), match.end()) for match in SURE_END.finditer(text)]
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
    if opened := _in_brackets(told):
        inner = [value[1:-1] for value in values if value]
        return re.escape(opened) + _shape(inner) + re.escape(_CLOSING[opened])
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


def _in_brackets(told: Sequence[str]) -> str:
    """The bracket that opens all of these values and is closed at their ends."""
    opened = {value[0] for value in told}
    closing = _CLOSING.get(next(iter(opened), "")) if len(opened) == 1 else None
    return opened.pop() if closing and all(len(value) > 2 and value[-1] == closing for value in told) else ""


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
