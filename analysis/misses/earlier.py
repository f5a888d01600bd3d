"""Which earlier request a prompt has most in common with: the one that first sent its last block that is not new, or
most of the passage that now stands behind something else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at, hours
from analysis.misses.model import NOT_TOLD, Chains, Hashes, Ints
from analysis.misses.reader import Reading
from analysis.misses.report_model import TokenRun
from analysis.misses.sentences import ago

_ASKED_FOR = 16  # blocks or pieces that are looked up: each costs a read of its own
_Sender = tuple[str, int]  # a server and when, by the client's clock, microseconds


def earlier(client: Client, reading: Reading, chains: Chains, sent: int, moved: TokenRun | None) -> str:
    """A sentence on it; empty where nothing tells. chains: of the one request; sent: when by its client's clock,
    microseconds, NOT_TOLD; moved: its longest run that was sent before behind something else."""
    if not chains.known[0] or sent == NOT_TOLD:
        return ""
    size, prompt = int(chains.block_size[0]), int(chains.prompt[0])
    departs = int(chains.split_depth[0]) * size + int(chains.split_tokens[0])
    if moved and (said := _passage(client, reading, chains, sent, moved)):
        return said + (
            f"; the prompt differs from all earlier ones from token {departs:,} on"
            if 0 < departs <= moved.start
            else ""
        )
    deepest = _deepest(reading, chains)
    first = _firsts(client, reading, chains, "content", chains.blocks[deepest], sent)
    known = [(depth, sender) for depth, sender in zip(deepest.tolist(), first, strict=True) if sender]
    if not known:
        return ""
    depth, sender = known[-1]
    block = reading.fleets.apart(chains.blocks[depth : depth + 1], chains.server)
    name = _name(client, sender, "blocks", int(block[0]))
    upto = (depth + 1) * size
    upto = departs if upto <= departs < upto + size else upto
    return (
        f"the same as {name} ({ago(sent - sender[1])} before) up to token {min(upto, prompt):,}"
        if name
        else ""
    )


def _deepest(reading: Reading, chains: Chains) -> Ints:
    """The last blocks of its chain that somebody sent before it: several, since whole-second times leave doubt."""
    before = reading.blocks_sent.hash[reading.blocks_sent.first < chains.arrived[0]]
    return np.flatnonzero(np.isin(chains.blocks, before))[-_ASKED_FOR:]


def _passage(client: Client, reading: Reading, chains: Chains, sent: int, moved: TokenRun) -> str:
    """Where a passage stood before."""
    ends = int(chains.pieces_from[0]) + np.cumsum(chains.piece_tokens)
    inside = np.flatnonzero((ends > moved.start) & (ends - chains.piece_tokens < moved.end))
    inside = inside[:: max(1, len(inside) // _ASKED_FOR)]
    first = _firsts(client, reading, chains, "piece", chains.pieces[inside], sent)
    told = [sender for sender in first if sender]
    if not told:
        return ""
    sender = max(sorted(set(told)), key=told.count)
    row = inside[first.index(sender)]
    piece = reading.fleets.apart(chains.pieces[row : row + 1], chains.server)
    name = _name(client, sender, "pieces", int(piece[0]))
    if not name:
        return ""
    share = told.count(sender) / len(first)
    of = "" if share == 1 else "most of " if share > 1 / 2 else "some of "
    when = f"{ago(sent - sender[1])} before"
    return f"{of}tokens {moved.start:,} to {moved.end:,} stood in {name} ({when}), behind something else"


def _firsts(
    client: Client, reading: Reading, chains: Chains, kind: str, hashes: Hashes, sent: int
) -> Sequence[_Sender | None]:
    """Who of its fleet first sent each of some blocks ("content") or pieces ("piece"), before it was sent itself."""
    known = reading.fleets
    names = np.array(known.servers)[known.fleet == known.fleet[chains.server[0]]].tolist()
    plain = known.apart(hashes, np.repeat(chains.server, len(hashes))).tolist()
    table = "chain_blocks" if kind == "content" else "chain_pieces"
    rows = client.query(
        f"""
        SELECT {kind}, argMin(server, began), min(began) FROM
        (
            SELECT {kind}, server, toUnixTimestamp64Micro(min(first)) AS began FROM {table}
            WHERE {kind} IN {{hashes:Array(UInt64)}} AND server IN {{names:Array(String)}}
            GROUP BY {kind}, server
        )
        WHERE began < {{sent:Int64}} GROUP BY {kind}""",
        parameters={"hashes": plain, "names": names, "sent": sent},
    ).result_rows
    told = {int(value): (str(server), int(began)) for value, server, began in rows}
    return [told.get(value) for value in plain]


def _name(client: Client, sender: _Sender, column: str, value: int) -> str:
    """The id of the request of that server and time that has a block or piece."""
    rows = client.query(
        f"""
        SELECT request_id FROM request_chains
        WHERE server = {{server:String}} AND {hours(sender[1], sender[1])} AND time = {at("moment")}
            AND has({column}, {{value:UInt64}})
        ORDER BY request_id LIMIT 1""",
        parameters={"server": sender[0], "moment": sender[1], "value": value},
    ).result_rows
    return str(rows[0][0]) if rows else ""
