"""Which processes do a server's work? Those that its spans name, that a probe was told of, that listen on its port."""

from __future__ import annotations

from collections.abc import Iterable

from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at
from analysis.observed.model import Process
from cachemodel.observed import EXECUTABLE, HOST, PID, PORT, SERVER, SERVICE

_ALWAYS = "process.cpu.time"  # of every process that is watched
_LONGEST_WINDOW_US = 2_000_000  # of a point: what did not change is sent once a second
_PROBED = f"""
    SELECT
        ResourceAttributes['{HOST}'] AS host,
        ResourceAttributes['{PID}'] AS pid,
        ResourceAttributes['{EXECUTABLE}'] AS executable,
        ResourceAttributes['{PORT}'] AS port,
        ResourceAttributes['{SERVER}'] AS named
    FROM otel_metrics_sum
    WHERE ServiceName = '{SERVICE}' AND MetricName = '{_ALWAYS}' AND pid != ''
        AND TimeUnix >= {at("begin")} AND TimeUnix <= {at("end")} + INTERVAL {_LONGEST_WINDOW_US} MICROSECOND
    GROUP BY ALL
"""


def processes(
    client: Client, server: str, begin: int, end: int, spans: Iterable[tuple[str, int]] | None = None
) -> list[Process]:
    """Processes of a server that a probe watched in [begin, end], microseconds since 1970, by host and pid.

    spans: (host, pid) that its spans name; None: they are looked for. A port that is watched on several hosts names
    nobody: which of them the server's address means is not known.
    """
    named = set(_by_spans(client, server, begin, end) if spans is None else spans)
    port = _port(client, server)
    rows = client.query(_PROBED, parameters={"begin": begin, "end": end}).result_rows
    hosts_of_port = {host for host, _, _, watched, _ in rows if port and watched == port}
    found = {}
    for host, pid, executable, watched, told in rows:
        by = ""
        if (host, int(pid)) in named:
            by = "spans"
        elif told:
            by = "name" if told == server else ""
        elif port and watched == port and len(hosts_of_port) == 1:
            by = "port"
        if by:
            found[host, int(pid)] = Process(host, int(pid), executable, by)
    return [found[key] for key in sorted(found)]


def _by_spans(client: Client, server: str, begin: int, end: int) -> set[tuple[str, int]]:
    """As its spans' resource says."""
    rows = client.query(
        f"""
        WITH
            (
                SELECT (groupArrayIf(alias, kind = 'service.name'), groupArrayIf(alias, kind != 'service.name'))
                FROM server_aliases FINAL WHERE server = {{server:String}}
            ) AS aliases
        SELECT DISTINCT ResourceAttributes['{HOST}'], toInt64OrZero(ResourceAttributes['{PID}'])
        FROM otel_traces
        WHERE Timestamp >= {at("begin")} AND Timestamp <= {at("end")} AND ResourceAttributes['{PID}'] != ''
            AND (ServiceName = {{server:String}} OR has(aliases.1, ServiceName)
                OR has(aliases.2, ResourceAttributes['service.instance.id']))
        """,
        parameters={"server": server, "begin": begin, "end": end},
    ).result_rows
    return {(str(host), int(pid)) for host, pid in rows}


def _port(client: Client, server: str) -> str:
    """Of its address as it was attached last; empty where it was not."""
    rows = client.query(
        "SELECT toString(port(argMax(url, time))) FROM servers WHERE server = {server:String} HAVING count()",
        parameters={"server": server},
    ).result_rows
    return str(rows[0][0]) if rows and rows[0][0] != "0" else ""
