"""Differences that run over the end of a line: a value at the end of one, and what varies by itself in the next.

Between a clock and the name of one of four assistants stands nothing that all prompts have but the line break. Laid
beside each other they are one difference, which behaves like a text that was looked up; line by line they are two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analysis.advisor.learning.behaviour import Seen
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.text.align import Gap, Span, place
from analysis.advisor.learning.text.model import Sample
from analysis.advisor.rewriting.words import Words

Found = tuple[Sample, Words, Sequence[Span]]
"""A text of a place, its words, and where it differs from the reference."""

VALUES = frozenset(
    (Cause.CLOCK, Cause.NONCE, Cause.COUNTER, Cause.MEASUREMENT, Cause.SESSION_VALUE, Cause.USER_VALUE)
)


def by_line(
    gaps: Sequence[Gap], found: Sequence[Found], reference: Words, cause: Callable[[Sequence[Seen]], Cause]
) -> tuple[list[Gap], list[Found]]:
    """Gaps of which all texts have the end of a line are two, where what stands before that end is a value and the
    whole is none. cause: of values."""
    told, texts = list[Gap](), list(found)
    for gap in gaps:
        cut = _line_end(reference, gap.first, gap.last)
        places = [place(gap, spans, text) for _, text, spans in texts]
        cuts = [_line_end(text, *at) for (_, text, _), at in zip(texts, places, strict=True)]
        whole = [text.between(*at) for (_, text, _), at in zip(texts, places, strict=True)]
        if cut is None or not all(at is not None or not said for at, said in zip(cuts, whole, strict=True)):
            told.append(gap)
            continue
        ends = [first if at is None else at for at, (first, _) in zip(cuts, places, strict=True)]
        heads = [
            text.between(first, end)
            for (_, text, _), (first, _), end in zip(texts, places, ends, strict=True)
        ]
        if cause(_seen(texts, heads)) not in VALUES or cause(_seen(texts, whole)) in VALUES:
            told.append(gap)
            continue
        told += [Gap(gap.first, cut), Gap(cut, gap.last)]
        texts = [
            (sample, text, _cut(spans, gap, cut, first, end, last))
            for (sample, text, spans), (first, last), end in zip(texts, places, ends, strict=True)
        ]
    return told, texts


def _line_end(side: Words, first: int, last: int) -> int | None:
    """The word of first to last - 1 that begins a line, None where none of them but the first does."""
    return next(
        (at for at in range(first + 1, last) if "\n" in side.text[side.ends[at - 1] : side.starts[at]]), None
    )


def _seen(texts: Sequence[Found], values: Sequence[str]) -> list[Seen]:
    return [
        Seen(sample.request, value, sample.time, sample.session, sample.user)
        for (sample, _, _), value in zip(texts, values, strict=True)
    ]


def _cut(spans: Sequence[Span], gap: Gap, cut: int, first: int, end: int, last: int) -> list[Span]:
    """The spans of a text with those of a gap as two, on either side of the line's end."""
    before = [
        span for span in spans if span.last < gap.first or (span.last == gap.first and span.first < span.last)
    ]
    behind = [span for span in spans if span.first >= gap.last and span not in before]
    return [*before, Span(gap.first, cut, first, end), Span(cut, gap.last, end, last), *behind]
