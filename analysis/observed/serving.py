"""Whose work a process does, the other way round than analysis.observed.processes: from processes to servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at, together
from analysis.observed.identity import NAMES, Name, exactness
from analysis.observed.processes import probed

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
    spans, aliases, ports, watched = together(
        lambda: _spans(client, begin, end),
        lambda: client.query("SELECT alias, server FROM server_aliases FINAL").result_rows,
        lambda: (
            client.query(
                "SELECT toString(port(argMax(url, time))), server FROM servers GROUP BY server"
            ).result_rows
        ),
        lambda: probed(client, begin, end),
    )
    called = dict(aliases)
    by_name: dict[Name, set[str]] = {}
    for service, instance, name in spans:
        by_name.setdefault(name, set()).add(called.get(instance) or called.get(service) or service)
    at_port: dict[str, set[str]] = {}
    for port, server in ports:
        at_port.setdefault(port, set()).add(server)
    names = {(one.host, one.pid): one.names for one in watched}

    def server_of(process: Process) -> str:
        if process.server or process.pid is None:
            return process.server
        mine = names.get((process.host, process.pid), [(process.host, str(process.pid))])
        told = [name for name in mine if exactness(by_name, [name]) == exactness(by_name, mine) > 0]
        found = set().union(*(by_name[name] for name in told)) or at_port.get(process.port, set())
        return next(iter(found)) if len(found) == 1 else ""

    return server_of


def _spans(client: Client, begin: int, end: int) -> list[tuple[str, str, Name]]:
    """Who made spans: service, instance, process."""
    every = max(1, (end - begin) // (1_000_000 * _SECONDS))
    rows = client.query(
        f"""
        SELECT DISTINCT ServiceName, ResourceAttributes['service.instance.id'], arrayJoin({NAMES})
        FROM otel_traces
        WHERE Timestamp >= {at("begin")} AND Timestamp < {at("end")}
            AND toUnixTimestamp(Timestamp) % {{every:Int64}} = 0
        """,
        parameters={"begin": begin, "end": end, "every": every},
    ).result_rows
    return [(str(service), str(instance), name) for service, instance, name in rows]
