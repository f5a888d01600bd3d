"""How much of each prompt its own cache held, and which blocks beyond that had ever been known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.misses.history import History
from analysis.misses.model import NOT_TOLD, Chains, Flags, Ints
from analysis.misses.numbering import Numbers, distinct, leading
from analysis.misses.positions import Positions
from analysis.misses.residency import Look, Residency
from analysis.misses.survey import expand

_AT_ONCE = 1 << 20  # blocks


class Runs:
    """Leading runs of blocks, over the histories of the caches."""

    def __init__(
        self, chains: Chains, numbers: Numbers, residency: Residency, history: History, positions: Positions
    ) -> None:
        self.chains, self.numbers, self.residency = chains, numbers, residency
        self.history, self.positions = history, positions
        self.lengths = np.diff(chains.offsets)

    def held(self, rows: Ints, place: Ints, own: Ints, shown: Ints | None = None) -> Ints:
        """How many leading blocks the cache of each of some requests held for sure. place: of the lookup; own: of the
        first block stored for it, -1 for none; shown: how many blocks count if they may have been held, too."""
        run = np.zeros(len(rows), np.int64)
        known = np.flatnonzero(self.positions.holder[rows] >= 0)
        ends = np.cumsum(self.lengths[rows[known]])
        parts = np.searchsorted(ends, np.arange(_AT_ONCE, (ends[-1] if len(ends) else 0) + 1, _AT_ONCE))
        for part in np.split(known, distinct(parts)):
            if len(part):
                run[part] = self._held(
                    rows[part], place[part], own[part], None if shown is None else shown[part]
                )
        return run

    def _held(self, rows: Ints, place: Ints, own: Ints, shown: Ints | None) -> Ints:
        begins, ends = self.chains.offsets[rows], self.chains.offsets[rows + 1]
        which, blocks = expand(begins, ends)
        key, holder = self.numbers.key[blocks], self.positions.holder[rows]
        held = self.residency.held(key, holder[which], place[which])
        offsets = np.cumsum(ends - begins) - (ends - begins)

        # the block that was stored for a request was not on the device by then, whenever it was removed
        stored = np.flatnonzero((own >= 0) & (self.positions.own_depth[rows] < ends - begins))
        at = offsets[stored] + self.positions.own_depth[rows[stored]]
        device, *others = self.residency.tiers
        there = self.residency.held(key[at], holder[stored], own[stored], [device])
        held[at] = there | self.residency.held(key[at], holder[stored], place[stored], others)
        if shown is not None:
            held |= self._maybe(rows[which], blocks, place[which]) & (blocks - begins[which] < shown[which])
        return leading(held, offsets, offsets + (ends - begins))

    def _maybe(self, row: Ints, blocks: Ints, place: Ints) -> Flags:
        """Whether each block of a chain may have been held, events being missing."""
        key, holder = self.numbers.key[blocks], self.positions.holder[row]
        missing = np.flatnonzero(self.residency.missing(holder, place) != NOT_TOLD)
        key, row, holder, place = key[missing], row[missing], holder[missing], place[missing]
        first = self.history.first(key, self.chains.server[row])
        maybe = np.zeros(len(blocks), np.bool_)
        maybe[missing] = self.residency.look(key, holder, place, first, self.chains.arrived[row]).maybe
        return maybe


@dataclass(frozen=True)
class Beyond:
    """The blocks beyond what each request's own cache held for sure, as far as they had ever been sent or stored.

    begins: (n,) blocks held. ends: (n,) blocks known. row, depth, key: (t,) of each block in between, request by
    request; offsets: (n + 1,) into these.
    """

    begins: Ints
    ends: Ints
    offsets: Ints
    row: Ints
    depth: Ints
    key: Ints

    def run(self, served: Flags) -> Ints:
        """How many blocks (n,) of each prompt lead, given which of the t blocks are served."""
        return self.begins + leading(served, self.offsets[:-1], self.offsets[1:])


def beyond(runs: Runs, held: Ints) -> Beyond:
    """The known blocks beyond `held`, blocks (n,)."""
    chains, numbers, history = runs.chains, runs.numbers, runs.history
    row, blocks = expand(chains.offsets[:-1] + held, chains.offsets[1:])
    content = numbers.content[numbers.key[blocks]]
    known = history.sent[content] < chains.arrived[row]
    known |= history.stored[content] <= runs.positions.latest[row]
    lengths = runs.lengths - held
    ends = np.cumsum(lengths)
    ahead = leading(known, ends - lengths, ends)
    which, at = expand(ends - lengths, ends - lengths + ahead)
    return Beyond(
        begins=held,
        ends=held + ahead,
        offsets=np.append(0, np.cumsum(ahead)),
        row=which,
        depth=blocks[at] - chains.offsets[which],
        key=numbers.key[blocks[at]],
    )


def maybe_generated(runs: Runs, those: Beyond) -> Ints:
    """How many leading blocks (n,) may have been known, given that what was stored for the output of an earlier prompt
    may not have been told: all of a prompt whose known part is just such a prompt, sent before a gap to a holder that
    tells events; else those that are known."""
    chains, holder = runs.chains, runs.positions.holder
    out = those.ends.copy()
    missing = runs.residency.missing(np.maximum(holder, 0), runs.positions.place)
    rows = np.flatnonzero((those.ends > 0) & (those.ends < runs.lengths) & (holder >= 0) & (missing >= 0))
    if not len(rows):
        return out
    whole = np.flatnonzero((runs.lengths > 0) & (holder >= 0))
    holders = int(holder.max()) + 1
    ends = runs.numbers.key[chains.offsets[whole + 1] - 1] * holders + holder[whole]
    known, earliest = np.unique(ends, return_index=True)
    wanted = runs.numbers.key[chains.offsets[rows] + those.ends[rows] - 1] * holders + holder[rows]
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    arrived = chains.arrived[whole[earliest[at]]]
    found = (known[at] == wanted) & (arrived < np.minimum(missing[rows], chains.arrived[rows]))
    out[rows[found]] = runs.lengths[rows[found]]
    return out


def own_places(runs: Runs, those: Beyond) -> Ints:
    """The place (t,) at which each block is looked up in the request's own holder: that of the lookup; of the first one
    stored for it that of its storing, by which it was gone."""
    positions, row = runs.positions, those.row
    stored = (positions.own[row] >= 0) & (positions.own_depth[row] == those.depth)
    return np.where(stored, positions.own[row], positions.place[row])


def _used(runs: Runs, those: Beyond, first: Ints, known: Flags) -> Ints:
    """Which blocks (t,) may have been held ahead of the step in which they were looked up: had they been found, what
    the step removed would not have been these (as in told.keep_used)."""
    positions, row = runs.positions, those.row
    some = np.flatnonzero(known & (positions.own[row] < 0) & ~positions.blurred[row])
    rows, holder = row[some], positions.holder[row[some]]
    before = runs.residency.place(holder, runs.chains.began[rows] - 1)
    missing = runs.residency.missing(holder, before) != NOT_TOLD
    ahead = np.flatnonzero((before < positions.place[rows]) & missing)
    some, holder, before = some[ahead], holder[ahead], before[ahead]
    arrived = runs.chains.arrived[row[some]]
    look = runs.residency.look(those.key[some], holder, before, first[some], arrived)
    unsure = np.zeros(runs.chains.n, np.bool_)
    unsure[row[some[look.maybe & ~look.held]]] = True
    maybe: Ints = some[look.maybe & unsure[row[some]]]
    return maybe


def own_look(runs: Runs, those: Beyond) -> Look:
    """What the request's own holder tells of the blocks; nothing where it is not known."""
    holder, row = runs.positions.holder[those.row], those.row
    first = runs.history.first(those.key, runs.chains.server[row])
    place, arrived = own_places(runs, those), runs.chains.arrived[row]
    look = runs.residency.look(those.key, np.maximum(holder, 0), place, first, arrived)
    known = holder >= 0
    look.maybe[_used(runs, those, first, known)] = True
    late = np.flatnonzero(runs.positions.blurred[row] & known)
    if len(late):
        until = runs.residency.place(holder[late], runs.positions.latest[row[late]])
        then = runs.residency.look(those.key[late], holder[late], until, first[late], arrived[late])
        look.maybe[late] |= then.maybe
    return Look(look.held & known, look.maybe & known, look.never & known)
