"""From the store to the columns that the ladder climbs: requests, chains of their prompts, what befell the blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses.assemble import Asked, assemble
from analysis.misses.block_events import AFTER_US, read_events, read_whole
from analysis.misses.columns import Columns, at, hours, together
from analysis.misses.fleets import Fleets, fleets
from analysis.misses.model import NOT_TOLD, Chains, Events, Flags, Hashes, Ints, Sent
from analysis.misses.sent import blocks_by_servers, blocks_sent, pieces_by_servers, pieces_sent
from analysis.misses.sizes import histories, other_sizes
from analysis.misses.span_chains import lacking, span_blocks, span_chains
from analysis.misses.standing import Sizes, standing
from analysis.report.reader import inventory
from analysis.selection import Selection
from cachemodel.errors import UserError

MOST_REQUESTS = 200_000  # taken through the ladder at once; of more, one in so many is read
MOST_BLOCKS = 2_000_000
MOST_NAMED = 8_000  # hashes in one statement
_HOUR_US = 3_600_000_000
BEFORE_US = 60_000_000  # what can still be in flight when the first of the requests arrives


@dataclass(frozen=True)
class Reading:
    """What was read for a selection. count: requests of it; unsized: those read of which nothing tells how long their
    prompt is, left out of the chains. sampled: one request in how many was read. begin, end: microseconds. histories:
    by fleet, since when the store has chains of it; without those of which it has none. other_sizes: by row of the
    chains, until when its fleet was sent prompts in blocks of another size, NOT_TOLD for never. blocks_told,
    pieces_told: what was sent by the clocks of the clients, where blocks_sent and pieces_sent go by the servers'."""

    name: str
    count: int
    unsized: int
    sampled: int
    begin: int
    end: int
    histories: Mapping[int, int]
    fleets: Fleets
    asked: Asked
    chains: Chains
    events: Events
    blocks_sent: Sent
    pieces_sent: Sent
    blocks_told: Sent
    pieces_told: Sent
    other_sizes: Ints

    @property
    def history_begin(self) -> int:
        """Since when all of the fleets have had chains; NOT_TOLD where the store has none."""
        return max(self.histories.values(), default=NOT_TOLD)


@dataclass(frozen=True)
class Told:
    """What the store tells of some requests: themselves, as `requests_sql` asks; their chains, as `read_chains` has
    them; and of the caches that they went to what concerns no block in particular (`read_whole`)."""

    requests: Columns
    chains: Columns
    whole: Columns


@dataclass(frozen=True)
class Extent:
    """How much a selection is: requests, from the first arrival to the last end in microseconds, their servers."""

    count: int
    begin: int
    end: int
    servers: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """What requests are grouped by: SQL of a text of theirs, with its parameters."""

    sql: str = "''"
    parameters: Mapping[str, object] | None = None


@dataclass(frozen=True)
class Scope:
    """Which requests to read: a condition on `requests`, one of those that the selection makes, and their parameters,
    `begin` and `until` (microseconds) among them. ids: of the requests, where these are few: an array parameter."""

    condition: str
    picked: str
    parameters: Mapping[str, object]
    ids: str = ""

    @property
    def chosen(self) -> str:
        """SQL of (server, request_id) of them."""
        return f"SELECT server, request_id FROM requests WHERE {self.condition}"

    @property
    def chains(self) -> str:
        """SQL condition on request_chains; its times are the client's, or the end where nothing else is told."""
        during = f"time >= {at('begin')} - INTERVAL 1 HOUR AND time <= {at('until')} + INTERVAL 1 HOUR"
        if self.ids:
            begin, until = (int(str(self.parameters[name])) for name in ("begin", "until"))
            during += f" AND {hours(begin - _HOUR_US, until + _HOUR_US)}"
            ids = f"{{{self.ids}:Array(String)}}"
            by_key = f"key IN (SELECT sipHash64(arrayJoin({ids})))"
            return (
                f"{during} AND server IN {{asked_servers:Array(String)}} AND {by_key} AND request_id IN {ids}"
            )
        return f"{during} AND (server, request_id) IN ({self.chosen})"

    def contents(self, chains: Chains, known: Fleets, spans: bool) -> str:
        """SQL of the contents of their blocks: named one by one where they are few, which saves reading the chains
        again. spans: whether some chains stand on spans only."""
        if few := _few(known.apart(chains.blocks, np.repeat(chains.server, np.diff(chains.offsets)))):
            return few
        told = f"SELECT arrayJoin(blocks) AS content FROM request_chains WHERE {self.chains}"
        return f"{told} UNION ALL {span_blocks(self.chosen)}" if spans else told

    def pieces(self, chains: Chains, known: Fleets, asked: Flags) -> str:
        """SQL of the pieces of those that are asked for: what is changed in the others is not told."""
        row = np.repeat(np.arange(chains.n), np.diff(chains.piece_offsets))
        mine = asked[row]
        if few := _few(known.apart(chains.pieces[mine], chains.server[row[mine]])):
            return few
        return f"SELECT arrayJoin(pieces) FROM request_chains WHERE {self.chains}"


