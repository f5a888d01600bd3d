"""Which process? By its port, by its parent, and whether a number still means the one it meant.

Everything is read from /proc, which other users' processes show in part: their names and parents, not their sockets.
What exited is told as None or as empty; OSError is raised where this process itself has no descriptor left.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from cachemodel.errors import UserError
from probes.kernel import parse

PROC = Path("/proc")
GONE = (FileNotFoundError, ProcessLookupError, PermissionError)
"""It exited, or /proc hides it."""
_FIRST_PID_NAMESPACE = f"pid:[{0xEFFFFFFC}]"  # PROC_PID_INIT_INO of include/linux/proc_ns.h


class Process(NamedTuple):
    """started: clock ticks after boot. Together with the pid it names one process for as long as the host is up: pids
    are used again. name: as the kernel has it, 15 bytes at most."""

    pid: int
    started: int
    parent: int
    name: str


def process(pid: int, proc: Path = PROC) -> Process | None:
    """None where it exited. A zombie still is one."""
    try:
        found = parse.stat((proc / str(pid) / "stat").read_bytes())
    except (*GONE, ValueError):  # ValueError: it ended while we read
        return None
    return Process(found.pid, found.started, found.parent, found.name)


def processes(proc: Path = PROC) -> list[Process]:
    """All that /proc shows, by pid."""
    return [found for pid in _pids(proc) if (found := process(pid, proc))]


def same(known: Process, proc: Path = PROC) -> bool:
    """Whether that process still runs, and its number is not another's. A zombie does not, unless only its first thread
    ended."""
    try:
        now = parse.stat((proc / str(known.pid) / "stat").read_bytes())
    except (*GONE, ValueError):
        return False
    return now.started == known.started and (now.state not in "ZX" or now.threads > 1)


def executable(pid: int, proc: Path = PROC) -> str | None:
    """Name of the file it runs (`python3.11`); what the kernel calls it where that link cannot be read (another user's
    process, a kernel thread). None where it exited."""
    try:
        target = (proc / str(pid) / "exe").readlink()
    except OSError:
        found = process(pid, proc)
        return found.name if found else None
    return target.name.removesuffix(" (deleted)")


def descendants(pid: int, proc: Path = PROC) -> list[Process]:
    """Its children, theirs and so on, nearest first: vLLM's EngineCore and workers are such. Without itself."""
    children = _told_children(pid, proc)
    if children is None:
        by_parent: dict[int, list[Process]] = defaultdict(list)
        for found in processes(proc):
            by_parent[found.parent].append(found)
        children = by_parent.__getitem__
    family, seen = list(children(pid)), {pid}
    for member in family:  # grows as it is walked
        if member.pid not in seen:  # a pid used again while we read could close a ring
            seen.add(member.pid)
            family += children(member.pid)
    return family


def _told_children(pid: int, proc: Path) -> Callable[[int], list[Process]] | None:
    """Asks each thread's file of children (CONFIG_PROC_CHILDREN), which spares a look at all processes of the host;
    None where this kernel has none."""
    if not (proc / str(pid) / "task" / str(pid) / "children").exists():
        return None

    def children(parent: int) -> list[Process]:
        found = []
        for tid in threads(parent, proc):
            try:
                told = (proc / str(parent) / "task" / str(tid) / "children").read_bytes().split()
            except OSError:
                continue
            found += [child for child in (process(int(name), proc) for name in told) if child]
        return found

    return children


def on_port(port: int, proc: Path = PROC) -> list[Process]:
    """Who listens on that TCP port, v4 or v6, in this network namespace: several where workers share it.

    Of processes that inherited one socket the eldest are given, not those that descend from them. Raises UserError
    where nobody listens, or where who does cannot be seen.
    """
    inodes = sockets_on(port, proc)
    if not inodes:
        raise UserError(f"nothing listens on port {port} here; a server in a container is found by --pid")
    holders = {
        found.pid: found
        for pid in _pids(proc)
        if not inodes.isdisjoint(_socket_inodes(pid, proc)) and (found := process(pid, proc))
    }
    if not holders:
        raise UserError(
            f"something listens on port {port}, but another user's: run as that user or as root (CAP_SYS_PTRACE)"
        )
    inherited = {child.pid for pid in holders for child in descendants(pid, proc)}
    return [found for pid, found in holders.items() if pid not in inherited]


def sockets_on(port: int, proc: Path = PROC) -> frozenset[int]:
    """Inodes of the sockets that listen on that TCP port: others, once somebody listens anew."""
    return frozenset(socket.inode for socket in _sockets(proc / "net") if socket.port == port)


def ports(pid: int, proc: Path = PROC) -> list[int]:
    """TCP ports on which it listens itself, ascending. Empty where it exited or its descriptors may not be read."""
    inodes = _socket_inodes(pid, proc)
    if not inodes:
        return []
    return sorted({socket.port for socket in _sockets(proc / str(pid) / "net") if socket.inode in inodes})


def threads(pid: int, proc: Path = PROC) -> list[int]:
    """Its thread ids, ascending; empty where it exited."""
    try:
        with os.scandir(proc / str(pid) / "task") as entries:  # ten thousand may be there: no Path for each
            return sorted(int(entry.name) for entry in entries)
    except GONE:
        return []


def in_host_pid_namespace(proc: Path = PROC) -> bool:
    """Whether pids here are those of the kernel."""
    try:
        return str((proc / "self" / "ns" / "pid").readlink()) == _FIRST_PID_NAMESPACE
    except OSError:
        return False


def _pids(proc: Path) -> Iterable[int]:
    return sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal())


def _sockets(net: Path) -> Iterator[parse.Socket]:
    for table in ("tcp", "tcp6"):  # without IPv6 there is no tcp6
        try:
            yield from parse.listening((net / table).read_text())
        except OSError:
            continue


def _socket_inodes(pid: int, proc: Path) -> set[int]:
    """Sockets among its open descriptors; empty where it exited or they may not be read."""
    inodes: set[int] = set()
    try:
        descriptors = list((proc / str(pid) / "fd").iterdir())
    except GONE:
        return inodes
    for descriptor in descriptors:
        try:
            inode = parse.socket_inode(str(descriptor.readlink()))
        except GONE:
            continue
        if inode is not None:
            inodes.add(inode)
    return inodes
