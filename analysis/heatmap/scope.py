"""Which prompts a heatmap is of, as SQL conditions on the tables that tell of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at
from analysis.report.reader import inventory
from analysis.selection import Selection
from cachemodel.errors import UserError

MOST_REQUESTS = 200_000  # that are looked up one by one; of more, one in so many
MOST_ROWS = 30
MOST_TIMES = 36
_USUAL_BLOCK = 16  # tokens, where no prompt says
_HOUR_US = 3_600_000_000
_WIDTHS_S = (1, 10, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 86400, 7 * 86400)


@dataclass(frozen=True)
class Scope:
    """depths, chains: conditions on `chain_depths` and `request_chains` that choose the same prompts, with their
    parameters. row: SQL of the row that a prompt is in, width_s seconds wide by time. sampled: one in how many of them
    the conditions choose. requests, blocks, longest (tokens), begin, end (microseconds): of the chosen ones; top: the
    templates of most of them."""

    depths: str
    chains: str
    parameters: Mapping[str, object]
    sampled: int
    requests: int = 0
    blocks: int = 0
    longest: int = 0
    begin: int = 0
    end: int = 0
    block_sizes: tuple[int, ...] = ()
    servers: tuple[str, ...] = ()
    templates: int = 0
    top: tuple[int, ...] = ()
    row: str = "template"
    width_s: int = 0

    def of_rows(self, keys: list[int]) -> Scope:
        """Only the prompts of these rows; told by the parameter `rows`."""
        shown = f" AND {self.row} IN (SELECT arrayJoin({{rows:Array(UInt64)}}))"
        return replace(
            self,
            depths=self.depths + shown,
            chains=self.chains + shown,
            parameters={**self.parameters, "rows": keys},
        )


def scope(client: Client, selection: Selection, by: str, most_requests: int = MOST_REQUESTS) -> Scope:
    """What a selection asks for; raises UserError where it has no prompts, saying what the store has."""
    if set(selection.texts) <= {"server", "model"} and not selection.numbers:
        # these columns prompts have, too, though their times are the clients'
        found = Scope(f"({selection.condition})", f"({selection.condition})", selection.parameters, 1)
    else:
        found = _looked_up(client, selection, most_requests)
    count, blocks, longest, begin, end, sizes, servers, templates, top = client.query(
        f"""
        SELECT sum(n), sum(blocks), max(longest), min(begin), max(end), groupUniqArrayArray(100)(sizes),
               groupUniqArrayArray(100)(servers), count(),
               arraySlice(arraySort(pair -> (-toInt64(pair.2), pair.1), groupArray((template, n))), 1, {MOST_ROWS})
        FROM
        (
            SELECT template, count() AS n, sum(depth) AS blocks, max((depth + 1) * block_size) AS longest,
                   toUnixTimestamp64Micro(min(time)) AS begin, toUnixTimestamp64Micro(max(time)) AS end,
                   groupUniqArray(100)(block_size) AS sizes, groupUniqArray(100)(server) AS servers
            FROM chain_depths WHERE {found.depths}
            GROUP BY template
        )""",
        parameters=dict(found.parameters),
    ).result_rows[0]
    if not count:
        raise _nothing(client, selection)
    found = replace(
        found,
        requests=int(count),
        blocks=int(blocks),
        longest=int(longest),
        begin=int(begin),
        end=int(end),
        block_sizes=tuple(sorted(int(size) for size in sizes if size)) or (_USUAL_BLOCK,),
        servers=tuple(sorted(map(str, servers))),
        templates=int(templates),
        top=tuple(int(template) for template, _ in top),
    )
    return _by_time(found) if by == "time" else found


def _by_time(found: Scope) -> Scope:
    seconds = (found.end - found.begin) // 1_000_000 + 1
    width = next((w for w in _WIDTHS_S if seconds < w * (MOST_TIMES - 1)), 0)
    if not width:
        width = -(-seconds // (MOST_TIMES - 1) // 86400) * 86400 or 86400
    row = f"intDiv(toUnixTimestamp64Micro(time), {width}000000) * {width}"
    return replace(found, row=f"toUInt64({row})", width_s=width)


def _looked_up(client: Client, selection: Selection, most: int) -> Scope:
    """By what only `requests` tells, one in so many where they are many."""
    count, begin, end = client.query(
        "SELECT count(), toUnixTimestamp64Micro(min(time)), toUnixTimestamp64Micro(max(time)) FROM requests"
        f" WHERE {selection.condition}",
        parameters=selection.parameters,
    ).result_rows[0]
    sampled = max(1, -(-int(count) // most))
    thin = "AND sipHash64(server, request_id) % {thin:UInt64} = 0" if sampled > 1 else ""
    chosen = f"(SELECT sipHash64(server, request_id) FROM requests WHERE ({selection.condition}) {thin})"
    around = f"time >= {at('since')} AND time <= {at('upto')}"
    parameters = {
        **selection.parameters,
        "since": int(begin) - _HOUR_US,
        "upto": int(end) + _HOUR_US,
        "thin": sampled,
    }
    return Scope(
        f"{around} AND request IN {chosen}",
        f"{around} AND sipHash64(server, request_id) IN {chosen}",
        parameters,
        sampled,
    )


def _nothing(client: Client, selection: Selection) -> UserError:
    count = client.query(
        f"SELECT count() FROM requests WHERE {selection.condition}", parameters=selection.parameters
    ).result_rows[0][0]
    if not count:
        return UserError(f"no request matches {selection.name!r}: {inventory(client, selection.texts)}")
    return UserError(
        f"of the {count:,} requests of {selection.name!r} no prompt is known: read their log with"
        " hitmap attach URL --log FILE --tokenizer PATH, which keeps hashes and no text"
    )


def moment(microseconds: int) -> str:
    """ISO, UTC."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec="seconds")
