"""Parallel ranks of one engine that each tell the same number: which of them is read.

Tensor-parallel ranks do the same work in step, so that their token counters are copies and a sum over them counts each
token once a rank. The lowest rank of an engine is read; the others are stored under their raw name only, so that
nobody who asks for the metric adds them up. Which rank is the lowest is told by everything a server exposes and not by
one family: a family of the lowest rank may appear a scrape later than that of another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

Pairs = tuple[tuple[str, str], ...]
Place = tuple[tuple[int, str], ...]


class Ranks(NamedTuple):
    """copies: labels of ranks that repeat each other, outermost first; apart: labels of ranks that do not."""

    copies: tuple[str, ...]
    apart: tuple[str, ...]

    def engine(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """What tells one group of copies from another."""
        return tuple(labels.get(label, "") for label in self.apart)

    def place(self, labels: Mapping[str, str]) -> Place:
        """A rank's place in its group; empty for a series that belongs to no rank."""
        if not any(label in labels for label in self.copies):
            return ()
        texts = (labels.get(label, "") for label in self.copies)
        return tuple((len(text), text) for text in texts)  # orders "2" before "10"


Leaders = Mapping[tuple[Ranks, tuple[str, ...]], Place]


def leaders(rules: Collection[Ranks], seen: Iterable[Pairs]) -> Leaders:
    """The lowest rank of each group among the labels of all series a server exposes."""
    lowest: dict[tuple[Ranks, tuple[str, ...]], Place] = {}
    for pairs in seen if rules else ():
        labels = dict(pairs)
        for rule in rules:
            if place := rule.place(labels):
                key = rule, rule.engine(labels)
                lowest[key] = min(lowest.get(key, place), place)
    return lowest


def is_copy(rule: Ranks, pairs: Pairs, lowest: Leaders) -> bool:
    """Whether a lower rank tells the number of this series."""
    labels = dict(pairs)
    place = rule.place(labels)
    return bool(place) and place != lowest.get((rule, rule.engine(labels)), place)
