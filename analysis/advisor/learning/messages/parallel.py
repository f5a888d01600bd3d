"""Results of calls that were made at once: in which order they are sent, a conversation does not say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.advisor.learning.messages.examples import key
from cachemodel.prompts.model import Kind, Part


def as_before(theirs: Sequence[Part], ours: Sequence[Part]) -> tuple[Sequence[Part], int | None]:
    """Our parts with the results of each turn in the order in which the request before had them, and the first part
    that stood elsewhere; None where none did."""
    known = {tuple(sorted(map(key, run))): run for _, run in _runs(theirs)}
    told, first = list(ours), None
    for begin, run in _runs(ours):
        before = known.get(tuple(sorted(map(key, run))))
        if before is not None and list(map(key, before)) != list(map(key, run)):
            told[begin : begin + len(run)] = before
            first = begin if first is None else first
    return told, first


def _runs(parts: Sequence[Part]) -> Iterator[tuple[int, Sequence[Part]]]:
    """Results that stand side by side, two or more, and where they begin."""
    begin = 0
    for at in range(len(parts) + 1):
        if at < len(parts) and parts[at].kind is Kind.RESULT:
            continue
        if at - begin > 1:
            yield begin, parts[begin:at]
        begin = at + 1
