"""Which processes do a server's work? Those that its spans name, that a probe was told of, that listen on its port."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at, together
from analysis.observed.identity import NAMES, SHARED, Name, exactness
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
        ResourceAttributes['{SERVER}'] AS named,
        {NAMES} AS names
    FROM otel_metrics_sum
    WHERE ServiceName = '{SERVICE}' AND MetricName = '{_ALWAYS}'
        AND TimeUnix > {at("begin")} AND TimeUnix <= {at("end")} + INTERVAL {LONGEST_US} MICROSECOND
        AND StartTimeUnix < {at("end")} AND cityHash64(TimeUnix) % {{every:Int64}} = 0 AND {IS_PID}
    GROUP BY ALL
"""


class Probed(NamedTuple):
    """A process as its probe tells it. port: where it or its parent listens, server: as its probe was given it, both
    empty for none."""

    host: str
    pid: int
    executable: str
    port: str
    server: str
    names: Sequence[Name]

    @property
    def door(self) -> tuple[str, str, frozenset[Name]]:
        """Containers of one host may all listen on the same port, each on its own."""
        return self.host, self.port, frozenset(name for name in self.names if name[0] in SHARED)


Spans = Mapping[str, set[Name]]
"""Processes as the spans of a server name them, by server."""


def processes(
    client: Client, server: str, begin: int, end: int, spans: Iterable[Name] | None = None
) -> list[Process]:
    """Processes of a server that a probe watched in [begin, end], microseconds since 1970, by host and pid.

    spans: processes as its spans name them; None: they are looked for. A process works for the port of the one that
    started it: beside one that spans name, those with its port are meant, too. Otherwise a port that is watched on
    several hosts names nobody: which of them the server's address means is not known. A pod that spans name means all
    that runs in it, where they name nothing more exactly.
    """
    return by_server(client, [server], begin, end, None if spans is None else {server: set(spans)})[server]


def by_server(
    client: Client, servers: Sequence[str], begin: int, end: int, spans: Spans | None = None
) -> dict[str, list[Process]]:
    """The same of several servers."""
    rows = probed(client, begin, end)
    if not rows:
        return {server: [] for server in servers}
    told, ports = together(
        lambda: _by_spans(client, servers, begin, end) if spans is None else spans,
        lambda: ports_of(client, servers),
    )
    return {server: _of(rows, server, told.get(server, set()), ports.get(server, "")) for server in servers}


def probed(client: Client, begin: int, end: int) -> list[Probed]:
    """Whom probes watched in [begin, end], microseconds since 1970; of a long time at some moments."""
    every = max(1, (end - begin) // (_FEW * LONGEST_US))
    rows = client.query(_PROBED, parameters={"begin": begin, "end": end, "every": every}).result_rows
    return [Probed(host, int(pid), *rest) for host, pid, *rest in rows]


def _of(rows: Sequence[Probed], server: str, told: set[Name], port: str) -> list[Process]:
    exact = [exactness(told, one.names) for one in rows]
    most = max(exact)  # a pod is not meant where spans name one of its processes or containers
    named = [how == most > 0 for how in exact]
    beside = {one.door for one, by_spans in zip(rows, named, strict=True) if by_spans and one.port}
    of_port = {one.door for one in rows if port and one.port == port}
    if not beside and len(of_port) == 1:
        beside = of_port
    found = {}
    for one, by_spans in zip(rows, named, strict=True):
        by = ""
        if by_spans:
            by = "spans"
        elif one.server:
            by = "name" if one.server == server else ""
        elif one.door in beside:
            by = "port"
        if by:
            found[one.host, one.pid, one.executable] = Process(one.host, one.pid, one.executable, by)
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
               arrayJoin({NAMES}) AS name
        FROM otel_traces
        WHERE Timestamp >= {at("begin")} AND Timestamp <= {at("end")}
            AND toUnixTimestamp(Timestamp) % {{every:Int64}} = 0
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
    found: dict[str, set[Name]] = {}
    for service, instance, name in rows:
        found.setdefault(instances.get(instance) or services[service], set()).add(name)
    return found


def ports_of(client: Client, servers: Sequence[str]) -> dict[str, str]:
    """Of their addresses as they were attached last; without those that were not."""
    rows = client.query(
        "SELECT server, toString(port(argMax(url, time))) AS last FROM servers"
        " WHERE server IN {servers:Array(String)} GROUP BY server HAVING last != '0'",
        parameters={"servers": list(servers)},
    ).result_rows
    return {str(server): str(port) for server, port in rows}
