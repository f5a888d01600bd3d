"""SQL to columns: a set of requests in order of arrival, with all that explains where their time went."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import pyarrow
from clickhouse_connect.driver.client import Client

from analysis.attribution.model import Ints, Side
from analysis.attribution.tokens import COMPUTED, Counted, by_cause, by_tier
from analysis.quantiles import Floats
from analysis.report.metrics import Metric
from analysis.report.reader import inventory
from analysis.selection import Selection
from cachemodel.errors import UserError
from cachemodel.layers import SERVING_LAYERS, Tier
from cachemodel.observed import SPAN_COUNTERS

MOST_REQUESTS = 1_000_000  # of one side; a larger one is thinned evenly
_MICRO = 1e6
_BOUND = re.compile(r"\btime\s*([<>])=?\s*\{(\w+):")
SPENT = tuple(counter.name for counter in SPAN_COUNTERS)
_TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens", *(f"{tier}_tokens" for tier in Tier))


@dataclass(frozen=True)
class _Extent:
    """count: requests of a selection; begin, end: its window, seconds; servers: their names, sorted."""

    count: int
    begin: float
    end: float
    servers: tuple[str, ...]


def read_side(
    client: Client, selection: Selection, metric: Metric, most: int = MOST_REQUESTS, *, causes: bool = True
) -> Side:
    """The requests of a selection of which the metric is known, thinned evenly to about `most`.

    `layers` are the metric's, the other serving layers, `ttft` and `e2e` stand beside. `sources` are tiers and then
    miss causes (analysis.misses, climbed anew), or "computed" alone where no prompt is known as a chain. template: its
    keyed hash, which is the same on both sides. causes: False saves the ladder. Raises UserError where the selection is
    empty or the metric not told.
    """
    extent = _extent(client, selection)
    sampled = -(-extent.count // most)
    table = _rows(client, selection, metric, extent, sampled)
    totals = _floats(table, "total")
    timed = np.isfinite(totals)
    if not timed.any():
        raise UserError(
            f"no request of {selection.name!r} tells its {metric.meaning}: ask for another --metric"
        )
    counted = Counted(
        client=client,
        selection=selection,
        arrived=_ints(table, "arrived"),
        request_id=table.column("request_id"),
        server=_ints(table, "server_at"),
        prompt=_floats(table, "prompt_tokens"),
        cached=_floats(table, "cached_tokens"),
        tiers=np.stack([_floats(table, f"{tier}_tokens") for tier in Tier]),
    )
    found = by_cause(counted) if causes else by_tier(counted)
    side = Side(
        name=selection.name,
        arrival=counted.arrived / _MICRO,
        totals=totals,
        layers=tuple(layer.name for layer in metric.layers),
        times=_stacked([_floats(table, layer.name) for layer in metric.layers], len(totals)),
        prompt=found.prompt,
        completion=_floats(table, "completion_tokens"),
        sources=found.names,
        tokens=found.tokens,
        template=found.template,
        server=counted.server,
        servers=extent.servers,
        begin=extent.begin,
        end=extent.end,
        sampled=sampled,
        beside={name: _floats(table, name) for name in _beside(metric)},
        observed={name: _floats(table, name) for name in SPENT if name in table.column_names},
        notes=(*_of_reading(extent.count, sampled, int((~timed).sum()), metric), *found.notes),
    )
    return side if timed.all() else side.subset(timed)


def alike(a: Side, b: Side) -> tuple[Side, Side]:
    """Both with the same sources in the same order: causes only where both have them."""
    if not a.n or not b.n or a.sources == b.sources:
        return a, b
    if any(COMPUTED in side.sources for side in (a, b)):
        a, b = _without_causes(a), _without_causes(b)
    names = tuple(dict.fromkeys([*a.sources, *b.sources]))
    tiers = [name for name in names if name in _TIERS]
    names = (*tiers, *(name for name in names if name not in tiers))
    return _with_sources(a, names), _with_sources(b, names)


_TIERS = (*Tier, "cached")


def _without_causes(side: Side) -> Side:
    served = [at for at, name in enumerate(side.sources) if name in _TIERS]
    tokens = side.tokens[served]
    names = (*(side.sources[at] for at in served), COMPUTED)
    return replace(side, sources=names, tokens=np.vstack([tokens, side.prompt - tokens.sum(axis=0)]))


def _with_sources(side: Side, names: Sequence[str]) -> Side:
    """Sources that a side lacks gave no token, where its tokens are known."""
    none = np.where(np.isnan(side.tokens).any(axis=0), np.nan, 0.0)
    rows = [side.tokens[side.sources.index(name)] if name in side.sources else none for name in names]
    return replace(side, sources=tuple(names), tokens=np.stack(rows))


def _beside(metric: Metric) -> list[str]:
    asked = {layer.name for layer in metric.layers}
    return [*(layer.name for layer in SERVING_LAYERS if layer.name not in asked), "ttft", "e2e"]


def _extent(client: Client, selection: Selection) -> _Extent:
    """Raises UserError where nothing matches, saying what the store has."""
    count, servers, first, last, since, upto = client.query(
        f"""
        WITH asked AS (SELECT server, time, e2e_us FROM requests WHERE {selection.condition})
        SELECT count(), arraySort(groupUniqArray(toString(server))), toUnixTimestamp64Micro(min(time)),
               toUnixTimestamp64Micro(max(time)),
               (SELECT toUnixTimestamp64Micro(min(time)) FROM requests WHERE server IN (SELECT server FROM asked)),
               (SELECT toUnixTimestamp64Micro(max(time)) FROM requests WHERE server IN (SELECT server FROM asked))
        FROM asked
        """,
        parameters=selection.parameters,
    ).result_rows[0]
    if not count:
        raise UserError(f"no request matches {selection.name!r}: {inventory(client, selection.texts)}")
    begin, end = window_of(selection)
    # where nothing was recorded yet, or any more, no request is no sign of no arrivals
    begin = first / _MICRO if begin is None else min(max(begin, since / _MICRO), first / _MICRO)
    end = last / _MICRO if end is None else max(min(end, upto / _MICRO), last / _MICRO)
    return _Extent(int(count), begin, end, tuple(servers))


def window_of(selection: Selection) -> tuple[float | None, float | None]:
    """From when to when a selection asks for requests, seconds; None where it does not say."""
    bounds: dict[str, list[float]] = {">": [], "<": []}
    for sign, name in _BOUND.findall(selection.condition):
        time = datetime.fromisoformat(str(selection.parameters[name])).replace(tzinfo=UTC)
        bounds[sign].append(time.timestamp())
    return max(bounds[">"], default=None), min(bounds["<"], default=None)


def _rows(
    client: Client, selection: Selection, metric: Metric, extent: _Extent, sampled: int
) -> pyarrow.Table:
    milliseconds = {layer.name: layer.column for layer in SERVING_LAYERS}
    milliseconds |= {"ttft": "ttft_us", "e2e": "e2e_us", "total": metric.total}
    times = (f"toFloat64({sql}) / 1000 AS {name}" for name, sql in milliseconds.items())
    # names of their own: an alias that is a column's name would stand for it in the condition, too
    tokens = (f"toFloat64({name}) AS {name}_told" for name in _TOKENS)
    spent = (
        f"if(mapContains(observed, '{name}'), observed['{name}'], NULL) AS `{name}`"
        for name in _spent(client, selection)
    )
    thinned = " AND sipHash64(request_id, span_id) % {sampled:UInt64} = 0" if sampled > 1 else ""
    table: pyarrow.Table = client.query_arrow(
        f"""
        SELECT toUnixTimestamp64Micro(time) AS arrived, request_id,
               toInt64(indexOf({{servers:Array(String)}}, server)) - 1 AS server_at,
               {", ".join((*times, *tokens, *spent))}
        FROM requests
        WHERE ({selection.condition}){thinned}
        ORDER BY time, request_id, span_id
        """,
        parameters={**selection.parameters, "servers": list(extent.servers), "sampled": sampled},
        use_strings=True,
    )
    return table.rename_columns([name.removesuffix("_told") for name in table.column_names])


def _spent(client: Client, selection: Selection) -> list[str]:
    """Counters of threads that some of its requests tell: mostly none, and then there is no map to be read."""
    rows = client.query(
        f"SELECT groupUniqArrayArray(mapKeys(observed)) FROM requests WHERE {selection.condition}",
        parameters=selection.parameters,
    ).result_rows
    return sorted(set(rows[0][0]) & set(SPENT))


def _floats(table: pyarrow.Table, name: str) -> Floats:
    """(n,), NaN for NULL."""
    return np.asarray(table.column(name).to_numpy(), dtype=np.float64)


def _ints(table: pyarrow.Table, name: str) -> Ints:
    return np.asarray(table.column(name).to_numpy(), dtype=np.int64)


def _stacked(rows: list[Floats], n: int) -> Floats:
    return np.stack(rows) if rows else np.zeros((0, n))


def _of_reading(count: int, sampled: int, untimed: int, metric: Metric) -> list[str]:
    notes = []
    if sampled > 1:
        notes.append(f"one request in {sampled} was read, of {count:,}")
    if untimed:
        notes.append(f"requests that do not tell their {metric.meaning} are left out: {untimed:,}")
    return notes
