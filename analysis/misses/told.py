"""What the server says it served, beside what its cache held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.misses.model import NOT_TOLD, Chains, Ints
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
    chains, positions, residency = runs.chains, runs.positions, runs.residency
    says = (chains.cached != NOT_TOLD) & (positions.holder >= 0) & ~chains.reads_off & ~positions.blurred
    differs = says & (laws.served(chains.prompt, held * chains.block_size) != chains.cached)
    rows = np.flatnonzero(differs)
    size, law = chains.block_size[rows], laws.at(rows)
    shown = -(-law.shown(chains.prompt[rows], chains.cached[rows]) // size)
    less = shown < held[rows]
    depth = np.minimum(shown, held[rows])
    inside = depth < runs.lengths[rows]
    rows, depth, less = rows[inside], depth[inside], less[inside]
    if not len(rows):
        return
    holder, place = positions.holder[rows], positions.place[rows]
    key = runs.numbers.key[chains.offsets[rows] + depth]
    until = np.where(chains.first_token[rows] >= 0, chains.first_token[rows], chains.began[rows]) + SLACK_US
    earliest, latest = residency.place(holder, chains.arrived[rows]), residency.place(holder, until)
    last, stored = residency.last(_DEVICE, key, holder, place)
    after, stored_after = residency.next(_DEVICE, key, holder, place)
    # it came or went before: the lookup was ahead of that; or it does later: the lookup was behind that
    back = (last >= earliest) & (last >= 0) & (stored == less)
    ahead = (after >= 0) & (after < latest) & (stored_after != less)
    moved = np.where(back, last, np.where(ahead, after + 1, place))
    some = np.flatnonzero(moved != place)
    rows, moved = rows[some], moved[some]
    run = runs.held(rows, moved, np.full(len(rows), NOT_TOLD))
    agrees = laws.at(rows).served(chains.prompt[rows], run * chains.block_size[rows]) == chains.cached[rows]
    rows, moved, run = rows[agrees], moved[agrees], run[agrees]
    positions.place[rows], held[rows] = moved, run
    positions.own[rows] = NOT_TOLD
