"""Which earlier request a prompt has most in common with: the one that first sent its last block that is not new, or
most of the passage that now stands behind something else."""

from __future__ import annotations

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at, hours
from analysis.misses.model import NOT_TOLD, Chains, Hashes, Sent
from analysis.misses.reader import Reading
from analysis.misses.report_model import TokenRun
from analysis.misses.sentences import ago

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
    before = reading.blocks_sent.hash[reading.blocks_sent.first < chains.arrived[0]]
    shared = np.flatnonzero(np.isin(chains.blocks, before))
    first = _firsts(reading, reading.blocks_told, chains.blocks[shared], sent)
    known = [(depth, sender) for depth, sender in zip(shared.tolist(), first, strict=True) if sender]
    if not known:
        return ""
    depth, sender = known[-1]
    # all of one beginning stand together: with the first block they are found soon
    ends = reading.fleets.apart(chains.blocks[[0, depth]], chains.server[[0, 0]])
    its = "{values:Array(UInt64)}"
    name = _name(client, sender, f"blocks[1] = {its}[1] AND has(blocks, {its}[2])", ends)
    upto = (depth + 1) * size
    upto = departs if upto <= departs < upto + size else upto
    return (
        f"the same as {name} ({ago(sent - sender[1])} before) up to token {min(upto, prompt):,}"
        if name
        else ""
    )


def _passage(client: Client, reading: Reading, chains: Chains, sent: int, moved: TokenRun) -> str:
    """Where a passage stood before."""
    ends = int(chains.pieces_from[0]) + np.cumsum(chains.piece_tokens)
    inside = np.flatnonzero((ends > moved.start) & (ends - chains.piece_tokens < moved.end))
    first = _firsts(reading, reading.pieces_told, chains.pieces[inside], sent)
    told = [sender for sender in first if sender]
    if not told:
        return ""
    sender = max(sorted(set(told)), key=told.count)
    row = inside[first.index(sender)]
    piece = reading.fleets.apart(chains.pieces[row : row + 1], chains.server)
    name = _name(client, sender, "has(pieces, {values:Array(UInt64)}[1])", piece)
    if not name:
        return ""
    share = told.count(sender) / len(first)
    of = "" if share == 1 else "most of " if share > 1 / 2 else "some of "
    when = f"{ago(sent - sender[1])} before"
    return f"{of}tokens {moved.start:,} to {moved.end:,} stood in {name} ({when}), behind something else"


def _firsts(reading: Reading, told: Sent, hashes: Hashes, sent: int) -> list[_Sender | None]:
    """Who of its fleet first sent each of some blocks or pieces, before it was sent itself. told: as in the reading, by
    the clocks of the clients."""
    those = np.flatnonzero((told.first < sent) & np.isin(told.hash, hashes))
    those = those[np.lexsort((told.server[those], told.first[those], told.hash[those]))]
    found, begins = np.unique(told.hash[those], return_index=True)
    names = np.array(reading.fleets.servers)[told.server[those[begins]]].tolist()
    senders = zip(names, told.first[those[begins]].tolist(), strict=True)
    by_hash = dict(zip(found.tolist(), senders, strict=True))
    return [by_hash.get(value) for value in hashes.tolist()]


def _name(client: Client, sender: _Sender, has: str, values: Hashes) -> str:
    """The id of the request of that server and time of which the SQL `has` is true, given its `values`."""
    rows = client.query(
        f"""
        SELECT request_id FROM request_chains
        WHERE server = {{server:String}} AND {hours(sender[1], sender[1])} AND time = {at("moment")} AND {has}
        ORDER BY request_id LIMIT 1""",
        parameters={"server": sender[0], "moment": sender[1], "values": values.tolist()},
    ).result_rows
    return str(rows[0][0]) if rows else ""
