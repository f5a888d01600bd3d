"""A latency over time: what a person looks at before saying which two windows to compare."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from clickhouse_connect.driver.client import Client

from analysis.report.metrics import Metric
from analysis.selection import TIME

BINS = 240
QUANTILES = (0.5, 0.99)


@dataclass(frozen=True, slots=True)
class Bin:
    """Requests that arrived in [begin, begin + width). n: those with the metric; p50, p99: ms."""

    begin: datetime
    n: int
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Course:
    """Bins of one width in order of time, those without requests left out; width_s: seconds."""

    width_s: float
    bins: list[Bin]


@dataclass(frozen=True, slots=True)
class Marker:
    """A deployment that was marked. server: empty for all."""

    time: datetime
    name: str
    server: str
    what: str


def latency(client: Client, metric: Metric, begin: datetime, end: datetime, bins: int = BINS) -> Course:
    """The metric's P50 and P99 between two times, in at most about `bins` bins of whole milliseconds."""
    width_ms = max(1, round(1000 * (end - begin).total_seconds() / bins))
    rows = client.query(
        f"""
        SELECT toStartOfInterval(toTimeZone(time, 'UTC'), toIntervalMillisecond({{width:UInt64}})) AS bin,
               count(), quantiles({", ".join(map(str, QUANTILES))})(({metric.total}) / 1000)
        FROM requests
        WHERE time >= {{begin:{TIME}}} AND time < {{end:{TIME}}} AND ({metric.total}) IS NOT NULL
        GROUP BY bin ORDER BY bin
        """,
        parameters={"width": width_ms, "begin": _text(begin), "end": _text(end)},
    ).result_rows
    found = [Bin(bin_.replace(tzinfo=UTC), int(n), float(p50), float(p99)) for bin_, n, (p50, p99) in rows]
    return Course(width_ms / 1000, found)


def markers(client: Client, most: int = 100) -> list[Marker]:
    """The last deployments that were marked, newest first."""
    rows = client.query(
        "SELECT toTimeZone(time, 'UTC'), name, server, what FROM deploys ORDER BY time DESC LIMIT {most:UInt32}",
        parameters={"most": most},
    ).result_rows
    return [
        Marker(time.replace(tzinfo=UTC), str(name), str(server), str(what))
        for time, name, server, what in rows
    ]


def _text(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
