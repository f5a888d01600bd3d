"""SQL to numpy: the columns of one set of requests, in time order."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.attribution.model import NOT_TOLD, Side
from analysis.quantiles import Floats
from analysis.report.metrics import Metric
from analysis.report.model import CounterLine
from analysis.sanity.examine import parameters_of
from analysis.sanity.views import with_views
from analysis.selection import TIME, Selection, text_of
from cachemodel.errors import UserError
from cachemodel.printable import printable

MOST_REQUESTS = 200_000  # of one set; a larger one is thinned evenly
MOST_VALUES = 8  # of a label, in a message
_LONGEST_VALUE = 60  # characters
_AROUND = timedelta(minutes=1)
TOKEN_COLUMNS = (
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "device_tokens",
    "host_tokens",
    "remote_tokens",
)
# Counters that say where prompt tokens came from, by their canonical names.
COUNTERS = ("prompt_tokens_by_source", "prefix_cache.hit_tokens", "external_cache.hit_tokens", "preemptions")


@dataclass(frozen=True)
class Requests:
    """A set's requests in time order; NaN is unknown. totals: ms (n,); layers: ms (k, n); tokens by column (n,).

    begin, end: from the first arrival to the last end, UTC. arrival: seconds (n,). sampled: one in how many of those
    that match is here.
    """

    totals: Floats
    layers: Floats
    tokens: dict[str, Floats]
    begin: datetime
    end: datetime
    servers: list[str]
    arrival: Floats
    sampled: int = 1

    @property
    def n(self) -> int:
        """Requests in the set, timed or not."""
        return len(self.totals)

    def side(self, name: str) -> Side:
        """Those that are timed, as an attribution takes them: as far as their resamples need it."""
        timed = np.isfinite(self.totals)
        cached, arrival = self.tokens["cached_tokens"][timed], self.arrival[timed]
        n, ends = len(arrival), (float(arrival[0]), float(arrival[-1])) if len(arrival) else (0.0, 0.0)
        return Side(
            name=name,
            arrival=arrival,
            totals=self.totals[timed],
            layers=tuple(f"layer {at}" for at in range(len(self.layers))),
            times=self.layers[:, timed],
            prompt=self.tokens["prompt_tokens"][timed],
            completion=self.tokens["completion_tokens"][timed],
            sources=("cached",),
            tokens=cached[None],
            template=np.full(n, NOT_TOLD),
            server=np.full(n, NOT_TOLD),
            servers=tuple(self.servers),
            begin=ends[0],
            end=ends[1],
            sampled=self.sampled,
        )


def read(client: Client, selection: Selection, metric: Metric, most: int = MOST_REQUESTS) -> Requests:
    """Fetch a set, thinned evenly to about `most`; raises UserError when it is empty, saying what the store has."""
    where = f"FROM requests WHERE {selection.condition}"
    head = client.query(
        "SELECT count(), min(toTimeZone(time, 'UTC')),"
        " max(toTimeZone(time, 'UTC') + toIntervalMicrosecond(ifNull(e2e_us, 0))),"
        f" arraySort(groupUniqArray(100)(server)) {where}",
        parameters=selection.parameters,
    ).result_rows[0]
    count, begin, end, servers = int(head[0]), head[1], head[2], list(head[3])
    if not count:
        raise UserError(f"no request matches {selection.name!r}: {inventory(client, selection.texts)}")
    sampled = -(-count // most)
    if sampled > 1:
        where += " AND sipHash64(request_id, span_id) % {sampled:UInt64} = 0"
    milliseconds = [metric.total, *(layer.column for layer in metric.layers)]
    expressions = [
        "toUnixTimestamp64Micro(time) / 1e6",
        *(f"({e}) / 1000" for e in milliseconds),
        *TOKEN_COLUMNS,
    ]
    columns = ", ".join(f"ifNull(toFloat64({e}), nan) AS c{i}" for i, e in enumerate(expressions))
    matrix = np.asarray(
        client.query_np(
            f"SELECT {columns} {where} ORDER BY time, request_id, span_id",
            parameters={**selection.parameters, "sampled": sampled},
        ),
        dtype=np.float64,
    ).reshape(-1, len(expressions))
    split = 1 + len(milliseconds)
    return Requests(
        arrival=matrix[:, 0],
        totals=matrix[:, 1],
        layers=matrix[:, 2:split].T,
        tokens=dict(zip(TOKEN_COLUMNS, matrix[:, split:].T, strict=True)),
        begin=begin,
        end=end,
        servers=servers,
        sampled=sampled,
    )


def common(client: Client, a: Selection, b: Selection) -> int:
    """How many requests both sets hold."""
    sql = f"SELECT count() FROM requests WHERE ({a.condition}) AND ({b.condition})"
    return int(client.query(sql, parameters={**a.parameters, **b.parameters}).result_rows[0][0])


def label_names(client: Client) -> list[str]:
    """Labels that requests carry."""
    rows = client.query(
        "SELECT DISTINCT arrayJoin(mapKeys(labels)) AS label FROM requests ORDER BY label"
    ).result_rows
    return [str(row[0]) for row in rows]


def deployment(client: Client, name: str) -> tuple[datetime, str]:
    """When `name` was last marked as deployed, UTC, and to which server, empty for all; raises UserError with the names
    that exist."""
    rows = client.query(
        "SELECT toTimeZone(time, 'UTC'), server FROM deploys WHERE name = {name:String} ORDER BY time DESC LIMIT 1",
        parameters={"name": name},
    ).result_rows
    if rows:
        return rows[0][0].replace(tzinfo=UTC), str(rows[0][1])
    names = [
        str(r[0])
        for r in client.query("SELECT DISTINCT name FROM deploys ORDER BY name LIMIT 20").result_rows
    ]
    have = f"marked are {', '.join(names)}" if names else "none is marked: hitmap deploy mark NAME"
    raise UserError(f"no deployment {name!r}; {have}")


def check_known(client: Client, deployment: str, server: str) -> None:
    """Raise UserError when no request at all is of the server that a deployment was marked for."""
    if not server:
        return
    count = client.query(
        "SELECT count() FROM requests WHERE server = {server:String}", parameters={"server": server}
    ).result_rows[0][0]
    if not count:
        raise UserError(
            f"{deployment!r} is marked for server {server!r}, and no request is of it: {inventory(client)};"
            " mark it again with --server, or without for all"
        )


def check_not_empty(client: Client) -> None:
    """Raise UserError when the store has no request at all."""
    if not client.query("SELECT count() FROM requests").result_rows[0][0]:
        raise UserError(inventory(client))


def inventory(client: Client, texts: Sequence[str] = ()) -> str:
    """One line on what the store has. texts: text columns and labels whose values are named."""
    count, begin, end, servers = client.query(
        "SELECT count(), min(toTimeZone(time, 'UTC')), max(toTimeZone(time, 'UTC')),"
        " arraySort(groupUniqArray(5)(server)) FROM requests"
    ).result_rows[0]
    if not count:
        return "the store has no requests yet; attach a server or run hitmap demo"
    tail = "".join(f"; {name}: {_values(client, name)}" for name in texts)
    period = f"{begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"
    return printable(f"the store has {count:,} requests of {', '.join(servers)}, {period}{tail}")


def _values(client: Client, name: str) -> str:
    """The commonest values of a text column or label, each with the number of its requests."""
    subject, parameters = text_of(name, "name")
    rows = client.query(
        f"SELECT {subject} AS value, count() AS n FROM requests GROUP BY value"
        " ORDER BY n DESC, value LIMIT {most:UInt64}",
        parameters={**parameters, "most": MOST_VALUES + 1},
    ).result_rows
    named = [f"{_shortened(value) or 'none'} ({n:,})" for value, n in rows[:MOST_VALUES]]
    return ", ".join(named + (["and others"] if len(rows) > MOST_VALUES else []))


def _shortened(value: str) -> str:
    return value if len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE] + "..."


def spans_elsewhere(client: Client, requests: Requests) -> str:
    """What to do where the spans of a set's servers seem to come under another name; empty where they do not."""
    begin, end = (time.replace(tzinfo=UTC) for time in (requests.begin, requests.end))
    rows = client.query(
        with_views(
            "SELECT server, twin FROM twins WHERE server IN {servers:Array(String)} ORDER BY spans DESC LIMIT 1"
        ),
        parameters=parameters_of(requests.servers, begin - _AROUND, end + _AROUND),
    ).result_rows
    if not rows:
        return ""
    server, twin = rows[0]
    return printable(
        f"; {server} has no spans, those of {twin} may be its own: attach it with --service {shlex.quote(twin)}"
    )


