"""The user's own past: requests like those of A from before, and when something was deployed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from clickhouse_connect.driver.client import Client

from analysis.attribution.certainty.onset import Deploys
from analysis.attribution.certainty.placebo import MOST_PAIRS, Spans
from analysis.attribution.model import Side
from analysis.attribution.reader import read_side
from analysis.report.metrics import Metric
from analysis.selection import Selection
from cachemodel.errors import UserError

MOST_REQUESTS = 500_000  # of the past, the latest
NOT_ASKED = "windows of the past were not looked at (--fast)"


@dataclass(frozen=True)
class Past:
    """deploys: when something was deployed. history: requests like those of A, None where there are none, for the
    reason `why`; spans: stretches of it without a deployment and without B, seconds."""

    deploys: Deploys
    history: Side | None = None
    spans: Spans = ()
    why: str = NOT_ASKED


def deploys(client: Client, a: Side, b: Side) -> Deploys:
    """Deployments of the servers of both sides, and of all servers, in the order of time."""
    rows = client.query(
        "SELECT toUnixTimestamp64Micro(time) / 1e6 AS at, name FROM deploys"
        " WHERE server = '' OR server IN {servers:Array(String)} ORDER BY at, name",
        parameters={"servers": sorted({*a.servers, *b.servers})},
    ).result_rows
    return [(float(at), str(name)) for at, name in rows]


def past_of(client: Client, selection: Selection, a: Side, b: Side, metric: Metric, marked: Deploys) -> Past:
    """Requests that A's selection asks for apart from its windows, up to the end of A."""
    length = a.end - a.begin
    begin, end = a.end - 2 * (MOST_PAIRS + 1) * length, a.end
    first = _first(client, selection, begin, end)
    if first is None or end <= first:
        return Past(marked, why="there are no requests from before")
    past = replace(selection.at(_utc(first), _utc(end), "past"), name="the past")
    try:
        side = read_side(client, past, metric, causes=False)
    except UserError as error:
        return Past(marked, why=str(error))
    apart = [(b.begin, b.end), *((at, at) for at, _ in marked)]
    return Past(marked, side, _without([(first, end)], apart))


def _first(client: Client, selection: Selection, begin: float, end: float) -> float | None:
    """The time of the earliest of the latest MOST_REQUESTS, seconds."""
    past = selection.at(_utc(begin), _utc(end), "past")
    found = client.query(
        "SELECT toUnixTimestamp64Micro(minOrNull(time)) / 1e6 FROM"
        f" (SELECT time FROM requests WHERE {past.condition} ORDER BY time DESC LIMIT {{most:UInt64}})",
        parameters={**past.parameters, "most": MOST_REQUESTS},
    ).result_rows[0][0]
    return None if found is None else float(found)


def _without(spans: Spans, apart: Sequence[tuple[float, float]]) -> Spans:
    """Spans cut where something happened."""
    for low, high in apart:
        cut = [(begin, min(end, low)) for begin, end in spans]
        cut += [(max(begin, high), end) for begin, end in spans]
        spans = sorted({(begin, end) for begin, end in cut if end > begin})
    return spans


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
