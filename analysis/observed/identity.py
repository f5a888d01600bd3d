"""Is the process that made a span the one that a probe watched? Names of processes in SQL. Pure.

A process has several: host and pid, in a container also those that it has in there (which its own spans tell), the
container's id, and its pod's. The last two name all processes of theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from analysis.observed.points import is_pid
from cachemodel.observed import CONTAINER_HOST, CONTAINER_ID, CONTAINER_PID, HOST, PID, POD

Name = tuple[str, str]
"""Host and pid; or the attribute that names a container or pod, and its value."""
SHARED = (CONTAINER_ID, POD)
"""Attributes whose names are those of several processes."""


def _pair(host: str, pid: str) -> str:
    return f"if({is_pid(pid)}, [(ResourceAttributes['{host}'], ResourceAttributes['{pid}'])], [])"


def _shared(key: str) -> str:
    return f"if(ResourceAttributes['{key}'] != '', [('{key}', ResourceAttributes['{key}'])], [])"


NAMES = (
    f"arrayConcat({_pair(HOST, PID)}, {_pair(CONTAINER_HOST, CONTAINER_PID)},"
    f" {', '.join(_shared(key) for key in SHARED)})"
)
"""SQL: Array(Tuple(String, String)), the names that the resource of a span or point gives its process."""


def exactness(told: Collection[Name], names: Iterable[Name]) -> int:
    """How exactly one of a process's names is among those told: 2 as this process or its container, 1 as its pod, 0 not
    at all."""
    return max((1 if name[0] == POD else 2 for name in names if name in told), default=0)