def read(
    client: Client,
    selection: Selection,
    group: Group | None = None,
    *,
    most_requests: int = MOST_REQUESTS,
    most_blocks: int = MOST_BLOCKS,
) -> Reading:
    """Read a selection, with what was in flight beside it unless that is too much.

    Raises UserError when the selection is empty, saying what the store has.
    """
    extent, group = measure(client, selection), group or Group()
    of_servers = standing(client)
    known = fleets(client, extent.servers, extent.begin, extent.end, of_servers.models)
    scope, sampled = _scope(client, selection, extent, most_requests, most_blocks)
    parameters = {**scope.parameters, **(group.parameters or {}), "names": list(known.servers)}
    told = Columns(client, requests_sql(scope, group.sql), parameters)
    chained, whole = together(lambda: read_chains(client, scope), lambda: read_whole(client, parameters))
    found = complete(client, scope, Told(told, chained, whole), known, of_servers.sizes)
    return replace(
        found, name=selection.name, count=extent.count, sampled=sampled, begin=extent.begin, end=extent.end
    )


def complete(
    client: Client, scope: Scope, told: Told, known: Fleets, sizes: Sizes, keep: Flags | None = None
) -> Reading:
    """All that belongs to some requests, of which `told` has been read. sizes: as in `Standing.sizes`. keep: (n,) which
    of the requests to take."""
    parameters = {**scope.parameters, "names": list(known.servers)}
    sources = [told.chains]
    spans = lacking(told.requests, told.chains)
    if spans:
        sources.append(span_chains(client, scope.chosen, parameters))
    asked, chains, unsized = assemble(told.requests, sources, known, keep)
    contents = scope.contents(chains, known, spans)
    pieces_of = scope.pieces(chains, known, asked.asked)
    (events, holder), blocks, pieces = together(
        lambda: read_events(client, contents, parameters, known, chains, told.whole),
        lambda: blocks_sent(client, contents, parameters, known),
        lambda: pieces_sent(client, pieces_of, parameters, known),
    )
    return Reading(
        name="",
        count=int(asked.asked.sum()),
        unsized=unsized,
        sampled=1,
        begin=int(chains.arrived.min(initial=0)),
        end=int(chains.arrived.max(initial=0)),
        histories=histories(sizes, known, chains.server[asked.asked]),
        fleets=known,
        asked=asked,
        chains=replace(chains, holder=holder[chains.server]),
        events=events,
        blocks_sent=blocks_by_servers(blocks, chains, asked.sent),
        pieces_sent=pieces_by_servers(pieces, chains, asked.sent),
        blocks_told=blocks,
        pieces_told=pieces,
        other_sizes=other_sizes(chains, sizes, known),
    )


def _few(hashes: Hashes) -> str:
    """A list of hashes for IN; empty where they are too many for a statement. (`apart` undoes itself.)

    One text, not a literal each: every node of a statement's syntax tree is looked at before a reader may run it.
    """
    distinct = np.unique(hashes)
    if len(distinct) > MOST_NAMED:
        return ""
    return f"CAST('[{','.join(map(str, distinct.tolist()))}]', 'Array(UInt64)')"


