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

from analysis.misses.columns import OF_SERVERS, Columns
from analysis.misses.fleets import Fleets
from analysis.misses.model import NOT_TOLD, Chains, Flags, Hashes, Ints, Sent
from analysis.misses.sent_before import spread

_NEVER = np.iinfo(np.int64).max
_SERVER = 0xD6E8FEB86659FD93


def blocks_sent(client: Client, contents: str, parameters: Mapping[str, object], known: Fleets) -> Sent:
    """Of the contents that the SQL `contents` selects, by the clocks of the clients."""
    return _told(client, "chain_blocks", "content", "isolation", contents, parameters, known)


def pieces_sent(client: Client, pieces: str, parameters: Mapping[str, object], known: Fleets) -> Sent:
    """Of the pieces that the SQL `pieces` selects."""
    return _told(client, "chain_pieces", "piece", "toUInt64(0)", pieces, parameters, known)


def _told(
    client: Client,
    table: str,
    name: str,
    isolation: str,
    those: str,
    parameters: Mapping[str, object],
    known: Fleets,
) -> Sent:
    told = Columns(
        client,
        f"""
        SELECT {name} AS hash, indexOf({{names:Array(String)}}, server) - 1 AS server_at, {isolation} AS isolation,
               toUnixTimestamp64Micro(min(first)) AS us
        FROM {table}
        PREWHERE {name} IN ({those}) WHERE {OF_SERVERS}
        GROUP BY hash, server, isolation""",
        parameters,
    )
    server = told.ints("server_at")
    hashes = known.apart(told.hashes("hash"), server)
    order = np.argsort(hashes, kind="stable")
    return Sent(hashes[order], told.ints("us")[order], server[order], told.hashes("isolation")[order])


def blocks_by_servers(sent: Sent, chains: Chains, told: Ints) -> Sent:
    """`by_servers` of blocks: those of the chains."""
    row = np.repeat(np.arange(chains.n), np.diff(chains.offsets))
    return by_servers(sent, chains, told, chains.blocks, row, chains.isolation[row])


def pieces_by_servers(sent: Sent, chains: Chains, told: Ints) -> Sent:
    """`by_servers` of pieces."""
    row = np.repeat(np.arange(chains.n), np.diff(chains.piece_offsets))
    return by_servers(sent, chains, told, chains.pieces, row, np.zeros(len(row), np.uint64))


def by_servers(sent: Sent, chains: Chains, told: Ints, hashes: Hashes, row: Ints, isolation: Hashes) -> Sent:
    """The same with times by the servers' clocks.

    told: (n,) when each request of the chains was sent by the client's clock, NOT_TOLD where it tells none. hashes,
    row, isolation: what the prompts of requests `row` have. What was first sent at the time that is told of a request
    which has it gets the time at which that one arrived, the earliest of them: a log may tell whole seconds, so that
    the time alone does not say which. The rest are moved by what the clocks of their server's requests differ in the
    middle.
    """
    has_time = told != NOT_TOLD
    if not has_time.any() or not len(sent.hash):
        return sent
    first = sent.first.copy()
    differs = chains.arrived - told
    for number in np.unique(sent.server).tolist():
        mine = has_time & (chains.server == number)
        if mine.any():
            first[sent.server == number] += int(np.median(differs[mine]))
    arrived = _first_arrivals(sent, chains, told, hashes, row, isolation, has_time)
    return replace(sent, first=np.where(arrived < _NEVER, arrived, first))


def _first_arrivals(
    sent: Sent, chains: Chains, told: Ints, hashes: Hashes, row: Ints, isolation: Hashes, has_time: Flags
) -> Ints:
    """When the first of those requests arrived that has what was sent and is told to have been sent just then, _NEVER
    where none is."""
    found = np.full(len(sent.hash), _NEVER)
    some = np.flatnonzero(has_time[row] & np.isin(told, sent.first)[row])
    if not len(some):
        return found
    names = _named(sent.hash, sent.server, sent.isolation)
    order = np.argsort(names)
    wanted = _named(hashes[some], chains.server[row[some]], isolation[some])
    by_name = np.argsort(wanted)  # looked up as they come, each would wait for memory
    some, wanted = some[by_name], wanted[by_name]
    place = order[np.minimum(np.searchsorted(names[order], wanted), len(names) - 1)]
    own = (names[place] == wanted) & (sent.first[place] == told[row[some]])
    np.minimum.at(found, place[own], chains.arrived[row[some[own]]])
    return found


def _named(hashes: Hashes, server: Ints, isolation: Hashes) -> Hashes:
    """One hash of something sent to a server under an isolation."""
    named: Hashes = hashes ^ spread(isolation) ^ spread((server + 1).astype(np.uint64) * np.uint64(_SERVER))
    return named
