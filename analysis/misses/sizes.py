"""Prompts that were cut into blocks of another size: before a restart, or at a replica.

A content names a block of one size, so that such prompts cannot be compared block by block. Their pieces can, which are
cut by what stands in them; but a piece does not say which cache held it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.misses.changed import SHORTEST_RUN, first_seen
from analysis.misses.fleets import Fleets
from analysis.misses.model import NOT_TOLD, Chains, Ints, Ladder, Sent
from analysis.misses.numbering import leading
from analysis.misses.standing import Sizes
from cachemodel.causes import LADDER, MissCause

_CLOCKS_US = 60_000_000  # what the clocks of clients and servers may differ
_CAUSES = [step.cause for step in LADDER]
EVICTED, _CHANGED = (1 + _CAUSES.index(cause) for cause in (MissCause.EVICTED, MissCause.CHANGED))


def other_sizes(chains: Chains, sizes: Sizes, known: Fleets) -> Ints:
    """Until when (n,) the fleet of each request was sent prompts in blocks of another size, NOT_TOLD where it was not
    before the request arrived. sizes: as in `Standing.sizes`."""
    until = np.full(chains.n, NOT_TOLD)
    for server, fleet in zip(known.servers, known.fleet.tolist(), strict=True):
        for size, begun, ended in sizes.get(server, ()):
            other = chains.known & (chains.block_size != size) & (chains.arrived > begun)
            other &= known.fleet[chains.server] == fleet
            until[other] = np.maximum(until[other], ended)
    return until


def histories(sizes: Sizes, known: Fleets, server: Ints) -> dict[int, int]:
    """Since when each fleet of some requests has had chains, microseconds; without those that have none. sizes: as in
    `Standing.sizes`; server: (n,) index of known.servers."""
    first: dict[int, int] = {}
    for name, fleet in zip(known.servers, known.fleet.tolist(), strict=True):
        for _, begun, _ in sizes.get(name, ()):
            first[fleet] = min(first.get(fleet, begun), begun)
    return {fleet: first[fleet] for fleet in np.unique(known.fleet[server]).tolist() if fleet in first}


def without_others(ladder: Ladder, chains: Chains, pieces_sent: Sent, until: Ints) -> Ladder:
    """What may have stood at the beginning of a prompt in blocks of another size is neither `changed` nor `cold`: some
    cache may have held it. until: as from `other_sizes`."""
    begin = ladder.served[:, EVICTED]
    maybe = np.where(
        until == NOT_TOLD, begin, np.minimum(_sent_run(chains, pieces_sent, until), chains.prompt)
    )
    tokens = maybe - begin
    tokens = np.where(tokens >= SHORTEST_RUN, tokens, 0)
    if not tokens.any():
        return ladder
    served, unknown = ladder.served.copy(), ladder.unknown.copy()
    served[:, EVICTED] += tokens
    served[:, _CHANGED] = np.maximum(served[:, _CHANGED], served[:, EVICTED])
    unknown[:, EVICTED] += tokens
    return replace(ladder, served=served, unknown=unknown)


def _sent_run(chains: Chains, pieces_sent: Sent, until: Ints) -> Ints:
    """Tokens (n,) before which each prompt may have been sent by then: all of one without pieces, else those before the
    first piece that was new later."""
    begins, ends = chains.piece_offsets[:-1], chains.piece_offsets[1:]
    row = np.repeat(np.arange(chains.n), ends - begins)
    first = first_seen(chains, pieces_sent, row)
    old = (first < chains.arrived[row]) & (first <= until[row] + _CLOCKS_US)
    run = leading(old, begins, ends)
    before = np.append(0, np.cumsum(chains.piece_tokens))
    tokens = np.where(run > 0, chains.pieces_from + before[begins + run] - before[begins], 0)
    return np.where(ends > begins, tokens, chains.prompt)
