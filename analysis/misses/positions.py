"""When the cache was asked for each prompt, as a place in the sequence of its events.

A server looks a prompt up and at once takes its place in the cache: the first block of a prompt that was stored for it
is the first that was not found, and everything before that event in the sequence was there to be found. Events carry no
request, so a run of blocks stored together is given to the request in flight that arrived first and has the deepest of
them in its prompt. Who stored nothing found everything, at the time when the server began on it.

The time of an event is the end of the step of the engine that made it, so what was stored in the step in which a prompt
was looked up, for requests ahead of it, was there to be found too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.misses.flights import Flights
from analysis.misses.model import NOT_TOLD, Action, Chains, Flags, Ints
from analysis.misses.numbering import Numbers
from analysis.misses.residency import Residency

SLACK_US = 100_000  # events may be told so long after the first token of the request that made them
UNTOLD_US = 60_000_000  # a request of which no first token is told may have stored blocks so long
_DEVICE = 0


@dataclass(frozen=True)
class Groups:
    """Requests by block and holder; one whose holder is not known stands under its server, past the holders.

    holder: (n,) as told or the only one of its server, else NOT_TOLD. where: (n,) the place in a group's number, which
    is key * width + where.
    """

    holder: Ints
    where: Ints
    width: int
    flights: Flights


def grouped(chains: Chains, numbers: Numbers, server: Ints) -> Groups:
    """Group the blocks of all chains. server: of each holder."""
    several = np.bincount(server, minlength=len(chains.servers))[: len(chains.servers)] > 1
    one = np.full(len(several), NOT_TOLD)
    of_chains = np.flatnonzero(server < len(several))
    one[server[of_chains]] = of_chains
    one[several] = NOT_TOLD
    holder = np.where(chains.holder >= 0, chains.holder, one[chains.server])
    where = np.where(holder >= 0, holder, len(server) + chains.server)
    width = len(server) + max(len(chains.servers), int(server.max(initial=0)) + 1)
    row = np.repeat(np.arange(chains.n), np.diff(chains.offsets))
    return Groups(holder, where, width, Flights(numbers.key * width + where[row], row, chains.n))


@dataclass(frozen=True)
class Positions:
    """Of n requests. holder: the cache that each was looked up in, NOT_TOLD where it is not known. place: of the
    lookup. own: place of the first block stored for it, NOT_TOLD for none; own_depth: of that block in its prompt.
    moment: the same by time, before anything was stored for it. blurred: a gap lies where it may have been looked up,
    so that its own first stores may be lost, too; the place is the one behind the gap, where nothing is certain.
    latest: until when it may have been looked up: `moment`, or of those that are blurred the first token. computed:
    until when it surely was computed: its first token, or if that is not told the last block stored for it, NOT_TOLD
    for neither."""

    holder: Ints
    place: Ints
    own: Ints
    own_depth: Ints
    moment: Ints
    blurred: Flags
    latest: Ints
    computed: Ints


def find(chains: Chains, numbers: Numbers, residency: Residency, server: Ints, groups: Groups) -> Positions:
    """Find them. server: of each holder."""
    holder = groups.holder
    own, own_depth, of, last = _own_stores(chains, numbers, residency, server, groups)
    computed = np.where(chains.first_token >= 0, chains.first_token, last)
    holder = np.where(holder < 0, of, holder)
    known = np.maximum(holder, 0)
    place, moment = _by_time(chains, residency, known), chains.began.copy()
    since = np.minimum(chains.arrived, chains.began)
    behind = residency.blurred(known, since, _until(chains))
    stored = np.flatnonzero(own >= 0)
    place[stored] = _before_making_room(residency, own[stored])
    moment[stored] = np.minimum(moment[stored], residency.time[own[stored]] - 1)
    blurred = (behind >= 0) & ((own < 0) | (own >= behind))
    place, own = np.where(blurred, behind, place), np.where(blurred, NOT_TOLD, own)
    place[holder < 0] = 0
    latest = np.where(blurred, np.maximum(moment, chains.first_token), moment)
    return Positions(holder, place, own, own_depth, moment, blurred, latest, computed)


def _until(chains: Chains) -> Ints:
    """Until when events may be told of what was stored for each request."""
    told = chains.first_token >= 0
    return np.where(told, chains.first_token + SLACK_US, chains.began + UNTOLD_US)


def _by_time(chains: Chains, residency: Residency, holder: Ints) -> Ints:
    """The place at the end of the first step that ended after the server began, if that was before the first token; no
    server clears its cache in a step. Where nothing tells when it began, the first token must do: what a prompt found
    stays until then."""
    told = chains.first_token >= 0
    until = np.where(told, chains.first_token, chains.began) + SLACK_US
    place = residency.place(holder, chains.began - 1)
    at = np.minimum(place, max(0, residency.size - 1))
    if residency.size:
        is_step = (place < residency.begin[holder + 1]) & (residency.action[at] <= Action.REMOVED)
        step = np.where(is_step, residency.time[at], np.iinfo(np.int64).max)
        place = np.where(step <= until, residency.place(holder, np.minimum(step, until)), place)
    unsaid = told & (chains.began <= chains.arrived)
    place[unsaid] = residency.place(holder[unsaid], chains.first_token[unsaid])
    return place


def _own_stores(
    chains: Chains, numbers: Numbers, residency: Residency, server: Ints, groups: Groups
) -> tuple[Ints, Ints, Ints, Ints]:
    """Of each request the place and depth of the first block that was stored for it, where, and when the last one was,
    NOT_TOLD for none."""
    own, own_depth, of, last = (np.full(chains.n, NOT_TOLD) for _ in range(4))
    stores, lost = residency.first_stores()
    if not len(stores):
        return own, own_depth, of, last
    owner = _first_in_flight(chains, residency, server, groups, stores, lost)
    content = numbers.content[residency.key[stores]]
    follows = numbers.parent[content[1:]] == content[:-1]
    follows &= residency.time[stores[1:]] == residency.time[stores[:-1]]
    follows &= residency.holder[stores[1:]] == residency.holder[stores[:-1]]
    begins = np.flatnonzero(np.append(True, ~follows))
    deepest = np.maximum.reduceat(np.where(owner < chains.n, np.arange(len(stores)), -1), begins)
    begins, deepest = begins[deepest >= 0], deepest[deepest >= 0]
    rows = owner[deepest]
    earliest = np.full(chains.n, len(stores))
    np.minimum.at(earliest, rows, begins)
    np.maximum.at(last, rows, residency.time[stores[begins]])
    some = np.flatnonzero(earliest < len(stores))
    own[some] = stores[earliest[some]]
    own_depth[some] = numbers.depth[content[earliest[some]]]
    of[some] = residency.holder[own[some]]
    return own, own_depth, of, last


def _first_in_flight(
    chains: Chains, residency: Residency, server: Ints, groups: Groups, stores: Ints, lost: Ints
) -> Ints:
    """The request that each stored block is given to, n for none. lost: until when each may have been lost before.

    Of a request that tells no first token nobody knows when it was over. Where the block was lost after it began, one
    that began after the loss is the likelier: the first found the block, or waits unseen.
    """

    def first(ends: Ints, some: Ints, time: Ints) -> Ints:
        """Of some stores the first request whose end is not before a time; of any rank where theirs is not known."""
        flights, holder = groups.flights.until(ends), residency.holder[some]
        group = residency.key[some] * groups.width
        owner = flights.first(group + holder, time)
        if (groups.holder < 0).any():
            owner = np.minimum(owner, flights.first(group + len(server) + server[holder], time))
        return owner

    time, never = residency.time[stores], np.iinfo(np.int64).max
    arrived, began = np.append(chains.arrived, never), np.append(chains.began, never)
    owner = first(_until(chains), stores, time)
    untold = np.append(chains.first_token < 0, False)
    passed = np.flatnonzero(untold[owner] & (lost > began[owner]))
    if len(passed):
        later = first(chains.began, stores[passed], lost[passed])
        owner[passed] = np.where(began[later] <= time[passed], later, owner[passed])
    doubtful = _doubtful(chains, residency, stores, lost, owner)
    if len(doubtful):
        owner[doubtful] = first(chains.first_token, stores[doubtful], time[doubtful])
    return np.where(arrived[owner] <= time, owner, chains.n)


def _doubtful(chains: Chains, residency: Residency, stores: Ints, lost: Ints, owner: Ints) -> Ints:
    """Which stores are given to a request that only late events make look in flight: the block was lost when it was
    over, or since it was given it; or a gap lies in between, where that may have been."""
    given = np.flatnonzero(owner < chains.n)
    key, holder, who = residency.key[stores[given]], residency.holder[stores[given]], owner[given]
    over = chains.first_token[who]
    doubt = (over >= 0) & (lost[given] > over)
    gap = residency.blurred(holder, chains.arrived[who], residency.time[stores[given]])
    doubt |= (gap >= 0) & (gap <= stores[given])
    often = np.bincount(key) > 1
    some = np.flatnonzero(often[key])
    some = some[np.lexsort((some, holder[some], key[some]))]
    same = [column[some[1:]] == column[some[:-1]] for column in (key, holder, who)]
    doubt[some[1:][np.logical_and.reduce(same)]] = True
    return given[doubt]


def _before_making_room(residency: Residency, own: Ints) -> Ints:
    """The place before what was removed, and moved to other tiers, in the same step to make room for a block."""
    stored = (residency.action == Action.STORED) & (residency.tier == _DEVICE)
    stops = stored | (residency.action > Action.REMOVED)
    stop = np.maximum.accumulate(np.where(stops, np.arange(residency.size), -1))
    begins = np.ones(residency.size, np.bool_)
    begins[1:] = (residency.time[1:] != residency.time[:-1]) | (residency.holder[1:] != residency.holder[:-1])
    step = np.maximum.accumulate(np.where(begins, np.arange(residency.size), 0))
    before = np.where(own > 0, stop[own - 1] + 1, 0)
    place: Ints = np.maximum(before, step[own])
    return place
