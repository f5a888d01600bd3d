"""Prompts that were cut into blocks of another size: before a restart, or at a replica.

A content names a block of one size, so that such prompts cannot be compared block by block. Their pieces can, which are
cut by what stands in them; but a piece does not say which cache held it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses.changed import SHORTEST_RUN, first_seen
from analysis.misses.columns import Columns
from analysis.misses.fleets import Fleets
from analysis.misses.model import NOT_TOLD, Chains, Ints, Ladder, Sent
from analysis.misses.numbering import leading
from cachemodel.causes import LADDER, MissCause

_CLOCKS_US = 60_000_000  # what the clocks of clients and servers may differ
_NEVER = np.iinfo(np.int64).max
_CAUSES = [step.cause for step in LADDER]
EVICTED, _CHANGED = (1 + _CAUSES.index(cause) for cause in (MissCause.EVICTED, MissCause.CHANGED))


def sizes_told(client: Client, parameters: Mapping[str, object]) -> Columns:
    """Block sizes of the prompts of each of the servers `names`, and when they were in use."""
    return Columns(
        client,
        """
        SELECT indexOf({names:Array(String)}, server) - 1 AS server_at, toInt64(block_size) AS size,
               toUnixTimestamp64Micro(min(first)) AS begun, toUnixTimestamp64Micro(max(last)) AS ended
        FROM chain_sizes WHERE server IN {names:Array(String)} GROUP BY server, block_size""",
        parameters,
    )


def other_sizes(chains: Chains, told: Columns, known: Fleets) -> Ints:
    """Until when (n,) the fleet of each request was sent prompts in blocks of another size, NOT_TOLD where it was not
    before the request arrived."""
    until = np.full(chains.n, NOT_TOLD)
    names = ("server_at", "size", "begun", "ended")
    for server, size, begun, ended in zip(*(told.ints(name).tolist() for name in names), strict=True):
        other = chains.known & (chains.block_size != size) & (chains.arrived > begun)
        other &= known.fleet[chains.server] == known.fleet[server]
        until[other] = np.maximum(until[other], ended)
    return until


def history_begin(told: Columns, known: Fleets, server: Ints) -> int:
    """Since when all fleets of some requests have had chains, microseconds; NOT_TOLD where none has any. server: (n,)
    index of known.servers."""
    of, begun = known.fleet[told.ints("server_at")], told.ints("begun")
    asked = np.unique(known.fleet[server]).tolist()
    begins = [int(begun[of == fleet].min(initial=_NEVER)) for fleet in asked]
    return max((begin for begin in begins if begin != _NEVER), default=NOT_TOLD)


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
