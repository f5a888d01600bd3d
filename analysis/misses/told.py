"""What the server says it served, beside what its cache held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.misses.model import NOT_TOLD, Chains, Flags, Ints
from analysis.misses.positions import SLACK_US
from analysis.misses.runs import Runs
from cachemodel.alignment import Alignment

_DEVICE = 0


@dataclass(frozen=True)
class Laws:
    """The alignment (n,) of each request's server; see cachemodel.alignment."""

    unit: Ints
    dropped: Ints
    computed: Ints

    def served(self, prompt: Ints, held: Ints) -> Ints:
        """Tokens served of prompts of which so many are held."""
        usable = np.maximum(0, np.minimum(held, prompt - self.computed))
        served: Ints = np.maximum(0, usable // self.unit - self.dropped) * self.unit
        return served

    def shown(self, prompt: Ints, served: Ints) -> Ints:
        """Tokens that were held at the least, given those served: what is dropped had to be there."""
        held: Ints = np.minimum(prompt, np.where(served > 0, served + self.dropped * self.unit, 0))
        return held

    def at(self, rows: Ints) -> Laws:
        """Those of some requests."""
        return Laws(self.unit[rows], self.dropped[rows], self.computed[rows])


def alignments_of(chains: Chains, alignments: Mapping[str, Alignment]) -> tuple[dict[str, Alignment], Laws]:
    """The alignment of each server that has requests, whole blocks where none is given."""
    whole = dict(alignments)
    present, first = np.unique(chains.server, return_index=True)
    for server, row in zip(present.tolist(), first.tolist(), strict=True):
        whole.setdefault(chains.servers[server], Alignment(max(1, int(chains.block_size[row]))))
    given = [whole.get(name, Alignment(1)) for name in chains.servers] or [Alignment(1)]
    unit, dropped, computed = (
        np.array([getattr(law, name) for law in given], np.int64)[chains.server]
        for name in ("unit", "dropped_units", "computed_tokens")
    )
    named = np.array([name in alignments for name in chains.servers] or [False])[chains.server]
    return whole, Laws(np.where(named, unit, np.maximum(1, chains.block_size)), dropped, computed)


def keep_used(runs: Runs, held: Ints) -> None:
    """Where nothing was stored for a request its lookup is known to a step only, and what that step removed made room
    for others: not what the request had found, which is in use by then. Moves the lookup ahead of the step where more
    was held."""
    positions = runs.positions
    some = (positions.own < 0) & (positions.holder >= 0) & (held < runs.lengths) & ~positions.blurred
    rows = np.flatnonzero(some)
    place = runs.residency.place(positions.holder[rows], runs.chains.began[rows] - 1)
    rows, place = rows[place < positions.place[rows]], place[place < positions.place[rows]]
    run = runs.held(rows, place, positions.own[rows])
    more = run > held[rows]
    positions.place[rows[more]], held[rows[more]] = place[more], run[more]


def settle(runs: Runs, laws: Laws, held: Ints) -> None:
    """Where the server says another number than what was held tells, look nearby: between a request's arrival and its
    first token the block in question may have come or gone. Moves the lookup, and what was held then, where that makes
    the two agree."""
    chains, positions = runs.chains, runs.positions
    says = (chains.cached != NOT_TOLD) & (positions.holder >= 0) & ~chains.reads_off & ~positions.blurred
    differs = says & (laws.served(chains.prompt, held * chains.block_size) != chains.cached)
    rows = np.flatnonzero(differs)
    shown = -(-laws.at(rows).shown(chains.prompt[rows], chains.cached[rows]) // chains.block_size[rows])
    seems, agrees = _seems(runs, laws, rows, positions.place[rows], positions.own[rows], shown)
    depth = np.minimum(shown, seems)
    some = ~agrees & (depth < runs.lengths[rows])
    rows, depth, less, shown = rows[some], depth[some], (shown < seems)[some], shown[some]
    if not len(rows):
        return
    moved = _nearby(runs, rows, chains.offsets[rows] + depth, less)
    some = np.flatnonzero(moved != positions.place[rows])
    rows, moved, shown = rows[some], moved[some], shown[some]
    none = np.full(len(rows), NOT_TOLD)
    _, agrees = _seems(runs, laws, rows, moved, none, shown)
    rows, moved = rows[agrees], moved[agrees]
    run = runs.held(rows, moved, none[agrees])
    positions.place[rows], held[rows] = moved, run
    positions.own[rows] = NOT_TOLD


def _seems(runs: Runs, laws: Laws, rows: Ints, place: Ints, own: Ints, shown: Ints) -> tuple[Ints, Flags]:
    """How many leading blocks were held, with those that the server's figure shows and that may have been, and whether
    that is what the figure says."""
    chains = runs.chains
    seems = runs.held(rows, place, own, shown)
    served = laws.at(rows).served(chains.prompt[rows], seems * chains.block_size[rows])
    return seems, served == chains.cached[rows]


def _nearby(runs: Runs, rows: Ints, block: Ints, less: Flags) -> Ints:
    """The place nearest to the lookup of each of some requests at which a block of its chain came or went; that of the
    lookup where none is near enough. less: whether it was there and should not have been, or the other way round."""
    chains, positions, residency = runs.chains, runs.positions, runs.residency
    holder, place, key = positions.holder[rows], positions.place[rows], runs.numbers.key[block]
    until = np.where(chains.first_token[rows] >= 0, chains.first_token[rows], chains.began[rows]) + SLACK_US
    earliest, latest = residency.place(holder, chains.arrived[rows]), residency.place(holder, until)
    last, stored = residency.last(_DEVICE, key, holder, place)
    after, stored_after = residency.next(_DEVICE, key, holder, place)
    # it came or went before: the lookup was ahead of that; or it does later: the lookup was behind that
    back = (last >= earliest) & (last >= 0) & (stored == less)
    ahead = (after >= 0) & (after < np.minimum(latest, residency.next_reset(place))) & (stored_after != less)
    # where it may have been held already, that is what the server says
    first = runs.history.first(key, chains.server[rows])
    ahead &= less | ~residency.look(key, holder, place, first, chains.arrived[rows]).maybe
    return np.where(back, last, np.where(ahead, after + 1, place))
