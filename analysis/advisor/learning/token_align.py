"""Token ids of one template laid beside each other: where they differ from a reference, and what stands there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rapidfuzz.distance import Indel

MIN_ANCHOR = 8  # tokens that two prompts have in common, below which it is chance between differences
LONG = 16  # tokens that are the same in another order, from which on that is none by chance
SAME = 0.9  # of their tokens
MOST_JOINED = 64  # differences in a row that may be one of order

Ids = tuple[int, ...]


class Span(NamedTuple):
    """Tokens first to last - 1 of the reference, and what a prompt has there: tokens begin to end - 1."""

    first: int
    last: int
    begin: int
    end: int


@dataclass(frozen=True)
class Aligned:
    """A prompt beside the reference. spans: where it differs, in order; what stands between them both have. size:
    tokens of the reference."""

    ids: Ids
    spans: Sequence[Span]
    size: int

    def value(self, first: int, last: int) -> Ids:
        """What it has in the place of tokens first to last - 1 of the reference, within or beside which it differs."""
        within = [s for s in self.spans if first <= s.first and s.last <= last]
        before = [s for s in self.spans if s.last <= first and s not in within]
        begin = first + sum(map(_longer, before))
        return self.ids[begin : begin + last - first + sum(map(_longer, within))]

    def same_from(self, at: int) -> int:
        """Tokens of the reference from this one on that it has, too."""
        return self.size - at - sum(s.last - max(s.first, at) for s in self.spans if s.last > at)


def _longer(span: Span) -> int:
    """By how much the prompt is longer there than the reference."""
    return (span.end - span.begin) - (span.last - span.first)


def align(reference: Ids, ids: Ids) -> Aligned:
    """A prompt beside the reference. Differences of which one takes away what another adds are one, of order."""
    spans = [
        Span(code.src_start, code.src_end, code.dest_start, code.dest_end)
        for code in Indel.opcodes(reference, ids)
        if code.tag != "equal"
    ]
    near: list[Span] = []
    for span in spans:
        if near and span.first - near[-1].last < MIN_ANCHOR:
            near[-1] = Span(near[-1].first, span.last, near[-1].begin, span.end)
        else:
            near.append(span)
    return Aligned(ids, _reordered(reference, ids, near), len(reference))


def _reordered(reference: Ids, ids: Ids, spans: Sequence[Span]) -> list[Span]:
    told: list[Span] = []
    at = 0
    while at < len(spans):
        one, through = spans[at], at
        gone, come = reference[one.first : one.last], ids[one.begin : one.end]
        for other in range(at + 1, min(len(spans), at + MOST_JOINED)):
            span = spans[other]
            gone, come = gone + reference[span.first : span.last], come + ids[span.begin : span.end]
            if same_tokens(gone, come):
                one, through = Span(one.first, span.last, one.begin, span.end), other
        told.append(one)
        at = through + 1
    return told


def same_tokens(first: Ids, second: Ids) -> bool:
    """Whether two runs hold the same tokens, in whatever order."""
    most = max(len(first), len(second))
    if min(len(first), len(second)) < max(LONG, SAME * most):
        return False
    return sum((Counter(first) & Counter(second)).values()) >= SAME * most


def gaps(told: Iterable[Aligned]) -> list[tuple[int, int]]:
    """The stretches of the reference, first to last - 1, in which any differs; those that are nearly one are joined."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted({span[:2] for one in told for span in one.spans}):
        if joined and first - joined[-1][1] < MIN_ANCHOR:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined
