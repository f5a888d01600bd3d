"""What each cache held at any moment, as far as its events tell.

Events stand in sequences, one a holder, one after the other; a *place* is an index into them, and stands for the moment
just before that event. What is not known after a gap, or from before the events begin, may be held, if it had been sent
to that server by then. A look-up between the last event before a gap and the row that tells of the gap sees what one
after it sees.

"Never stored" is certain only where the events of a server are seen to speak of the blocks of the prompt: they told of
its first one, under the same key, at some time, and no block of unknown content was stored since it was sent first.
Otherwise it may have been stored, under a name that nobody here knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from analysis.misses.model import NOT_TOLD, Action, Chains, Events, Flags, Ints
from analysis.misses.numbering import distinct
from cachemodel.causes import Eviction

NEVER = np.iinfo(np.int64).max
_ALONE_US = 1_000_000  # a removal without a store that near made room for nobody
_DEVICE, _HOST = 0, 1
_CAUSES = list(Eviction)
_CAPACITY, _EXPIRY = _CAUSES.index(Eviction.CAPACITY), _CAUSES.index(Eviction.EXPIRY)
_MARK_CAUSE = {
    Action.CLEARED: _CAUSES.index(Eviction.CLEAR),
    Action.RESTART: _CAUSES.index(Eviction.RESTART),
}


class Look(NamedTuple):
    """Of each block asked for: held for sure, maybe held, and for sure never stored since it was sent first."""

    held: Flags
    maybe: Flags
    never: Flags


class End(NamedTuple):
    """When blocks were lost last: time, NOT_TOLD where nothing tells, the index of the cause in Eviction, and whether
    they may have been there and lost again since, unseen."""

    time: Ints
    cause: Ints
    unsure: Flags


@dataclass(frozen=True)
class _Marks:
    """Places of some marks, sorted."""

    at: Ints

    def last(self, place: Ints, begin: Ints) -> Ints:
        """The last one in [begin, place), -1 for none."""
        if not len(self.at):
            return np.full(len(place), -1)
        index = np.searchsorted(self.at, place) - 1
        found = self.at[index]
        return np.where((index >= 0) & (found >= begin), found, -1)

    def next(self, place: Ints) -> Ints:
        """The first one after a place, or a place past the end."""
        return np.append(self.at, NEVER)[np.searchsorted(self.at, place, side="right")]


class Residency:
    """The histories of all holders. begin: (holders + 1,) where the sequence of each begins."""

    def __init__(self, events: Events, key: Ints, root: Ints) -> None:
        """key: (e,) number of each event's block, -1 where it concerns nobody. root: by key, the first of its chain."""
        holders = len(events.holders)
        order = np.argsort(events.holder, kind="stable") if holders > 1 else np.arange(len(events.time))
        self.holder, self.action = events.holder[order], events.action[order]
        self.tier, self.key = events.tier[order], key[order]
        self.begin = np.searchsorted(self.holder, np.arange(holders + 1))
        self.time = _never_back(events.time[order], self.begin)
        self.joined = np.where(events.joined == NOT_TOLD, NEVER, events.joined)
        self.blind = events.blind if len(events.blind) else np.full(holders, NOT_TOLD)
        self.size = len(order)

        self._times = distinct(self.time)
        self._by_time = self.holder * (len(self._times) + 1) + np.searchsorted(self._times, self.time)
        of_block = (self.action == Action.STORED) | (self.action == Action.REMOVED)
        tiers = distinct(self.tier[of_block]).tolist()
        self.tiers = [_DEVICE, *(tier for tier in tiers if tier != _DEVICE)]
        self._has = {tier: np.zeros(holders, np.bool_) for tier in self.tiers}
        self._has[_DEVICE][:] = True
        self._packed = {}
        for tier in self.tiers:
            rows = np.flatnonzero(of_block & (self.tier == tier) & (self.key >= 0))
            self._has[tier][self.holder[of_block & (self.tier == tier)]] = True
            packed = (self.key[rows] * (self.size + 1) + rows) * 2 + (self.action[rows] == Action.STORED)
            packed.sort()
            self._packed[tier] = packed
        self._resets = {tier: self._marks(*_empties(tier)) for tier in self.tiers}
        self._blurs = {tier: self._marks(*_blurs(tier)) for tier in self.tiers}
        self._gaps = self._marks(Action.GAP)
        told = np.where(self.action == Action.GAP, self.size, np.arange(self.size))
        self._past = np.append(np.minimum.accumulate(told[::-1])[::-1], self.size)
        names: dict[str, int] = {}
        self._server = np.array([names.setdefault(name, len(names)) for name, _ in events.holders], np.int64)
        self._root, self._servers = root, max(1, len(names))
        some = np.flatnonzero(self.key >= 0)
        some = some[root[self.key[some]] == self.key[some]]
        self._matched = distinct(self.key[some] * self._servers + self._server[self.holder[some]])

    def place(self, holder: Ints, time: Ints) -> Ints:
        """The place after all that a holder told of up to a time, that time included; past a gap that follows."""
        rank = np.searchsorted(self._times, time, side="right")
        place = np.searchsorted(self._by_time, holder * (len(self._times) + 1) + rank)
        return self.past_gaps(holder, place)

    def past_gaps(self, holder: Ints, place: Ints) -> Ints:
        """A place, or the one behind the gaps that follow it at once."""
        if not len(self._gaps.at):
            return place
        past: Ints = np.minimum(self._past[place], np.maximum(place, self.begin[holder + 1]))
        return past

    def blurred(self, holder: Ints, since: Ints, until: Ints) -> Ints:
        """The place behind the last gap that may hide what happened in a span of time, -1 for none."""
        gaps = self._gaps.at
        if not len(gaps):
            return np.full(len(holder), -1)
        scale = len(self._times) + 1
        before = np.maximum(gaps - 1, self.begin[self.holder[gaps]])
        begins = np.where(before < gaps, self._by_time[before], self.holder[gaps] * scale)
        last = np.searchsorted(begins, holder * scale + np.searchsorted(self._times, until, side="right"))
        gap = gaps[np.maximum(last - 1, 0)]
        meets = (last > 0) & (self.holder[gap] == holder) & (self.time[gap] >= since)
        return np.where(meets, self.past_gaps(holder, gap), -1)

    def missing(self, holder: Ints, place: Ints) -> Ints:
        """Until when events ahead of a place may be missing; NOT_TOLD: none are, or the holder has none at all."""
        gap = self._gaps.last(place, self.begin[holder])
        time = np.where(gap >= 0, self.time[gap] if self.size else NOT_TOLD, self.joined[holder])
        return np.where(time == NEVER, NOT_TOLD, time)

    def last(self, tier: int, key: Ints, holder: Ints, place: Ints) -> tuple[Ints, Flags]:
        """The last event of a block on a tier before a place, -1 for none, and whether it was stored by it."""
        packed, scale = self._packed[tier], self.size + 1
        if not len(packed):
            return np.full(len(key), -1), np.zeros(len(key), np.bool_)
        base = key * scale
        found = packed[np.searchsorted(packed, (base + place) * 2) - 1]
        at = (found >> 1) - base
        none = (at < self.begin[holder]) | (at >= place)
        at[none] = -1
        return at, (found & 1).astype(np.bool_) & ~none

    def next(self, tier: int, key: Ints, holder: Ints, place: Ints) -> tuple[Ints, Flags]:
        """The first event of a block on a tier from a place on, -1 for none, and whether it was stored by it."""
        packed, scale = self._packed[tier], self.size + 1
        if not len(packed):
            return np.full(len(key), -1), np.zeros(len(key), np.bool_)
        base = key * scale
        found = np.append(packed, NEVER)[np.searchsorted(packed, (base + place) * 2)]
        at = (found >> 1) - base
        none = at >= self.begin[holder + 1]
        at[none] = -1
        return at, (found & 1).astype(np.bool_) & ~none

    def next_reset(self, place: Ints) -> Ints:
        """Where a device is emptied next, from a place on; a place past the end for never."""
        return self._resets[_DEVICE].next(place - 1)

    def held(self, key: Ints, holder: Ints, place: Ints, tiers: list[int] | None = None) -> Flags:
        """Whether blocks are held for sure, on one of some tiers (all)."""
        held = np.zeros(len(key), np.bool_)
        for tier in self.tiers if tiers is None else tiers:
            at, stored = self.last(tier, key, holder, place)
            if len(self._resets[tier].at) or len(self._gaps.at) or len(self._blurs[tier].at):
                begin = self.begin[holder]
                stored &= at > self._resets[tier].last(place, begin)
                stored &= at > np.maximum(self._gaps.last(place, begin), self._blurs[tier].last(place, begin))
            held |= stored
        return held

    def look(self, key: Ints, holder: Ints, place: Ints, first: Ints, arrived: Ints) -> Look:
        """Look blocks up. first: when each was first sent to the holder's server; arrived: of who asks."""
        begin = self.begin[holder]
        gap = self._gaps.last(place, begin)
        gap_time = np.where(gap >= 0, self.time[gap] if self.size else NEVER, self.joined[holder])
        held, maybe, told = (np.zeros(len(key), np.bool_) for _ in range(3))
        for tier in self.tiers:
            at, stored = self.last(tier, key, holder, place)
            reset, blur = self._resets[tier].last(place, begin), self._blurs[tier].last(place, begin)
            told |= at >= 0
            held |= stored & (at > np.maximum(reset, np.maximum(gap, blur)))
            maybe |= stored & (at > reset)
            maybe |= (
                self._has[tier][holder]
                & (gap >= reset)
                & (at <= gap)
                & (first < np.minimum(gap_time, arrived))
            )
        untold = ~told & (first < arrived)
        known = untold & (first > self.blind[holder])
        asked = np.flatnonzero(known)
        known[asked] = self._speaks_of(key[asked], holder[asked])
        never: Flags = known & (first >= gap_time)
        # behind a gap it was stored and lost, or never stored: that may be not loaded
        return Look(held, maybe | held | (untold & ~never), never)

    def _speaks_of(self, key: Ints, holder: Ints) -> Flags:
        """Whether the events of a holder's server ever told of the first block of a block's chain under its key."""
        wanted = self._root[key] * self._servers + self._server[holder]
        place = np.minimum(np.searchsorted(self._matched, wanted), max(0, len(self._matched) - 1))
        if not len(self._matched):
            return np.zeros(len(key), np.bool_)
        spoken: Flags = (self._matched[place] == wanted) & (self._root[key] >= 0)
        return spoken

    def ended(self, key: Ints, holder: Ints, place: Ints, first: Ints, arrived: Ints) -> End:
        """When and why blocks that are not held were lost last. first: when each was first sent to that server;
        arrived: of who asks."""
        when, cause = np.full(len(key), -1), np.zeros(len(key), np.int64)
        gap = self._gaps.last(place, self.begin[holder])
        gap_time = np.where(gap >= 0, self.time[gap] if self.size else NEVER, self.joined[holder])
        unsure = first < np.minimum(gap_time, arrived)
        for tier in self.tiers:
            at, stored = self.last(tier, key, holder, place)
            reset = self._resets[tier].next(at)
            end = np.where(stored, np.where(reset < place, reset, -1), at)
            later = end > when
            when = np.where(later, end, when)
            cause = np.where(later, self._cause[end] if self.size else 0, cause)
            unsure = np.where(later, gap > at, unsure)
        time = np.where(when >= 0, self.time[when] if self.size else 0, NOT_TOLD)
        return End(time, cause, unsure)

    def first_stores(self) -> tuple[Ints, Ints]:
        """Places of the events that stored a block on a device that did not have it, in order, and until when each of
        the blocks may have been lost there: it was removed, all were, or events are missing; NOT_TOLD for none."""
        packed, scale = self._packed[_DEVICE], self.size + 1
        key = (packed >> 1) // scale
        at = (packed >> 1) - key * scale
        stored = (packed & 1).astype(np.bool_)
        same = (key[1:] == key[:-1]) & (self.holder[at[1:]] == self.holder[at[:-1]])
        again, lost = np.zeros(len(packed), np.bool_), np.full(len(packed), NOT_TOLD)
        again[1:] = stored[:-1] & same
        for marks in (self._resets[_DEVICE], self._gaps):
            again[1:] &= marks.next(at[:-1]) > at[1:]
        lost[1:] = np.where(~stored[:-1] & same, self.time[at[:-1]], NOT_TOLD)
        first = np.flatnonzero(stored & ~again)
        first = first[np.argsort(at[first])]
        place, lost = at[first], lost[first]
        for marks in (self._resets[_DEVICE], self._gaps):
            mark = marks.last(place, self.begin[self.holder[place]])
            some = np.flatnonzero(mark >= 0)
            lost[some] = np.maximum(lost[some], self.time[mark[some]])
        return place, lost

    @cached_property
    def _cause(self) -> Ints:
        """Index in Eviction of why each event took something away; NOT_TOLD where what it made room for may be lost."""
        causes = np.full(self.size, _CAPACITY)
        for action, cause in _MARK_CAUSE.items():
            causes[self.action == action] = cause
        stores = np.flatnonzero(self.action == Action.STORED)
        for begin, end in zip(self.begin[:-1].tolist(), self.begin[1:].tolist(), strict=True):
            removed = begin + np.flatnonzero(self.action[begin:end] == Action.REMOVED)
            stored = self.time[stores[np.searchsorted(stores, begin) : np.searchsorted(stores, end)]]
            after = np.searchsorted(stored, self.time[removed] - _ALONE_US)
            nearest = np.append(stored, NEVER)[after]
            alone = removed[nearest > self.time[removed] + _ALONE_US]
            since, until = self.time[alone] - _ALONE_US, self.time[alone] + _ALONE_US
            unseen = self.blurred(self.holder[alone], since, until) >= 0
            causes[alone] = np.where(unseen, NOT_TOLD, _EXPIRY)
        return causes

    def _marks(self, *actions: int) -> _Marks:
        return _Marks(np.flatnonzero(np.isin(self.action, actions)))


def with_silent(chains: Chains, events: Events) -> tuple[Events, Ints]:
    """Events with a holder that tells nothing for each server that has none, and the server of each holder: an index
    of the chains' servers, or past them for a server that has none of these chains."""
    told = {server for server, _ in events.holders}
    silent = [server for server in chains.servers if server not in told]
    holders = (*events.holders, *((server, 0) for server in silent))
    names = {server: number for number, server in enumerate(chains.servers)}
    for server, _ in holders:
        names.setdefault(server, len(names))
    joined = np.concatenate([events.joined, np.full(len(silent), NOT_TOLD)])
    blind = events.blind if len(events.blind) else np.full(len(events.holders), NOT_TOLD)
    whole = Events(
        holders,
        events.time,
        events.holder,
        events.tier,
        events.action,
        events.content,
        events.isolation,
        joined,
        np.concatenate([blind, np.full(len(silent), NOT_TOLD)]),
    )
    return whole, np.array([names[server] for server, _ in holders], np.int64)


def _empties(tier: int) -> tuple[Action, ...]:
    """Marks after which nothing is left on a tier. A server that clears its cache says so of its device only, and what
    is remote outlives its process."""
    return {_DEVICE: (Action.CLEARED, Action.RESTART), _HOST: (Action.RESTART,)}.get(tier, ())


def _blurs(tier: int) -> tuple[Action, ...]:
    """Marks after which what was held on a tier may be lost."""
    return {_DEVICE: (), _HOST: (Action.CLEARED,)}.get(tier, (Action.CLEARED, Action.RESTART))


def _never_back(time: Ints, begin: Ints) -> Ints:
    out = time.copy()
    for first, last in zip(begin[:-1].tolist(), begin[1:].tolist(), strict=True):
        np.maximum.accumulate(out[first:last], out=out[first:last])
    return out
