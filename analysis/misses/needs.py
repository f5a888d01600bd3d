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
    chains, events = reading.chains, reading.events
    unknown = ladder.unknown.sum(axis=1)
    unknown = np.where(reading.asked.asked, unknown, 0)
    silent = _servers(reading, events.joined == NOT_TOLD)
    several = np.isin(chains.server, np.flatnonzero(_ranks(reading) > 1)) & (chains.holder == NOT_TOLD)
    of_sizes = np.where(reading.other_sizes != NOT_TOLD, ladder.unknown[:, EVICTED], 0)
    of_sizes = np.minimum(of_sizes, unknown)
    needs = [_chains(unknown, ~chains.known & ~reading.asked.misfit), _misfits(unknown, reading.asked.misfit)]
    needs += [_sizes(of_sizes)]
    unknown = unknown - of_sizes
    needs += _events(client, reading, unknown, chains.known & silent)
    told_of = chains.known & ~silent
    needs += [_several(reading, unknown, told_of & several)]
    strange = told_of & ~several & (np.diff(chains.offsets) > 0) & ~_matched(reading)
    needs += [_strangers(unknown, strange), _gaps(reading, unknown, told_of & ~several & ~strange)]
    told = sorted((need for need in needs if need and need[0]), key=lambda need: -need[0])
    return [sentence for _, sentence in told]


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


def _strangers(unknown: Ints, rows: Flags) -> tuple[int, str]:
    tokens = int(unknown[rows].sum())
    return tokens, (
        f"{tokens:,} tokens of {int((rows & (unknown > 0)).sum()):,} requests of whose blocks no KV event tells: attach"
        " with the server's own --tokenizer and --block-size, and collectors of one store with one key"
    )


def _matched(reading: Reading) -> Flags:
    """Whether an event of a request's own server is of one of its blocks."""
    chains, events = reading.chains, reading.events
    index = {server: at for at, server in enumerate(chains.servers)}
    servers = np.array([index[server] for server, _ in events.holders], dtype=np.int64)
    row = np.repeat(np.arange(chains.n), np.diff(chains.offsets))
    found = np.zeros(chains.n, np.bool_)
    for server in np.unique(chains.server).tolist():
        of = events.content[servers[events.holder] == server]
        own = chains.server[row] == server
        found[row[own][np.isin(chains.blocks[own], of)]] = True
    return found


def _events(client: Client, reading: Reading, unknown: Ints, rows: Flags) -> list[tuple[int, str]]:
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
    found = []
    for at in np.unique(reading.chains.server[rows]).tolist():
        server = reading.chains.servers[at]
        tokens = int(unknown[rows & (reading.chains.server == at)].sum())
        flag = flags.get(server) or "its KV-cache events switched on, and attach with --kv-events"
        found.append((tokens, f"{tokens:,} tokens of {server}, which tells no KV events: it needs {flag}"))
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


def _servers(reading: Reading, holders: Flags) -> Flags:
    """Whether a request's server has only holders of which that is true."""
    index = {server: at for at, server in enumerate(reading.chains.servers)}
    every = np.ones(len(index), np.bool_)
    for (server, _), is_so in zip(reading.events.holders, holders.tolist(), strict=True):
        every[index[server]] &= is_so
    return every[reading.chains.server]


def _ranks(reading: Reading) -> Ints:
    """Holders of each server."""
    index = {server: at for at, server in enumerate(reading.chains.servers)}
    return np.bincount([index[server] for server, _ in reading.events.holders], minlength=len(index))
