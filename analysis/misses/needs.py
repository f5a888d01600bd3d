"""What would tell the tokens that nobody can place: the flag or option, with how many tokens hang on it."""

from __future__ import annotations

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses.model import NOT_TOLD, Action, Flags, Ints, Ladder
from analysis.misses.reader import Reading
from analysis.misses.sizes import EVICTED

_SIGNAL = "KV-cache events"


def unknown_needs(client: Client, reading: Reading, ladder: Ladder) -> list[str]:
    """Sentences, those that most unknown tokens hang on first."""
    chains = reading.chains
    unknown = ladder.unknown.sum(axis=1)
    unknown = np.where(reading.asked.asked, unknown, 0)
    quiet = _silent(reading)
    silent = quiet[chains.server]
    several = np.isin(chains.server, np.flatnonzero(_ranks(reading) > 1)) & (chains.holder == NOT_TOLD)
    shared = np.minimum(ladder.shared, unknown)
    unknown = unknown - shared
    of_sizes = np.where(reading.other_sizes != NOT_TOLD, ladder.unknown[:, EVICTED] - shared, 0)
    of_sizes = np.minimum(of_sizes, unknown)
    needs = [_chains(unknown, ~chains.known & ~reading.asked.misfit), _misfits(unknown, reading.asked.misfit)]
    needs += [_shared(shared), _sizes(of_sizes)]
    unknown = unknown - of_sizes
    flags = _flags(client, reading)
    needs += _events(reading, unknown, chains.known & silent, flags)
    told_of = chains.known & ~silent
    needs += [_several(reading, unknown, told_of & several)]
    strange = told_of & ~several & (np.diff(chains.offsets) > 0) & ~_matched(reading)
    rest, lost = told_of & ~several & ~strange, incomplete(reading)
    needs += [_strangers(unknown, strange), _gaps(reading, unknown, rest & lost)]
    needs += _replicas(reading, unknown, rest & ~lost, quiet, flags)
    needs += [_rest(unknown, rest & ~lost & ~_of_fleet(reading, quiet))]
    told = sorted((need for need in needs if need and need[0]), key=lambda need: -need[0])
    return [sentence for _, sentence in told]


def incomplete(reading: Reading) -> Flags:
    """Whether something is missing in the events of a request's fleet: in a gap, or from before they begin."""
    chains, events, sent = reading.chains, reading.events, reading.blocks_sent
    server = _server_of(reading)
    first = np.full(len(chains.servers), np.iinfo(np.int64).max)
    np.minimum.at(first, sent.server, sent.first)
    missing = np.zeros(len(first), np.bool_)
    missing[server[events.joined > first[server]]] = (
        True  # NOT_TOLD, where there are none, is below all times
    )
    missing[server[events.holder[events.action == Action.GAP]]] = True
    return _of_fleet(reading, missing)


def _chains(unknown: Ints, rows: Flags) -> tuple[int, str]:
    tokens = int(unknown[rows].sum())
    return tokens, (
        f"{tokens:,} tokens of {int((rows & (unknown > 0)).sum()):,} requests whose prompts are not known: attach with"
        " --log FILE, a request log with the bodies, and the server's own --tokenizer; where that is so, its status"
        " says whether the tokenizer counts otherwise than the server"
    )


def _misfits(unknown: Ints, rows: Flags) -> tuple[int, str]:
    tokens = int(unknown[rows].sum())
    return tokens, (
        f"{tokens:,} tokens of {int((rows & (unknown > 0)).sum()):,} requests whose prompts in the log are of another"
        " length than the server counted: attach with the server's own --tokenizer"
    )


def _sizes(unknown: Ints) -> tuple[int, str]:
    tokens = int(unknown.sum())
    return tokens, (
        f"{tokens:,} tokens that may have been sent in blocks of another size, before a restart or to a replica, which"
        " cannot be compared: give all replicas one block size"
    )


def _shared(shared: Ints) -> tuple[int, str]:
    tokens = int(shared.sum())
    return tokens, (
        f"nothing would tell {tokens:,} tokens of {int((shared > 0).sum()):,} requests, less than a block each, that"
        " only prompts of another server, salt or adapter share: KV events name whole blocks, so that they do not tell"
        " which cache still held these; smaller blocks leave fewer of them"
    )


def _strangers(unknown: Ints, rows: Flags) -> tuple[int, str]:
    tokens = int(unknown[rows].sum())
    return tokens, (
        f"{tokens:,} tokens of {int((rows & (unknown > 0)).sum()):,} requests of whose blocks no KV event tells: attach"
        " with the server's own --tokenizer and --block-size, and collectors of one store with one key"
    )


