"""Who had which block in its prompt, in order of arrival: what was being computed, and who stored what."""

from __future__ import annotations

import numpy as np

from analysis.misses.model import Flags, Ints
from analysis.misses.numbering import distinct


class Flights:
    """m pairs of a group (a block, on a holder) and the row of one of n requests that has it in its prompt."""

    def __init__(self, group: Ints, row: Ints, n: int) -> None:
        self.n = max(1, n)
        self.pairs = group * self.n + row
        self.pairs.sort()
        self.group = self.pairs // self.n

    def firsts(self) -> tuple[Ints, Ints]:
        """Each group and the first row that has it."""
        new = np.ones(len(self.group), np.bool_)
        new[1:] = self.group[1:] != self.group[:-1]
        return self.group[new], self.pairs[new] - self.group[new] * self.n

    def until(self, end: Ints) -> Until:
        """The same, given until when each of the n requests is taken to compute; -1: not at all."""
        return Until(self, end)


class Until:
    """Requests by what they have in their prompts and until when they compute."""

    def __init__(self, flights: Flights, end: Ints) -> None:
        self._flights, self._ends = flights, distinct(end)
        self._scale = len(self._ends) + 1
        row = flights.pairs - flights.group * flights.n
        # the latest end so far within each group: those of a later group are greater than all of an earlier one
        self._latest = flights.group * self._scale + np.searchsorted(self._ends, end)[row]
        np.maximum.accumulate(self._latest, out=self._latest)

    def running(self, group: Ints, row: Ints, time: Ints) -> Flags:
        """Whether some request ahead of `row` had the group and was not done at a time."""
        pairs = self._flights.pairs
        if not len(pairs):
            return np.zeros(len(group), np.bool_)
        ahead = np.searchsorted(pairs, group * self._flights.n + row) - 1
        busy: Flags = self._latest[ahead] >= group * self._scale + np.searchsorted(self._ends, time)
        return busy & (ahead >= 0)

    def first(self, group: Ints, time: Ints) -> Ints:
        """The row of the first request of the group that was not done at a time, n for none."""
        flights = self._flights
        none = np.full(len(group), flights.n)
        if not len(flights.pairs):
            return none
        at = np.searchsorted(self._latest, group * self._scale + np.searchsorted(self._ends, time))
        there = np.minimum(at, len(flights.pairs) - 1)
        found = (at < len(flights.pairs)) & (flights.group[there] == group)
        return np.where(found, flights.pairs[there] - group * flights.n, none)
