"""Whose work a process does, the other way round than analysis.observed.processes: from processes to servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at, together
from analysis.observed.points import IS_PID
from cachemodel.observed import HOST, PID

_SECONDS = 120  # of spans that are looked at, evenly over the time


class Process(Protocol):
    """What is known of it. server: as whoever started its probe named it, empty for none; port: where it listens."""

    @property
    def host(self) -> str: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def port(self) -> str: ...
    @property
    def server(self) -> str: ...


def servers(client: Client, begin: int, end: int) -> Callable[[Process], str]:
    """What tells a process's server, empty where nothing does: the name its probe was given, else the one that its
    spans carry, else the one attached at its port. Two that could be it are none. [begin, end): microseconds since
    1970; of a long time some seconds of spans are looked at."""
    spans, aliases, ports = together(
        lambda: _spans(client, begin, end),
        lambda: client.query("SELECT alias, server FROM server_aliases FINAL").result_rows,
        lambda: (
            client.query(
                "SELECT toString(port(argMax(url, time))), server FROM servers GROUP BY server"
            ).result_rows
        ),
    )
    called = dict(aliases)
    by_process: dict[tuple[str, int], set[str]] = {}
    for service, instance, host, pid in spans:
        by_process.setdefault((host, int(pid)), set()).add(
            called.get(instance) or called.get(service) or service
        )
    at_port: dict[str, set[str]] = {}
    for port, server in ports:
        at_port.setdefault(port, set()).add(server)

    def server_of(process: Process) -> str:
        if process.server or process.pid is None:
            return process.server
        found = by_process.get((process.host, process.pid)) or at_port.get(process.port, set())
        return next(iter(found)) if len(found) == 1 else ""

    return server_of


def _spans(client: Client, begin: int, end: int) -> list[tuple[str, str, str, str]]:
    """Who made spans: service, instance, host, pid."""
    every = max(1, (end - begin) // (1_000_000 * _SECONDS))
    rows = client.query(
        f"""
        SELECT DISTINCT ServiceName, ResourceAttributes['service.instance.id'], ResourceAttributes['{HOST}'],
               ResourceAttributes['{PID}']
        FROM otel_traces
        WHERE Timestamp >= {at("begin")} AND Timestamp < {at("end")}
            AND toUnixTimestamp(Timestamp) % {{every:Int64}} = 0
            AND {IS_PID}
        """,
        parameters={"begin": begin, "end": end, "every": every},
    ).result_rows
    return [(str(service), str(instance), str(host), str(pid)) for service, instance, host, pid in rows]
