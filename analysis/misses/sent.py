"""When blocks and pieces were first part of a prompt, by the clocks of the servers.

Two clocks tell of one request: that of the client that logged it, and that of the server that served it. What was sent
is told by the first, and the ladder compares it with the second: a request would seem to have been sent before it
arrived, by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses.columns import Columns
from analysis.misses.fleets import Fleets
from analysis.misses.model import NOT_TOLD, Ints, Sent


def blocks_sent(client: Client, contents: str, parameters: Mapping[str, object], known: Fleets) -> Sent:
    """Of the contents that the SQL `contents` selects, by the clocks of the clients."""
    told = Columns(
        client,
        f"""
        SELECT content, indexOf({{names:Array(String)}}, server) - 1 AS server_at, isolation,
               toUnixTimestamp64Micro(min(first)) AS us
        FROM chain_blocks
        WHERE content IN ({contents}) AND server IN {{names:Array(String)}}
        GROUP BY content, server, isolation""",
        parameters,
    )
    server = told.ints("server_at")
    content = known.apart(told.hashes("content"), server)
    order = np.argsort(content, kind="stable")
    first, isolation = told.ints("us"), told.hashes("isolation")
    return Sent(content[order], first[order], server[order], isolation[order])


def pieces_sent(client: Client, pieces: str, parameters: Mapping[str, object], known: Fleets) -> Sent:
    """Of the pieces that the SQL `pieces` selects. They are not told apart by server: each fleet has them all."""
    told = Columns(
        client,
        f"""
        SELECT piece, toUnixTimestamp64Micro(min(first)) AS us
        FROM chain_pieces
        WHERE piece IN ({pieces})
        GROUP BY piece""",
        parameters,
    )
    _, of_fleet = np.unique(known.fleet, return_index=True)
    server = np.repeat(of_fleet.astype(np.int64), told.n)
    piece = known.apart(np.tile(told.hashes("piece"), len(of_fleet)), server)
    order = np.argsort(piece, kind="stable")
    first = np.tile(told.ints("us"), len(of_fleet))[order]
    return Sent(piece[order], first, np.full(len(order), NOT_TOLD), np.zeros(len(order), np.uint64))


def by_servers(sent: Sent, server: Ints, told: Ints, arrived: Ints) -> Sent:
    """The same with times by the servers' clocks.

    server, told, arrived: (n,) of requests, `told` by the client's clock, NOT_TOLD where it tells none. What was first
    sent by one of them gets the time at which that one arrived; the rest are moved by what the clocks of their server's
    requests differ in the middle.
    """
    rows = np.flatnonzero(told != NOT_TOLD)
    if not len(rows) or not len(sent.hash):
        return sent
    first = sent.first.copy()
    for number in np.unique(sent.server).tolist():
        of = np.flatnonzero(sent.server == number)
        mine = rows if number == NOT_TOLD else rows[server[rows] == number]
        if len(mine):
            first[of] = _moved(sent.first[of], told[mine], arrived[mine])
    return replace(sent, first=first)


def _moved(times: Ints, told: Ints, arrived: Ints) -> Ints:
    """When the request that was sent at each of the times arrived, the first of those sent at once."""
    otherwise = times + int(np.median(arrived - told))
    order = np.lexsort((arrived, told))
    told, arrived = told[order], arrived[order]
    place = np.minimum(np.searchsorted(told, times), len(told) - 1)
    return np.where(told[place] == times, arrived[place], otherwise)
