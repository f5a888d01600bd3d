"""What the events say of single blocks of a prompt: who held them, since when, and how they were lost. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.misses.model import NOT_TOLD, Action, Events
from analysis.misses.stored import EXPIRED, stays
from cachemodel.causes import Eviction

_LOST = {
    int(Action.REMOVED): Eviction.CAPACITY.value,
    EXPIRED: Eviction.EXPIRY.value,
    int(Action.CLEARED): Eviction.CLEAR.value,
    int(Action.RESTART): Eviction.RESTART.value,
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One stay of a block in a cache. since, until: microseconds, until NOT_TOLD while it lasts. lost: a sub-cause,
    empty where a gap hides it or where it was not lost."""

    holder: int
    tier: int
    isolation: int
    since: int
    until: int
    lost: str


class Histories:
    """The stays of blocks, to be asked for by content."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._stays = stays(events)
        self._content = events.content[self._stays.event]
        self._order = np.argsort(self._content, kind="stable")
        self._sorted = self._content[self._order]
        self._known: dict[tuple[int, int], list[Seen]] = {}

    def of(self, content: int, moment: int) -> list[Seen]:
        """The stays of a block that began before a moment, in their order; those that follow each other without a break
        are one."""
        if (known := self._known.get((content, moment))) is not None:
            return known
        first, last = (
            np.searchsorted(self._sorted, np.uint64(content), "left"),
            np.searchsorted(self._sorted, np.uint64(content), "right"),
        )
        found: list[Seen] = []
        for at in np.sort(self._order[first:last]).tolist():
            seen = self._seen(at)
            if seen.since > moment:
                continue
            if (old := _continued(found, seen)) is not None:
                found[old] = Seen(
                    seen.holder, seen.tier, seen.isolation, found[old].since, seen.until, seen.lost
                )
            else:
                found.append(seen)
        self._known[(content, moment)] = found
        return found

    def _seen(self, at: int) -> Seen:
        events, held = self._events, self._stays
        event, end, why = int(held.event[at]), int(held.end[at]), int(held.why[at])
        ended = end < len(events.time)
        until = int(events.time[end]) if ended else NOT_TOLD
        lost = _LOST.get(why, "") if ended else ""
        isolation = int(events.isolation[event])
        return Seen(int(held.holder[at]), int(held.tier[at]), isolation, int(events.time[event]), until, lost)


def held_at(seen: Seen, moment: int) -> bool:
    """Whether a stay lasted at a moment, for all that is known."""
    return seen.since <= moment and (seen.until == NOT_TOLD or seen.until > moment)


def _continued(found: list[Seen], seen: Seen) -> int | None:
    """Which of the stays goes on in another: stored again while it was held."""
    for at in range(len(found) - 1, -1, -1):
        old = found[at]
        if (old.holder, old.tier, old.isolation) == (seen.holder, seen.tier, seen.isolation):
            return at if old.until == seen.since and not old.lost else None
    return None
