"""Which processes do a server's work? Those that its spans name, that a probe was told of, that listen on its port."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at, together
from analysis.observed.model import Process
from analysis.observed.points import IS_PID, LONGEST_US
from cachemodel.observed import EXECUTABLE, HOST, PID, PORT, SERVER, SERVICE

_ALWAYS = "process.cpu.time"  # of every process that is watched
_FEW = 200  # moments of a long time, spread over it, at which is looked who is there
# A day of points of many processes is not read to learn their names.
_PROBED = f"""
    SELECT
        ResourceAttributes['{HOST}'] AS host,
        ResourceAttributes['{PID}'] AS pid,
        ResourceAttributes['{EXECUTABLE}'] AS executable,
        ResourceAttributes['{PORT}'] AS port,
        ResourceAttributes['{SERVER}'] AS named
    FROM otel_metrics_sum
    WHERE ServiceName = '{SERVICE}' AND MetricName = '{_ALWAYS}'
        AND TimeUnix > {at("begin")} AND TimeUnix <= {at("end")} + INTERVAL {LONGEST_US} MICROSECOND
        AND StartTimeUnix < {at("end")} AND cityHash64(TimeUnix) % {{every:Int64}} = 0 AND {IS_PID}
    GROUP BY ALL
"""


Spans = Mapping[str, set[tuple[str, int]]]
"""Host and pid, as the spans of a server name them, by server."""


def processes(
    client: Client, server: str, begin: int, end: int, spans: Iterable[tuple[str, int]] | None = None
) -> list[Process]:
    """Processes of a server that a probe watched in [begin, end], microseconds since 1970, by host and pid.

    spans: (host, pid) that its spans name; None: they are looked for. A process works for the port of the one that
    started it: beside one that spans name, those with its port are meant, too. Otherwise a port that is watched on
    several hosts names nobody: which of them the server's address means is not known.
    """
    return by_server(client, [server], begin, end, None if spans is None else {server: set(spans)})[server]


def by_server(
    client: Client, servers: Sequence[str], begin: int, end: int, spans: Spans | None = None
) -> dict[str, list[Process]]:
    """The same of several servers."""
    every = max(1, (end - begin) // (_FEW * LONGEST_US))
    rows = client.query(_PROBED, parameters={"begin": begin, "end": end, "every": every}).result_rows
    if not rows:
        return {server: [] for server in servers}
    told, ports = together(
        lambda: _by_spans(client, servers, begin, end) if spans is None else spans,
        lambda: ports_of(client, servers),
    )
    return {server: _of(rows, server, told.get(server, set()), ports.get(server, "")) for server in servers}


def _of(rows: Iterable[Sequence[Any]], server: str, told: set[tuple[str, int]], port: str) -> list[Process]:
    beside = {(host, watched) for host, pid, _, watched, _ in rows if watched and (host, int(pid)) in told}
    of_port = {(host, watched) for host, _, _, watched, _ in rows if port and watched == port}
    if not beside and len(of_port) == 1:
        beside = of_port
    found = {}
    for host, pid, executable, watched, named in rows:
        by = ""
        if (host, int(pid)) in told:
            by = "spans"
        elif named:
            by = "name" if named == server else ""
        elif (host, watched) in beside:
            by = "port"
        if by:
            found[host, int(pid), executable] = Process(host, int(pid), executable, by)
    return [found[key] for key in sorted(found)]


def _by_spans(client: Client, servers: Sequence[str], begin: int, end: int) -> Spans:
    """As their spans' resource says; of a long time some seconds of spans are looked at."""
    aliases = client.query(
        "SELECT kind = 'service.name', alias, server FROM server_aliases FINAL"
        " WHERE server IN {servers:Array(String)}",
        parameters={"servers": list(servers)},
    ).result_rows
    services = {server: server for server in servers} | {alias: of for name, alias, of in aliases if name}
    instances = {alias: of for name, alias, of in aliases if not name}
    rows = client.query(
        f"""
        SELECT DISTINCT ServiceName, ResourceAttributes['service.instance.id'] AS instance,
               ResourceAttributes['{HOST}'], toInt64OrZero(ResourceAttributes['{PID}'])
        FROM otel_traces
        WHERE Timestamp >= {at("begin")} AND Timestamp <= {at("end")}
            AND toUnixTimestamp(Timestamp) % {{every:Int64}} = 0 AND {IS_PID}
            AND (ServiceName IN {{services:Array(String)}} OR instance IN {{instances:Array(String)}})
        """,
        parameters={
            "services": list(services),
            "instances": list(instances),
            "begin": begin,
            "end": end,
            "every": max(1, (end - begin) // (_FEW * 1_000_000)),
        },
    ).result_rows
    found: dict[str, set[tuple[str, int]]] = {}
    for service, instance, host, pid in rows:
        found.setdefault(instances.get(instance) or services[service], set()).add((str(host), int(pid)))
    return found


def ports_of(client: Client, servers: Sequence[str]) -> dict[str, str]:
    """Of their addresses as they were attached last; without those that were not."""
    rows = client.query(
        "SELECT server, toString(port(argMax(url, time))) AS last FROM servers"
        " WHERE server IN {servers:Array(String)} GROUP BY server HAVING last != '0'",
        parameters={"servers": list(servers)},
    ).result_rows
    return {str(server): str(port) for server, port in rows}
