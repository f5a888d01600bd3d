"""The requests whose prompts were replayed, as the store knows them, and what their servers do with tokens."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.advisor.pricing.price import NOT_KNOWN, Q, Traffic
from analysis.attribution.caused.told import told
from analysis.attribution.reader import read_side
from analysis.report.metrics import METRICS
from analysis.selection import Selection
from analysis.twin.fidelity import WHOLES, fidelity, misfit
from analysis.twin.fit import fit
from analysis.twin.model import NoTwin
from analysis.twin.workload import known
from cachemodel.errors import UserError

FEWEST_MATCHED = 0.5
"""Of the prompts replayed, whose requests the store must have: of fewer, the rest of the load is unknown."""
_ASKED = tuple(f"P{100 * q:g} of {WHOLES['ttft']}" for q in (0.5, Q))
_ROW = "row"
_MICRO = 1e6


@dataclass(frozen=True)
class Found:
    """servers: all of which a twin speaks. notes: what to know of them, one sentence each."""

    servers: list[Traffic]
    notes: list[str]


def traffic(client: Client, requests: Sequence[str], servers: Sequence[str] = ()) -> Found:
    """All requests that the servers of these (by their ids) had while they had them, and twins of the servers.

    servers: which had each, empty for those that nobody knows of. An id that several have tells none of them apart.
    Raises UserError where the store has too few of them; NoTwin, saying why, where no twin can speak.
    """
    matched, several = _matched(client, requests, servers or [""] * len(requests))
    left_out = f"{several:,} requests have ids that others have, too, and are left out"
    if len(matched) < FEWEST_MATCHED * len(requests):
        raise UserError(
            f"the store has {len(matched):,} of the {len(requests):,} requests that were replayed"
            f"{f' ({left_out})' if several else ''}: collect the log's"
            " server (hitmap attach), or give the store that has it with --store"
        )
    selection = _around(matched)
    side = read_side(client, selection, METRICS["ttft"], causes=False)
    side = replace(side, beside={**side.beside, _ROW: np.arange(float(side.n))})
    prompt = np.full(side.n, NOT_KNOWN, np.int64)
    by_time = {(server, arrived): at for server, arrived, at in matched}
    for row, (arrived, server) in enumerate(zip(side.arrival, side.server, strict=True)):
        prompt[row] = by_time.get((side.servers[server], round(arrived * _MICRO)), NOT_KNOWN)
    limits = told(client, side)
    found_servers, notes = list[Traffic](), [f"{left_out}."] if several else list[str]()
    for name in side.servers:
        said = limits.servers[name]
        own = known(side.of_server(name), said)
        found = fit(own, said)
        if poor := misfit([row for row in fidelity(own, found) if row.figure in _ASKED]):
            raise NoTwin(poor)
        found_servers.append(Traffic(own, found, prompt[own.time(_ROW).astype(np.int64)]))
        notes += found.notes
    asked = sum(int((one.prompt != NOT_KNOWN).sum()) for one in found_servers)
    of = sum(one.side.n for one in found_servers)
    if asked < of:
        notes.append(
            f"The log has the prompts of {asked:,} of {of:,} requests of its servers; the others are replayed as they"
            " were."
        )
    return Found(found_servers, list(dict.fromkeys(notes)))


def _matched(
    client: Client, requests: Sequence[str], servers: Sequence[str]
) -> tuple[list[tuple[str, int, int]], int]:
    """Server, arrival (microseconds) and index of each that the store has, and how many it has whose ids are of several
    requests: on a server, where the log names it, or on all of them."""
    wanted: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for at, (request, server) in enumerate(zip(requests, servers, strict=True)):
        wanted[request].append((server, at))
    rows = client.query(
        """
        SELECT toString(server), toUnixTimestamp64Micro(time), request_id FROM requests
        WHERE request_id IN {ids:Array(String)}
        """,
        parameters={"ids": list(wanted)},
    ).result_rows
    pairs = [
        (server, int(arrived), at)
        for server, arrived, request in rows
        for named, at in wanted[request]
        if named in ("", server)
    ]
    of_row = Counter((server, arrived) for server, arrived, _ in pairs)
    of_prompt = Counter(at for _, _, at in pairs)
    alone = [one for one in pairs if of_row[one[:2]] == 1 == of_prompt[one[2]]]
    return alone, len(of_prompt) - len(alone)


def _around(matched: Sequence[tuple[str, int, int]]) -> Selection:
    """All requests of these servers, from the first to the last of these."""
    arrived = [at for _, at, _ in matched]
    servers: dict[str, object] = {"advised": sorted({server for server, _, _ in matched})}
    lasting = "(server IN {advised:Array(String)})"
    asked = Selection("the log's requests", lasting, servers, ("server",), lasting=lasting)
    begin = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=min(arrived))
    end = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=max(arrived) + 1)
    return asked.at(begin, end, "advised_")