def _matched(reading: Reading) -> Flags:
    """Whether an event of a request's own server is of one of its blocks."""
    chains, events = reading.chains, reading.events
    servers = _server_of(reading)
    row = np.repeat(np.arange(chains.n), np.diff(chains.offsets))
    found = np.zeros(chains.n, np.bool_)
    for server in np.unique(chains.server).tolist():
        of = events.content[servers[events.holder] == server]
        own = chains.server[row] == server
        found[row[own][np.isin(chains.blocks[own], of)]] = True
    return found


def _flags(client: Client, reading: Reading) -> list[str]:
    """What switches the KV events of each server on."""
    flags = {
        str(server): str(flag)
        for server, flag in client.query(
            """
            SELECT server, argMax(arrayFirst(s -> s.signal = {signal:String}, signals).flag, time) FROM servers
            WHERE server IN {servers:Array(String)} GROUP BY server
            """,
            parameters={"signal": _SIGNAL, "servers": list(reading.chains.servers)},
        ).result_rows
    }
    plain = "its KV-cache events switched on, and attach with --kv-events"
    return [flags.get(server) or plain for server in reading.chains.servers]


def _events(reading: Reading, unknown: Ints, rows: Flags, flags: list[str]) -> list[tuple[int, str]]:
    found = []
    for at in np.unique(reading.chains.server[rows]).tolist():
        tokens = int(unknown[rows & (reading.chains.server == at)].sum())
        server = reading.chains.servers[at]
        found.append(
            (tokens, f"{tokens:,} tokens of {server}, which tells no KV events: it needs {flags[at]}")
        )
    return found


def _replicas(
    reading: Reading, unknown: Ints, rows: Flags, quiet: Flags, flags: list[str]
) -> list[tuple[int, str]]:
    """quiet: servers that tell no KV events, any of which may have held what others of its fleet were asked for."""
    fleet, found = reading.fleets.fleet, []
    for at in np.flatnonzero(quiet).tolist():
        tokens = int(unknown[rows & (fleet[reading.chains.server] == fleet[at])].sum())
        server = reading.chains.servers[at]
        found.append(
            (
                tokens,
                f"{tokens:,} tokens that {server} may have held, which tells no KV events: it needs {flags[at]}",
            )
        )
    return found


def _several(reading: Reading, unknown: Ints, rows: Flags) -> tuple[int, str]:
    tokens = int(unknown[rows].sum())
    servers = ", ".join(reading.chains.servers[at] for at in np.unique(reading.chains.server[rows]).tolist())
    return (
        tokens,
        f"{tokens:,} tokens of {servers}, which has several ranks: nothing tells which of them a request went to",
    )


def _gaps(reading: Reading, unknown: Ints, rows: Flags) -> tuple[int, str]:
    tokens = int(unknown[rows].sum())
    gaps = int((reading.events.action == Action.GAP).sum())
    why = f"{gaps:,} gaps in" if gaps else "the beginning of"
    return tokens, (
        f"{tokens:,} tokens that depend on what was lost in {why} the KV events: give the server a replay endpoint"
        " (replay_endpoint in --kv-events-config, attach --replay), and attach before it serves"
    )


def _of_fleet(reading: Reading, servers: Flags) -> Flags:
    """Whether that is so of some server of a request's fleet: each may have held its blocks."""
    fleet = reading.fleets.fleet
    return np.isin(fleet, fleet[servers])[reading.chains.server]


def _rest(unknown: Ints, rows: Flags) -> tuple[int, str]:
    tokens = int(unknown[rows].sum())
    return tokens, (
        f"{tokens:,} tokens of which the KV events, though none is missing, do not tell enough: of a block whose"
        " content nobody knows, or of what a second tier kept when the cache was reset"
    )


def _silent(reading: Reading) -> Flags:
    """Which servers have no holder that tells anything."""
    every = np.ones(len(reading.chains.servers), np.bool_)
    np.logical_and.at(every, _server_of(reading), reading.events.joined == NOT_TOLD)
    return every


def _ranks(reading: Reading) -> Ints:
    """Holders of each server."""
    return np.bincount(_server_of(reading), minlength=len(reading.chains.servers))


def _server_of(reading: Reading) -> Ints:
    """The server of each holder, an index of the chains' servers."""
    index = {server: at for at, server in enumerate(reading.chains.servers)}
    return np.array([index[server] for server, _ in reading.events.holders], dtype=np.int64)