def measure(client: Client, selection: Selection) -> Extent:
    """How much a selection is; raises UserError when it is empty."""
    count, begin, end, servers = client.query(
        "SELECT count(), toUnixTimestamp64Micro(min(time)),"
        " toUnixTimestamp64Micro(max(time + toIntervalMicrosecond(ifNull(e2e_us, 0)))), groupUniqArray(server)"
        f" FROM requests WHERE {selection.condition}",
        parameters=selection.parameters,
    ).result_rows[0]
    if not count:
        raise UserError(f"no request matches {selection.name!r}: {inventory(client, selection.texts)}")
    return Extent(int(count), int(begin), int(end), tuple(sorted(map(str, servers))))


def _scope(
    client: Client, selection: Selection, extent: Extent, most_requests: int, most_blocks: int
) -> tuple[Scope, int]:
    """What to read, and one in how many of the selection that is."""
    parameters = {
        **selection.parameters,
        "asked_servers": list(extent.servers),
        "begin": extent.begin - BEFORE_US,
        "until": extent.end + AFTER_US,
    }
    beside = f"server IN {{asked_servers:Array(String)}} AND time >= {at('begin')} AND time <= {at('until')}"
    picked = f"({selection.condition})"
    wide = Scope(beside, picked, parameters)
    if _times_too_many(client, wide, most_requests, most_blocks) <= 1:
        return wide, 1
    narrow = Scope(f"{beside} AND {picked}", "1", parameters)
    if (sampled := _times_too_many(client, narrow, most_requests, most_blocks)) <= 1:
        return narrow, 1
    thinned = f"{narrow.condition} AND sipHash64(server, request_id) % {{sampled:UInt64}} = 0"
    return Scope(thinned, "1", {**parameters, "sampled": sampled}), sampled


def _times_too_many(client: Client, scope: Scope, most_requests: int, most_blocks: int) -> int:
    """How many times more there is than what is read at once, rounded up."""
    requests, blocks = client.query(
        f"SELECT (SELECT count() FROM requests WHERE {scope.condition}),"
        f" (SELECT sum(length(blocks)) FROM request_chains WHERE {scope.chains})",
        parameters=dict(scope.parameters),
    ).result_rows[0]
    return max(-(-int(requests) // most_requests), -(-int(blocks or 0) // most_blocks))


def requests_sql(scope: Scope, group: str = "''", tail: str = "ORDER BY time, request_id, span_id") -> str:
    """SQL of requests as `assemble` takes them. It has the parameter `names`, servers by index, beside the scope's."""
    counts = (
        *("prompt_tokens", "cached_tokens", "device_tokens", "host_tokens", "remote_tokens"),
        "recomputed_tokens",
    )
    told = ", ".join(f"ifNull(toInt64({name}), -1) AS {name}_told" for name in counts)
    return f"""
        SELECT sipHash64(server, request_id) AS whose, toUnixTimestamp64Micro(time) AS arrived, request_id,
               toString(model) AS model_name, indexOf({{names:Array(String)}}, server) - 1 AS server_at,
               ifNull({scope.picked}, 0) AS picked, toString({group}) AS grouped, {told},
               ifNull(frontend_us, 0) + ifNull(queue_us, 0) AS waited,
               ifNull(coalesce(ttft_us, client_ttft_us), -1) AS ttft, ifNull(e2e_us, -1) AS e2e,
               dialect = 'engine' AS spans_tell
        FROM requests
        WHERE {scope.condition}
        {tail}"""


def read_chains(client: Client, scope: Scope) -> Columns:
    """The chains of requests. truth: 1 for the truest of a request's, as far as it is told how they were made."""
    truest = "indexOf(['server', 'reuse', 'span', 'tokenizer', 'approximation'], toString(told_by))"
    counts = ("split_depth", "split_tokens", "pieces_from", "block_size")
    sql = f"""
        SELECT sipHash64(server, request_id) AS whose, toString(told_by) AS told_by, toInt64(prompt_tokens) AS prompt,
               toUnixTimestamp64Micro(time) AS sent, {", ".join(f"toInt64({name}) AS {name}" for name in counts)},
               isolation, template, reads_off != '' AS reads_off, blocks, pieces, piece_tokens,
               toInt64({truest}) AS truth
        FROM request_chains
        WHERE {scope.chains}
        ORDER BY truth
        LIMIT 1 BY server, request_id, request_chains.time"""
    return Columns(client, sql, scope.parameters)
