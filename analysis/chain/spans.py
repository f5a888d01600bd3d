"""Spans to columns: the requests of a chain in order of arrival, the time each spent in each layer, who answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow
from clickhouse_connect.driver.client import Client

from analysis.attribution.model import NOT_TOLD, Side
from analysis.attribution.reader import window_of
from analysis.chain.model import UNITS, Chain, Layer, Spans
from analysis.quantiles import Floats
from analysis.selection import Selection
from cachemodel.errors import UsageError, UserError
from cachemodel.printable import printable

MOST_REQUESTS = 1_000_000  # of one side; a larger one is thinned evenly
_LONGEST_S = 3600  # that spans of a trace lie from its request's beginning
_NS = 1e9
_FEW = 0.01  # of the requests


@dataclass(frozen=True)
class Extent:
    """count: requests of a selection; begin, end: its window, seconds; servers: their names, sorted."""

    count: int
    begin: float
    end: float
    servers: tuple[str, ...]


def answered_by(layer: Layer) -> str:
    """The name of a layer as what a request was answered by: not that of its time."""
    return f"answered by {layer.name}"


def chain_side(client: Client, chain: Chain, selection: Selection, most: int = MOST_REQUESTS) -> Side:
    """The requests of a selection, thinned evenly to about `most`; raises UserError where there are none.

    `layers` are the chain's, each without what lies in it; `sources` are who answered. A request is a `prompt` of 1,
    as it is answered as a whole, and its size is `completion`, 0 where the chain names none. A layer that a request
    did not reach took 0, one that no request of the side tells is NaN.
    """
    extent = _extent(client, chain, selection)
    sampled = -(-extent.count // most)
    table = _rows(client, chain, selection, extent, sampled)
    n, told = table.num_rows, [_floats(table, f"t{at}") for at in range(len(chain.layers))]
    reached = [_floats(table, f"n{at}") > 0 for at in range(len(chain.layers))]
    times = _exclusive(chain, told, reached)
    template = np.asarray(table.column("template").to_numpy(), np.int64)
    return Side(
        name=selection.name,
        arrival=_floats(table, "arrived") / _NS,
        totals=_floats(table, "took") / 1e6,
        layers=tuple(layer.name for layer in chain.layers),
        times=times,
        prompt=np.ones(n),
        completion=_floats(table, "size") if chain.workload.size else np.zeros(n),
        sources=tuple(answered_by(layer) for layer in chain.answering),
        tokens=_answers(chain, table, reached),
        template=template,
        server=np.asarray(table.column("server_at").to_numpy(), np.int64),
        servers=extent.servers,
        begin=extent.begin,
        end=extent.end,
        sampled=sampled,
        notes=tuple(_notes(chain, times, extent.count, sampled)),
    )


def attribute_names(client: Client, chain: Chain) -> list[str]:
    """Attributes that requests of the chain have, of their spans and of who sent them."""
    where, parameters = _matching(chain.request, "request")
    rows = client.query(
        "SELECT DISTINCT arrayJoin(arrayConcat(mapKeys(ResourceAttributes), mapKeys(SpanAttributes))) AS name"
        f" FROM otel_traces WHERE {where} ORDER BY name",
        parameters=parameters,
    ).result_rows
    return [str(row[0]) for row in rows]


def _requests(chain: Chain) -> tuple[str, dict[str, object]]:
    """SQL of all requests of a chain, with the columns that a selection may ask for."""
    where, parameters = _matching(chain.request, "request")
    sql = (
        "SELECT Timestamp AS time, TraceId AS request_id, toString(ServiceName) AS server, '' AS model, '' AS dialect,"
        " '' AS finish_reason, mapUpdate(ResourceAttributes, SpanAttributes) AS labels, Duration AS took"
        f" FROM otel_traces WHERE TraceId != '' AND {where} ORDER BY time LIMIT 1 BY TraceId"
    )
    return sql, parameters


def _extent(client: Client, chain: Chain, selection: Selection) -> Extent:
    if selection.numbers:
        raise UsageError(
            f"requests of a chain have no {selection.numbers[0]}: ask for a time window, server=NAME or an attribute"
        )
    requests, parameters = _requests(chain)
    count, servers, first, last, since, upto = client.query(
        f"""
        WITH all AS ({requests}), asked AS (SELECT server, time FROM all WHERE {selection.condition})
        SELECT count(), arraySort(groupUniqArray(server)), toUnixTimestamp64Nano(min(time)),
               toUnixTimestamp64Nano(max(time)), (SELECT toUnixTimestamp64Nano(min(time)) FROM all),
               (SELECT toUnixTimestamp64Nano(max(time)) FROM all)
        FROM asked
        """,
        parameters={**parameters, **selection.parameters},
    ).result_rows[0]
    if not count:
        there, period = check_there(client, chain)
        raise UserError(
            f"no request matches {selection.name!r}; {there:,} of {chain.name} are there, {period}"
        )
    begin, end = window_of(selection)
    # where nothing was recorded yet, or any more, no request is no sign of no arrivals
    begin = first / _NS if begin is None else min(max(begin, since / _NS), first / _NS)
    end = last / _NS if end is None else max(min(end, upto / _NS), last / _NS)
    return Extent(int(count), begin, end, tuple(servers))


def check_there(client: Client, chain: Chain) -> tuple[int, str]:
    """How many requests of the chain the store has, and of which time; raises UserError where it has none."""
    requests, parameters = _requests(chain)
    count, first, last = client.query(
        f"SELECT count(), min(time), max(time) FROM ({requests})", parameters=parameters
    ).result_rows[0]
    if count:
        return int(count), f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
    names = client.query(
        "SELECT DISTINCT format('{} of {}', SpanName, ServiceName) AS name FROM otel_traces ORDER BY name LIMIT 8"
    ).result_rows
    have = ", ".join(str(row[0]) for row in names) or "none: send some to hitmap's OTLP port"
    of = "" if chain.request.service == "*" else f" of {chain.request.service!r}"
    raise UserError(printable(f"no span is {chain.request.span!r}{of}; spans here: {have}", lines=False))


def _rows(client: Client, chain: Chain, selection: Selection, extent: Extent, sampled: int) -> pyarrow.Table:
    """A row a request: when, how long, and by layer how long its spans are, how many, and whether one says hit."""
    requests, parameters = _requests(chain)
    columns, conditions = [], []
    for at, layer in enumerate(chain.layers):
        if layer.spans:
            where, more = _matching(layer.spans, f"layer{at}_")
            parameters |= more
            conditions.append(where)
            columns += [f"sumIf(Duration, {where}) / 1e6 AS t{at}", f"countIf({where}) AS n{at}"]
            hit = "0"
            if layer.hit:
                hit = f"SpanAttributes[{{hit{at}:String}}] IN {{hits{at}:Array(String)}}"
                parameters |= {f"hit{at}": layer.hit.attribute, f"hits{at}": list(layer.hit.values)}
            columns.append(f"countIf({where} AND {hit}) AS h{at}")
    of_layers = ""
    if columns:
        of_layers = f"""
        LEFT JOIN
        (
            SELECT TraceId, {", ".join(columns)}
            FROM (SELECT * FROM otel_traces WHERE TraceId IN (SELECT request_id FROM asked)
                AND Timestamp >= fromUnixTimestamp64Nano({{begin:Int64}}, 'UTC')
                AND Timestamp <= fromUnixTimestamp64Nano({{end:Int64}}, 'UTC')
                AND ({" OR ".join(conditions)}) LIMIT 1 BY TraceId, SpanId)
            GROUP BY TraceId
        ) AS layers ON layers.TraceId = asked.request_id"""
    numbers = [
        f"{UNITS[layer.unit]} * toFloat64OrNull(labels[{{number{at}:String}}]) AS t{at}, t{at} IS NOT NULL AS n{at}"
        for at, layer in enumerate(chain.layers)
        if layer.attribute
    ]
    parameters |= {f"number{at}": layer.attribute for at, layer in enumerate(chain.layers) if layer.attribute}
    thinned = " AND sipHash64(request_id) % {sampled:UInt64} = 0" if sampled > 1 else ""
    table: pyarrow.Table = client.query_arrow(
        f"""
        WITH asked AS (SELECT * FROM ({requests}) WHERE ({selection.condition}){thinned})
        SELECT toUnixTimestamp64Nano(time) AS arrived, took,
               toInt64(indexOf({{servers:Array(String)}}, server)) - 1 AS server_at,
               toFloat64OrNull(labels[{{size:String}}]) AS size,
               labels[{{template:String}}] AS alike,
               if(alike = '', {NOT_TOLD}, toInt64(bitShiftRight(sipHash64(alike), 1))) AS template,
               {", ".join([*numbers, "layers.*"] if columns else numbers)}
        FROM asked{of_layers}
        ORDER BY arrived, request_id
        """,
        parameters={
            **parameters,
            **selection.parameters,
            "servers": list(extent.servers),
            "size": chain.workload.size,
            "template": chain.workload.template,
            "sampled": sampled,
            "begin": round((extent.begin - _LONGEST_S) * _NS),
            "end": round((extent.end + _LONGEST_S) * _NS),
        },
        use_strings=True,
    )
    return table


def _matching(spans: Spans, prefix: str) -> tuple[str, dict[str, object]]:
    """SQL that a span of otel_traces is one of these."""
    parts, parameters = [], {}
    for column, glob in (("SpanName", spans.span), ("ServiceName", spans.service)):
        if glob != "*":
            operator, value = ("LIKE", _like(glob)) if "*" in glob else ("=", glob)
            parts.append(f"{column} {operator} {{{prefix}{column}:String}}")
            parameters[f"{prefix}{column}"] = value
    for at, (name, value) in enumerate(spans.where.items()):
        parts.append(f"SpanAttributes[{{{prefix}k{at}:String}}] LIKE {{{prefix}v{at}:String}}")
        parameters |= {f"{prefix}k{at}": name, f"{prefix}v{at}": _like(value)}
    return f"({' AND '.join(parts) or '1'})", dict(parameters)


def _like(glob: str) -> str:
    return glob.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("*", "%")


def _exclusive(chain: Chain, told: Sequence[Floats], reached: Sequence[np.ndarray]) -> Floats:
    """(k, n) ms: each layer without those that lie in it; 0 where it was not reached, NaN where nobody tells of it."""
    names = [layer.name for layer in chain.layers]
    whole = [np.where(here, time, 0.0) for time, here in zip(told, reached, strict=True)]
    times = [time.copy() for time in whole]
    for at, layer in enumerate(chain.layers):
        if layer.parent:
            times[names.index(layer.parent)] -= whole[at]
    for time, here in zip(times, reached, strict=True):
        if not here.any():
            time[:] = np.nan
    return np.stack(times)


def _answers(chain: Chain, table: pyarrow.Table, reached: Sequence[np.ndarray]) -> Floats:
    """(s, n): 1 in the row of the first layer that says hit, else of the last where that was reached; NaN where neither
    is told."""
    answering, n = chain.answering, table.num_rows
    tokens, open_ = np.zeros((len(answering), n)), np.ones(n, np.bool_)
    for row, layer in enumerate(answering):
        at = chain.layers.index(layer)
        here = open_ & (_floats(table, f"h{at}") > 0 if layer.hit else reached[at])
        tokens[row, here] = 1.0
        open_ &= ~here
    tokens[:, open_] = np.nan
    return tokens


def _notes(chain: Chain, times: Floats, count: int, sampled: int) -> Iterator[str]:
    if sampled > 1:
        yield f"one request in {sampled} was read, of {count:,}"
    for layer, time in zip(chain.layers, times, strict=True):
        below = float((time < 0).mean())
        if below >= _FEW:
            yield f"{below:.0%} of the requests spend less in {layer.name} than in what lies in it: spans overlap"


def _floats(table: pyarrow.Table, name: str) -> Floats:
    """(n,), NaN for NULL."""
    return np.asarray(table.column(name).to_numpy(), dtype=np.float64)
