"""Commands that tell more of an alert."""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from analysis.alerts.model import Alert
from analysis.observed.serving import servers as servers_at

_BEFORE = timedelta(minutes=5)  # to compare with, at least
_MOST_TRACED = 100
_ENDS_A_TERM = re.compile(r"[,\s]")
_SLOWEST = """
SELECT alert, argMax(request_id, e2e_us) AS id
FROM requests
INNER JOIN
(
    SELECT a.1 AS alert, a.2 AS of_server, a.3 AS from_s, a.4 AS to_s
    FROM (SELECT arrayJoin({alerts:Array(Tuple(UInt32, String, Int64, Int64))}) AS a)
) AS asked ON server = of_server
WHERE time >= toDateTime64({first:Int64}, 6) AND time < toDateTime64({past:Int64}, 6) AND e2e_us IS NOT NULL
    AND time >= toDateTime64(from_s, 6) AND time < toDateTime64(to_s, 6)
GROUP BY alert
"""


class _Watched(NamedTuple):
    """A process that an alert is about."""

    host: str
    pid: int | None
    port: str
    server: str


def servers_of(client: Client, alerts: Sequence[Alert]) -> dict[str, str]:
    """Whose server an alert is about, by `key`: the one it names, or the one whose spans name its process."""
    named = {key(alert): server for alert in alerts if (server := alert.labels.get("server"))}
    others = [a for a in alerts if key(a) not in named and a.labels.get("pid", "").isdecimal()]
    if not others:
        return named
    begin, end = min(a.start for a in others), max(a.end for a in others)
    try:
        server_of = servers_at(client, *(round(1e6 * edge.timestamp()) for edge in (begin, end)))
    except DatabaseError:
        return named
    for alert in others:
        process = _Watched(alert.labels.get("host", ""), int(alert.labels["pid"]), "", "")
        if server := server_of(process):
            named[key(alert)] = server
    return named


def slowest_requests(client: Client, alerts: Sequence[Alert], servers: Mapping[str, str]) -> dict[str, str]:
    """The slowest request that arrived in the worst window of an alert, by its fingerprint and start (`key`); of alerts
    whose server is known, the first hundred. One query."""
    traced = [alert for alert in alerts if key(alert) in servers][:_MOST_TRACED]
    if not traced:
        return {}
    spans = [(int(a.worst_at.timestamp()), int(a.worst_at.timestamp()) + a.rule.window_s) for a in traced]
    asked = [
        (i, servers[key(alert)], *span) for i, (alert, span) in enumerate(zip(traced, spans, strict=True))
    ]
    parameters = {
        "alerts": asked,
        "first": min(begin for begin, _ in spans),
        "past": max(end for _, end in spans),
    }
    try:
        rows = client.query(_SLOWEST, parameters=parameters).result_rows
    except DatabaseError:
        return {}  # an alert without this line is still one
    return {key(traced[number]): str(id) for number, id in rows}


def key(alert: Alert) -> str:
    return f"{alert.fingerprint} {alert.start.timestamp():.0f}"


def commands(alert: Alert, slowest: Mapping[str, str], servers: Mapping[str, str]) -> tuple[str, ...]:
    """The rule's commands about this alert, ready for a shell; one that names what is not known of it is left out."""
    values = {name: _ENDS_A_TERM.sub("*", value) for name, value in alert.labels.items()}
    values |= {
        "start": _iso(alert.start),
        "end": _iso(alert.end),
        "before": _iso(alert.start - max(_BEFORE, alert.end - alert.start)),
    }
    if server := servers.get(key(alert)):
        values |= {"server_name": server, "server": _ENDS_A_TERM.sub("*", server)}
    if request := slowest.get(key(alert)):
        values["slowest"] = request
    told = (_told(command, values) for command in alert.rule.look)
    return tuple(command for command in told if command)


def _told(command: str, values: Mapping[str, str]) -> str:
    """A command with its values, each word quoted; empty where a value is not known."""
    words = []
    for word in command.split():
        parts = list(string.Formatter().parse(word))
        if any(name is not None and name not in values for _, name, _, _ in parts):
            return ""
        words.append("".join(text + (values[name] if name is not None else "") for text, name, _, _ in parts))
    return shlex.join(words)


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
