"""What befell the blocks of some prompts, from `kv_block_events` and the marks in `kv_events`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses.columns import OF_SERVERS, Columns, at, exact_second, hours, together
from analysis.misses.fleets import Fleets
from analysis.misses.model import NOT_TOLD, Action, Chains, Events, Hashes, Ints
from analysis.misses.sources import settled

TIER_CODE = "multiIf(tier = 'host', 1, tier = 'remote', 2, 0)"  # a medium that is not known is the device's
AFTER_US = 60_000_000  # how long after the last request's end what it stored may be told of
ACTION_CODE = "toInt64(action)"  # the columns number them as Action does
_IN_FLIGHT_US = 60_000_000  # a request may run so long where nothing tells its first token
_MOST_SECONDS = 500  # named one by one
_FULL = ("full_attention", "mla_attention", "sink_full_attention")
_SHORTEST_WINDOW = (
    32  # tokens; group numbers from here on are attention windows, as TensorRT-LLM numbers them
)


@dataclass(frozen=True)
class Rows:
    """Rows of events as they come, n of them, `holder` as an index of `holders`: (server's index, rank)."""

    holders: list[tuple[int, int]]
    holder: Ints
    time: Ints
    source: Ints
    epoch: Ints
    seq: Ints
    pos: Ints
    action: Ints
    tier: Ints
    content: Hashes
    isolation: Hashes


def read_whole(client: Client, parameters: Mapping[str, object]) -> Columns:
    """What is of no block in particular, and so needs no content: the marks of the whole caches of the servers `names`,
    and their stores that nobody can place. parameters: `names` and `until`."""
    return Columns(client, f"{_MARKS} UNION ALL {_BLIND}", parameters)


def read_events(
    client: Client,
    contents: str,
    parameters: Mapping[str, object],
    known: Fleets,
    chains: Chains,
    whole: Columns | None = None,
) -> tuple[Events, Ints]:
    """The events of all blocks with the contents that the SQL `contents` selects, and the holder of each server: an
    index of holders, NOT_TOLD where the server has several ranks.

    parameters: those of `contents`, with `until`, the end of the last request in microseconds. whole: as from
    `read_whole`, where it has been read already.
    """
    parameters = {**parameters, "names": list(known.servers)}
    told, marks = together(
        lambda: Columns(client, _block_sql(contents), parameters),
        lambda: whole or read_whole(client, parameters),
    )
    if beside := _beside_removals(told):
        marks = marks.followed_by(Columns(client, _stores_sql(beside), parameters))
    keep = _main_groups(client, told, parameters)
    rows, first = _rows(told, keep, marks, known)
    joined = _joined(marks, first, chains, rows.holders)
    holder = _holder_of(rows.holders, len(known.servers))
    return replace(ordered(rows, joined, known), blind=_blind(marks, rows.holders)), holder


def ordered(rows: Rows, joined: Ints, known: Fleets) -> Events:
    """Rows as the ladder takes them. Of a holder that several sources tell of (tensor-parallel ranks, a connector
    beside its engine) the order is that of time, since their numbers do not compare."""
    n_holders = len(rows.holders)
    pairs = (
        np.unique(np.stack([rows.holder, rows.source]), axis=1)
        if len(rows.holder)
        else np.zeros((2, 0), np.int64)
    )
    several = (np.bincount(pairs[0], minlength=n_holders) > 1)[rows.holder]
    order = np.lexsort(
        (
            rows.pos,
            rows.seq,
            np.where(several, rows.epoch, 0),
            np.where(several, rows.source, 0),
            np.where(several, rows.time, rows.epoch),
            rows.holder,
        )
    )
    found, action, at_row = settled(
        {
            name: getattr(rows, name)[order]
            for name in ("holder", "source", "action", "tier", "content", "isolation", "time")
        }
    )
    at_row, order = order[at_row], order[found]
    holder = rows.holder[order]
    # within a holder time never goes back, whatever the server's clock did
    apart = holder * (1 << 54)
    time = np.maximum.accumulate(rows.time[at_row] + apart) - apart
    by_time = np.argsort(time, kind="stable")
    order, holder, time, action = order[by_time], holder[by_time], time[by_time], action[by_time]
    servers = np.array([server for server, _ in rows.holders], dtype=np.int64)
    content = rows.content[order]
    of_block = content != 0
    content[of_block] = known.apart(content[of_block], servers[holder[of_block]])
    return Events(
        holders=tuple((known.servers[server], rank) for server, rank in rows.holders),
        time=time,
        holder=holder,
        tier=rows.tier[order],
        action=action,
        content=content,
        isolation=rows.isolation[order],
        joined=joined,
    )


_WHO = """
    indexOf({names:Array(String)}, server) - 1 AS server_at, toInt64(rank) AS rank,
    toUnixTimestamp64Micro(epoch) AS epoch"""
_UNTIL = f"time <= {at('until')} + toIntervalMicrosecond({AFTER_US})"
_WHERE = f"server IN {{names:Array(String)}} AND {_UNTIL}"
_WHEN = f"""{_WHO}, toInt64(seq) AS seq, toInt64(pos) AS pos, toUnixTimestamp64Micro(time) AS us,
    reinterpretAsInt64(sipHash64(source)) AS source_key"""
_PLACE = f"{_WHEN}, {ACTION_CODE} AS what"


def _block_sql(contents: str) -> str:
    return f"""
        SELECT {_PLACE}, {TIER_CODE} AS tier_code, toInt64(group_idx) AS group_idx, content, isolation
        FROM kv_block_events
        PREWHERE content IN ({contents}) WHERE {OF_SERVERS} AND {_UNTIL}"""


_LIFE, _PLACELESS = 0, -1  # what is no action

# marks of whole caches, and when the first life of each began
_MARKS = f"""
    SELECT {_PLACE} FROM kv_marks WHERE {_WHERE} UNION ALL
    SELECT {_WHEN}, toInt64({_LIFE}) AS what FROM
    (
        SELECT server, rank, min(epoch) AS epoch, 0 AS seq, 0 AS pos, epoch AS time, '' AS source
        FROM kv_lives WHERE server IN {{names:Array(String)}} GROUP BY server, rank
    )"""

# the last store of a block whose content nobody knew, then or later
_BLIND = f"""
    SELECT server_at, rank, toInt64(0) AS epoch, toInt64(0) AS seq, toInt64(0) AS pos, max(latest) AS us,
           toInt64(0) AS source_key, toInt64({_PLACELESS}) AS what
    FROM
    (
        SELECT indexOf({{names:Array(String)}}, server) - 1 AS server_at, toInt64(rank) AS rank, block,
               toUnixTimestamp64Micro(max(time)) AS latest
        FROM kv_orphans WHERE server IN {{names:Array(String)}} AND (resolved OR {_WHERE})
        GROUP BY server, rank, block HAVING NOT max(resolved)
    )
    GROUP BY server_at, rank"""


def _blind(told: Columns, holders: list[tuple[int, int]]) -> Ints:
    """Events.blind of the holders."""
    rows = told.ints("what") == _PLACELESS
    server, rank, us = (told.ints(name)[rows].tolist() for name in ("server_at", "rank", "us"))
    latest = dict(zip(zip(server, rank, strict=True), us, strict=True))
    return np.array([latest.get(holder, NOT_TOLD) for holder in holders], dtype=np.int64)


def _stores_sql(beside: str) -> str:
    """Stores that removals may have made room for, those of other prompts too: of each second the first and the last.
    beside: SQL condition on server and time."""
    which = "(epoch, seq, pos, time, source)"
    return f"""
        SELECT {_WHEN}, toInt64({Action.STORED.value}) AS what FROM
        (
            SELECT server, rank, edge.1 AS epoch, edge.2 AS seq, edge.3 AS pos, edge.4 AS time, edge.5 AS source FROM
            (
                SELECT server, rank, arrayJoin([min({which}), max({which})]) AS edge
                FROM kv_events
                WHERE {beside} AND action = 'stored' AND {TIER_CODE} = 0
                GROUP BY server, rank, toUnixTimestamp(time)
            )
        )"""


def _beside_removals(told: Columns) -> str:
    """SQL condition on the servers and seconds of removals from a device; empty where there are none."""
    removed = (told.ints("what") == Action.REMOVED) & (told.ints("tier_code") == 0)
    seconds = np.unique(told.ints("us")[removed] // 1_000_000)
    if not len(seconds):
        return ""
    places = ", ".join(str(at + 1) for at in np.unique(told.ints("server_at")[removed]).tolist())
    servers = f"server IN (SELECT {{names:Array(String)}}[arrayJoin([{places}])])"
    near = np.unique(np.concatenate([seconds - 1, seconds, seconds + 1]))
    first, last = int(near[0]), int(near[-1])
    if len(near) > _MOST_SECONDS:
        return f"{servers} AND {_during(first, last + 1)}"
    runs = np.split(near, np.flatnonzero(np.diff(near) > 1) + 1)
    of_runs = " OR ".join(_during(int(run[0]), int(run[-1]) + 1) for run in runs)
    return f"{servers} AND {hours(first * 1_000_000, last * 1_000_000)} AND ({of_runs})"


def _during(first: int, end: int) -> str:
    return f"time >= {exact_second(first)} AND time < {exact_second(end)}"


def _rows(
    told: Columns, keep: Ints, marks: Columns, known: Fleets
) -> tuple[Rows, dict[tuple[int, int], int]]:
    """Rows of events, and when the first life of each holder began."""
    what = marks.ints("what")
    events, lives = np.flatnonzero(what > _LIFE), np.flatnonzero(what == _LIFE)
    of_life = (marks.ints(name)[lives].tolist() for name in ("server_at", "rank", "epoch"))
    first = {(server, rank): epoch for server, rank, epoch in zip(*of_life, strict=True)}

    def both(name: str) -> Ints:
        return np.concatenate([told.ints(name)[keep], marks.ints(name)[events]])

    distinct, inverse = np.unique(np.stack([both("server_at"), both("rank")]), axis=1, return_inverse=True)
    pairs = [(server, rank) for server, rank in distinct.T.tolist()]
    holders = sorted({*first, *pairs})
    silent = {*range(len(known.servers))} - {server for server, _ in holders}
    holders += [(server, 0) for server in sorted(silent)]
    numbers = np.array([holders.index(pair) for pair in pairs], dtype=np.int64)
    no_block = np.zeros(len(events), np.uint64)
    rows = Rows(
        holders=holders,
        holder=numbers[inverse.reshape(-1)] if pairs else np.zeros(0, np.int64),
        time=both("us"),
        source=both("source_key"),
        epoch=both("epoch"),
        seq=both("seq"),
        pos=both("pos"),
        action=both("what"),
        tier=np.concatenate([told.ints("tier_code")[keep], np.zeros(len(events), np.int64)]),
        content=np.concatenate([told.hashes("content")[keep], no_block]),
        isolation=np.concatenate([told.hashes("isolation")[keep], no_block]),
    )
    return rows, first


def _joined(
    marks: Columns, first: Mapping[tuple[int, int], int], chains: Chains, holders: list[tuple[int, int]]
) -> Ints:
    """From when on the events of each holder are complete. A life that was seen from its first message on is complete
    from its beginning, of which nothing is told: from the arrival of what was in flight when that message came."""
    names = ("server_at", "rank", "epoch", "what", "seq")
    told = zip(*(marks.ints(name).tolist() for name in names), strict=True)
    late = {
        (server, rank, epoch) for server, rank, epoch, what, seq in told if what == Action.GAP and seq == 0
    }
    joined = np.full(len(holders), NOT_TOLD, dtype=np.int64)
    until = np.where(chains.first_token >= 0, chains.first_token, chains.arrived + _IN_FLIGHT_US)
    for number, holder in enumerate(holders):
        if (begun := first.get(holder)) is None:
            continue
        joined[number] = begun
        if (*holder, begun) not in late:
            rows = (chains.server == holder[0]) & (chains.arrived < begun) & (until >= begun)
            joined[number] = chains.arrived[rows].min(initial=begun)
    return joined


def _holder_of(holders: list[tuple[int, int]], servers: int) -> Ints:
    found = np.full(servers, NOT_TOLD, dtype=np.int64)
    of_server = [
        [at_ for at_, (server, _) in enumerate(holders) if server == number] for number in range(servers)
    ]
    for number, those in enumerate(of_server):
        if len(those) == 1:
            found[number] = those[0]
    return found


def _main_groups(client: Client, told: Columns, parameters: Mapping[str, object]) -> Ints:
    """Which rows are of the group of layers that attends to the whole prompt: what a hit needs first."""
    server, group = told.ints("server_at"), told.ints("group_idx")
    pairs = np.unique(np.stack([server, group]), axis=1) if told.n else np.zeros((2, 0), np.int64)
    keep = np.ones(told.n, dtype=np.bool_)
    for number in (
        np.flatnonzero(np.bincount(pairs[0]) > 1) if pairs.size else np.zeros(0, np.int64)
    ).tolist():
        groups = pairs[1][pairs[0] == number].tolist()
        kinds = client.query(
            """
            SELECT ifNull(group_idx, 0) AS g, argMax(kv_cache_spec_kind, time) FROM kv_events
            WHERE server = {names:Array(String)}[{at:UInt32}] AND action = 'stored' GROUP BY g
            """,
            parameters={**parameters, "at": number + 1},
        ).result_rows
        keep &= (server != number) | (group == main_group(groups, {int(g): str(k) for g, k in kinds}))
    return np.flatnonzero(keep).astype(np.int64)


def main_group(groups: list[int], kinds: Mapping[int, str]) -> int:
    """Of several groups the one that attends to the whole prompt: by its kind, else the widest window, else the
    first."""
    full = [group for group in groups if kinds.get(group) in _FULL]
    if full:
        return min(full)
    return max(groups) if max(groups) >= _SHORTEST_WINDOW else min(groups)
