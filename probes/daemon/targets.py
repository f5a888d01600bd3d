"""Which processes are watched: those asked for, and what they start. Found again as servers restart."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cachemodel.errors import UserError
from cachemodel.observed import EXECUTABLE, HOST, PID, PORT, SERVER, SERVICE
from probes.daemon.otlp import Attributes, Resources
from probes.kernel.container import known_as
from probes.kernel.processes import (
    Process,
    descendants,
    executable,
    on_port,
    ports,
    process,
    same,
    sockets_on,
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be watched. ports: of TCP listeners; everything: all processes of the host. server: the name that they
    go by in the store, empty for none. children: their descendants, too."""

    pids: Sequence[int] = ()
    ports: Sequence[int] = ()
    everything: bool = False
    server: str = ""
    children: bool = True


class Targets:
    """The processes that are there now. Raises UserError at first where one that was asked for is not. Methods raise
    OSError where no descriptor is left."""

    def __init__(self, asked: Asked, version: str) -> None:
        self._asked = asked
        self._host: Attributes = {
            "service.name": SERVICE,
            "service.version": version,
            HOST: socket.gethostname(),
            **({SERVER: asked.server} if asked.server else {}),
        }
        self._by_pid = [_process(pid) for pid in asked.pids]
        self._by_port = {port: on_port(port) for port in asked.ports}
        self._sockets = {port: sockets_on(port) for port in asked.ports}
        self._told: dict[Process, Attributes] = {}
        self.refresh()

    @property
    def pids(self) -> list[int] | None:
        """For sensors; None for all of the host."""
        return None if self._asked.everything else [found.pid for found in self._told]

    @property
    def gone(self) -> bool:
        """Whether all that can ever be watched has exited: a port can be listened on again, a pid is gone for good."""
        return bool(self._asked.pids) and not self._told and not self._asked.ports

    def refresh(self) -> bool:
        """Look again; whether anything changed."""
        if self._asked.everything:
            found = {known: told for known, told in self._told.items() if same(known)}
        else:
            found = {}
            for root, port in self._roots():
                family = [root, *(descendants(root.pid) if self._asked.children else ())]
                for member in family:
                    told = self._told.get(member) or self._resource(member, port or _port(root))
                    found.setdefault(member, told)
        changed = found.keys() != self._told.keys()
        self._told = found
        return changed

    def roots(self) -> dict[int, str]:
        """Those that were asked for by pid or port and are there, without what they started: name by pid."""
        asked = {*self._by_pid, *(root for roots in self._by_port.values() for root in roots)}
        return {found.pid: told[EXECUTABLE] for found, told in self._told.items() if found in asked}

    def resources(self) -> Resources:
        """Attributes of OTLP resources by pid; None: the host's own."""
        return {None: self._host, **{found.pid: told for found, told in self._told.items()}}

    def name(self, pids: Iterable[int]) -> bool:
        """Where all are watched: keep who these are until they exit. Whether any was new."""
        known = {found.pid for found in self._told}
        new = [found for pid in pids if pid not in known and (found := process(pid))]
        self._told |= {found: self._resource(found, _port(found)) for found in new}
        return bool(new)

    def _roots(self) -> Iterator[tuple[Process, str]]:
        """Those that run, and the port that they were asked for by."""
        self._by_pid = [root for root in self._by_pid if same(root)]
        yield from ((root, "") for root in self._by_pid)
        for port, before in self._by_port.items():
            sockets = sockets_on(port)
            found = {root for root in before if same(root)}  # one that listens no more may still have work
            if sockets and (not found or sockets != self._sockets[port]):
                found |= set(_listeners(port))
            self._sockets[port] = sockets
            self._by_port[port] = sorted(found)
            yield from ((root, str(port)) for root in self._by_port[port])

    def _resource(self, found: Process, port: str) -> Attributes:
        return {
            **self._host,
            PID: str(found.pid),
            EXECUTABLE: executable(found.pid) or found.name,
            **({PORT: port} if port else {}),
            **known_as(found.pid, self._host[HOST]),
        }


def _process(pid: int) -> Process:
    found = process(pid)
    if found is None:
        raise UserError(f"there is no process {pid}, or /proc hides it from this user")
    return found


def _listeners(port: int) -> list[Process]:
    """Who listens there now, nobody while the server restarts."""
    try:
        return on_port(port)
    except UserError:
        return []


def _port(found: Process) -> str:
    """The lowest port it listens on; empty for none."""
    return next(map(str, ports(found.pid)), "")
