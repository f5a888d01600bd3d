"""Which processes are watched: those asked for, and what they start. Found again as servers restart."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cachemodel.errors import UserError
from cachemodel.observed import EXECUTABLE, HOST, PID, PORT, SERVER, SERVICE
from probes.kernel.processes import Process, descendants, executable, on_port, ports, process, same

Attributes = Mapping[str, str]


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
    """The processes that are there now. Raises UserError at first where one that was asked for is not."""

    def __init__(self, asked: Asked, version: str) -> None:
        self._asked = asked
        self._host: Attributes = {
            "service.name": SERVICE,
            "service.version": version,
            HOST: socket.gethostname(),
            **({SERVER: asked.server} if asked.server else {}),
        }
        self._roots: dict[int | str, list[Process]] = {}
        self._told: dict[Process, Attributes] = {}
        for pid in asked.pids:
            found = process(pid)
            if found is None:
                raise UserError(f"there is no process {pid}")
            self._roots[f"pid {pid}"] = [found]
        for port in asked.ports:
            self._roots[port] = on_port(port)

    @property
    def pids(self) -> list[int] | None:
        """For sensors; None for all of the host."""
        return None if self._asked.everything else [found.pid for found in self._told]

    @property
    def gone(self) -> bool:
        """Whether all that can ever be watched has exited: a port can be listened on again, a pid is gone for good."""
        return not self._told and not self._asked.ports and not self._asked.everything

    def refresh(self) -> bool:
        """Look again; whether anything changed."""
        found: dict[Process, Attributes] = {}
        for name, roots in self._roots.items():
            here = [root for root in roots if same(root)]
            if not here and isinstance(name, int):
                here = self._roots[name] = _listeners(name)
            port = str(name) if isinstance(name, int) else ""
            for root in here:
                family = [root, *(descendants(root.pid) if self._asked.children else ())]
                for member in family:
                    found.setdefault(
                        member, self._told.get(member) or self._resource(member, port or _port(root))
                    )
        changed = found.keys() != self._told.keys()
        self._told = found
        return changed

    def resources(self) -> dict[int | None, Attributes]:
        """Attributes of OTLP resources by pid; None: the host's own."""
        return {None: self._host, **{found.pid: told for found, told in self._told.items()}}

    def resource_of(self, pid: int) -> Attributes | None:
        """Of any process, where all are watched; None where it exited."""
        found = process(pid)
        return None if found is None else self._resource(found, _port(found))

    def _resource(self, found: Process, port: str) -> Attributes:
        return {
            **self._host,
            PID: str(found.pid),
            EXECUTABLE: executable(found.pid) or found.name,
            **({PORT: port} if port else {}),
        }


def _listeners(port: int) -> list[Process]:
    """Who listens there now, nobody while the server restarts."""
    try:
        return on_port(port)
    except UserError:
        return []


def _port(found: Process) -> str:
    """The lowest port it listens on; empty for none."""
    return next(map(str, ports(found.pid)), "")