def counters(client: Client, a: Requests, b: Requests) -> list[CounterLine]:
    """What the servers' own counters grew by while each set's requests ran: from the last scrape before the first
    request to the first scrape after the last, so that a set between two scrapes is not lost."""
    which = """
        SELECT fingerprint FROM series
        WHERE metric IN {metrics:Array(String)} AND server IN {servers:Array(String)}
    """
    parameters: dict[str, object] = {"metrics": list(COUNTERS), "servers": sorted({*a.servers, *b.servers})}
    for side, requests in (("a", a), ("b", b)):
        begin, end = client.query(
            f"""
            SELECT
                toTimeZone(maxOrNullIf(time, time <= {{begin:{TIME}}}), 'UTC'),
                toTimeZone(minOrNullIf(time, time >= {{end:{TIME}}}), 'UTC')
            FROM samples
            WHERE fingerprint IN ({which}) AND time BETWEEN {{begin:{TIME}}} - INTERVAL 1 HOUR
                AND {{end:{TIME}}} + INTERVAL 1 HOUR
            """,
            parameters={**parameters, "begin": str(requests.begin), "end": str(requests.end)},
        ).result_rows[0]
        parameters |= {f"{side}_begin": str(begin or requests.begin), f"{side}_end": str(end or requests.end)}
    rows = client.query(
        f"""
        SELECT s.server, s.metric, s.source, s.unit,
               sumOrNullIf(delta, time > {{a_begin:{TIME}}} AND time <= {{a_end:{TIME}}}) AS grown_a,
               sumOrNullIf(delta, time > {{b_begin:{TIME}}} AND time <= {{b_end:{TIME}}}) AS grown_b
        FROM samples
        INNER JOIN
        (
            SELECT DISTINCT fingerprint, server, metric, unit, labels['source'] AS source
            FROM series
            WHERE fingerprint IN ({which})
        ) AS s USING (fingerprint)
        WHERE time BETWEEN least({{a_begin:{TIME}}}, {{b_begin:{TIME}}})
                       AND greatest({{a_end:{TIME}}}, {{b_end:{TIME}}})
        GROUP BY s.server, s.metric, s.source, s.unit
        ORDER BY s.server, s.metric, s.source
        """,
        parameters=parameters,
    ).result_rows
    return [CounterLine(*row) for row in rows if row[4] or row[5]]
