"""What KV events alone tell of a time: which blocks were stored, and why they had to be. No request is looked at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses.bins import Bins
from analysis.misses.block_events import AFTER_US, TIER_CODE, read_events
from analysis.misses.columns import Columns, at
from analysis.misses.fleets import Fleets, fleets
from analysis.misses.model import Chains, Events, Hashes, Ints
from analysis.misses.parts import PARTS, named
from analysis.misses.report_model import EventsLine
from analysis.misses.stored import reasons
from analysis.selection import Selection

MOST_BLOCKS = 2_000_000  # stored in the time in question; of more, one content in so many is read
_UNKNOWN = PARTS.index("unknown")


@dataclass(frozen=True, slots=True)
class EventsAlone:
    """lines: by server and stretch of time. sampled: one block in how many was read. since: of the first event of these
    servers, microseconds; what was stored before it cannot be known."""

    lines: list[EventsLine]
    sampled: int
    since: int


@dataclass(frozen=True, slots=True)
class Window:
    """Servers and a time, in microseconds."""

    servers: tuple[str, ...]
    begin: int
    end: int


def window_of(client: Client, selection: Selection) -> Window | None:
    """What KV events there are for a selection that asks for times and servers only; None where there are none, and
    where it asks for what only requests have."""
    if {*selection.texts} - {"server"} or selection.numbers:
        return None
    count, begin, end, servers = client.query(
        "SELECT count(), toUnixTimestamp64Micro(min(time)), toUnixTimestamp64Micro(max(time)), groupUniqArray(server)"
        f" FROM kv_events WHERE {selection.condition}",
        parameters=selection.parameters,
    ).result_rows[0]
    return Window(tuple(sorted(map(str, servers))), int(begin), int(end)) if count else None


def events_alone(client: Client, window: Window, cut: Bins, most_blocks: int = MOST_BLOCKS) -> EventsAlone:
    """Tokens of the blocks that were stored on the devices, by server and stretch of time and by cause."""
    known = fleets(client, window.servers, window.begin, window.end)
    parameters: dict[str, object] = {
        "names": list(known.servers),
        "fleets": known.fleet.tolist(),
        "asked_servers": list(window.servers),
        "begin": window.begin,
        "end": window.end,
        "until": window.end - AFTER_US,
        "sampled": 1,
    }
    stored, placeless, since = client.query(
        f"""
        SELECT (SELECT count() {_STORED} AND content IS NOT NULL), (SELECT count() {_PLACELESS}),
               (SELECT toUnixTimestamp64Micro(min(epoch)) FROM kv_lives WHERE server IN {{asked_servers:Array(String)}})
        """,
        parameters=parameters,
    ).result_rows[0]
    parameters["sampled"] = sampled = max(1, -(-int(stored) // most_blocks))
    lines: dict[tuple[int, int], Ints] = {}
    if stored:
        events, _ = read_events(
            client, f"SELECT assumeNotNull(content) {_SAMPLED}", parameters, known, _no_chains(known)
        )
        _count(lines, events, _Blocks.read(client, parameters, known), window, cut, known)
    if placeless:
        _count_placeless(client, lines, parameters, cut)
    return EventsAlone(
        [
            EventsLine(known.servers[server], cut.begin(number), cut.end(number), int(row.sum()), named(row))
            for (server, number), row in sorted(lines.items())
        ],
        sampled,
        int(since),
    )


_FLEET = "{fleets:Array(Int64)}[indexOf({names:Array(String)}, server)]"
_IN_WINDOW = f"""
    FROM kv_events
    WHERE server IN {{asked_servers:Array(String)}} AND {TIER_CODE} = 0
        AND time >= {at("begin")} AND time <= {at("end")}"""
# what stood in no known place when it was stored is told again when it is known
_STORED = f"{_IN_WINDOW} AND action IN ('stored', 'resolved')"
_PLACELESS = f"""{_IN_WINDOW} AND action = 'stored' AND content IS NULL AND (server, block) NOT IN
    (SELECT server, block FROM kv_events WHERE server IN {{asked_servers:Array(String)}} AND action = 'resolved')"""
_SAMPLED = f"{_STORED} AND content IS NOT NULL AND assumeNotNull(content) % {{sampled:UInt64}} = 0"


@dataclass(frozen=True)
class _Blocks:
    """Blocks that were stored, sorted by content. tokens: of each; seen: when these tokens had been stored first, under
    whatever content, microseconds."""

    content: Hashes
    tokens: Ints
    seen: Ints

    @classmethod
    def read(cls, client: Client, parameters: dict[str, object], known: Fleets) -> _Blocks:
        """Of the window, with what had been stored before it."""
        told = Columns(
            client,
            f"""
            SELECT content, tokens, toUnixTimestamp64Micro(firsts.first) AS seen, server_at FROM
            (
                SELECT assumeNotNull(content) AS content, any(local) AS local, server, any({_FLEET}) AS fleet,
                       any(indexOf({{names:Array(String)}}, server)) - 1 AS server_at,
                       toInt64(max(ifNull(coalesce(token_count, block_size), 0))) AS tokens
                {_SAMPLED}
                GROUP BY server, content
            ) AS blocks
            LEFT JOIN
            (
                SELECT local, {_FLEET} AS fleet, min(time) AS first FROM kv_events
                WHERE server IN {{names:Array(String)}} AND action = 'stored' AND time <= {at("end")}
                    AND local IN (SELECT local {_SAMPLED} AND local IS NOT NULL)
                GROUP BY local, fleet
            ) AS firsts USING (local, fleet)""",
            parameters,
        )
        content = known.apart(told.hashes("content"), told.ints("server_at"))
        order = np.argsort(content, kind="stable")
        return cls(content[order], told.ints("tokens")[order], told.ints("seen")[order])

    def of(self, content: Hashes) -> tuple[Ints, Ints]:
        """Tokens and `seen` of some contents, 0 for those that are not here."""
        if not len(self.content):
            return np.zeros(len(content), np.int64), np.zeros(len(content), np.int64)
        place = np.minimum(np.searchsorted(self.content, content), len(self.content) - 1)
        found = self.content[place] == content
        return np.where(found, self.tokens[place], 0), np.where(
            found, self.seen[place], np.iinfo(np.int64).max
        )


def _count(
    lines: dict[tuple[int, int], Ints],
    events: Events,
    blocks: _Blocks,
    window: Window,
    cut: Bins,
    known: Fleets,
) -> None:
    tokens, seen = blocks.of(events.content)
    position, part = reasons(events, seen < events.time)
    servers = np.array([known.servers.index(server) for server, _ in events.holders], dtype=np.int64)
    asked = np.isin(servers, [known.servers.index(server) for server in window.servers])
    holder = events.holder[position]
    keep = asked[holder] & (events.time[position] >= window.begin) & (events.time[position] <= window.end)
    position, part, holder = position[keep], part[keep], holder[keep]
    _add(lines, servers[holder], cut.of(events.time[position]), part, tokens[position])


def _count_placeless(
    client: Client, lines: dict[tuple[int, int], Ints], parameters: dict[str, object], cut: Bins
) -> None:
    """Blocks whose parent was never told: nobody knows which tokens stand before theirs."""
    told = Columns(
        client,
        f"""
        SELECT indexOf({{names:Array(String)}}, server) - 1 AS server_at, toUnixTimestamp64Micro(time) AS us,
               toInt64(ifNull(coalesce(token_count, block_size), 0)) AS tokens
        {_PLACELESS}""",
        parameters,
    )
    part = np.full(told.n, _UNKNOWN)
    _add(lines, told.ints("server_at"), cut.of(told.ints("us")), part, told.ints("tokens"))


def _add(lines: dict[tuple[int, int], Ints], server: Ints, number: Ints, part: Ints, tokens: Ints) -> None:
    where, inverse = np.unique(np.stack([server, number]), axis=1, return_inverse=True)
    counts = np.zeros((where.shape[1], len(PARTS)), np.int64)
    np.add.at(counts, (inverse.reshape(-1), part), tokens)
    for key, row in zip(where.T.tolist(), counts, strict=True):
        pair = (key[0], key[1])
        lines[pair] = lines.get(pair, np.zeros(len(PARTS), np.int64)) + row


def _no_chains(known: Fleets) -> Chains:
    none, hashes, flags = np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.bool_)
    return Chains(
        servers=known.servers, server=none, holder=none, arrived=none, began=none, first_token=none, isolation=hashes,
        prompt=none, cached=none, recomputed=none, block_size=none, reads_off=flags, known=flags,
        offsets=np.zeros(1, np.int64), blocks=hashes, split_depth=none, split_tokens=none, pieces_from=none,
        piece_offsets=np.zeros(1, np.int64), pieces=hashes, piece_tokens=none,
    )  # fmt: skip
