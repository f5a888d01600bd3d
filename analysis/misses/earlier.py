"""Which earlier request a prompt has most in common with: the one that first sent its last block that is not new, or
had most of the passage that now stands behind something else."""

from __future__ import annotations

from collections import Counter

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at, hours
from analysis.misses.holders import Sender, holders
from analysis.misses.model import NOT_TOLD, Chains, Hashes, Sent
from analysis.misses.reader import Reading
from analysis.misses.report_model import TokenRun
from analysis.misses.sentences import ago

# of those that first sent some of a passage: the latest, and those that first sent most of it
_MOST_LIKELY = 8
_SHARES = ((0.9, "nearly all of "), (0.5, "most of "), (0, "some of "))


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
    """Where most of a passage stood before: of those that were the first to send some piece of it, the one that had
    most tokens of it, the latest of several. A conversation that grows has its pieces from all of its turns, and its
    last turn had nearly all of them."""
    ends = int(chains.pieces_from[0]) + np.cumsum(chains.piece_tokens)
    begins = ends - chains.piece_tokens
    inside = np.flatnonzero((ends > moved.start) & (begins < moved.end))
    pieces, which = np.unique(chains.pieces[inside], return_inverse=True)
    told = np.minimum(ends, moved.end)[inside] - np.maximum(begins, moved.start)[inside]
    tokens = np.bincount(which, told, minlength=len(pieces))
    first = _firsts(reading, reading.pieces_told, pieces, sent)
    of = {sender: piece for sender, piece in zip(first, pieces.tolist(), strict=True) if sender}
    senders = sorted(Counter(sender for sender in first if sender).items(), key=lambda item: item[0][1])
    likely = {*senders[-_MOST_LIKELY:], *sorted(senders, key=lambda item: item[1])[-_MOST_LIKELY:]}
    if not likely:
        return ""
    plain = reading.fleets.apart(pieces, np.repeat(chains.server, len(pieces)))
    places = dict(zip(pieces.tolist(), plain.tolist(), strict=True))
    found = holders(client, {sender: places[of[sender]] for sender, _ in likely})
    best = max(found, key=lambda one: (one.tokens(plain, tokens), one.time), default=None)
    if not best:
        return ""
    had = best.tokens(plain, tokens) / tokens.sum()
    share = "" if had == 1 else next(words for least, words in _SHARES if had >= least)
    when = f"{ago(sent - best.time)} before"
    passage = f"{share}tokens {moved.start:,} to {moved.end:,}"
    return f"{passage} stood in {best.request_id} ({when}), behind something else"


def _firsts(reading: Reading, told: Sent, hashes: Hashes, sent: int) -> list[Sender | None]:
    """Who of its fleet first sent each of some blocks or pieces, before it was sent itself. told: as in the reading, by
    the clocks of the clients."""
    those = np.flatnonzero((told.first < sent) & np.isin(told.hash, hashes))
    those = those[np.lexsort((told.server[those], told.first[those], told.hash[those]))]
    found, begins = np.unique(told.hash[those], return_index=True)
    names = np.array(reading.fleets.servers)[told.server[those[begins]]].tolist()
    senders = zip(names, told.first[those[begins]].tolist(), strict=True)
    by_hash = dict(zip(found.tolist(), senders, strict=True))
    return [by_hash.get(value) for value in hashes.tolist()]


def _name(client: Client, sender: Sender, has: str, values: Hashes) -> str:
    """The id of the request of that server and time of which the SQL `has` is true, given its `values`."""
    rows = client.query(
        f"""
        SELECT request_id FROM request_chains
        WHERE server = {{server:String}} AND {hours(sender[1], sender[1])} AND time = {at("moment")} AND {has}
        ORDER BY request_id LIMIT 1""",
        parameters={"server": sender[0], "moment": sender[1], "values": values.tolist()},
    ).result_rows
    return str(rows[0][0]) if rows else ""
