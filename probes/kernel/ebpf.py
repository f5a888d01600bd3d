"""The program in the kernel: started in a process of its own, filtered and read through its maps.

Counts lie in one hash map by thread, which the kernel writes without atomics or copies per CPU: program.c says why that
is exact. The program takes 15 ns of a fault, measured by kernel.bpf_stats_enabled beside one that returns at once; a
smaller map, a key of 4 bytes and fewer branches made no difference, so that none of them is worth more code. Task
storage cannot be read for all threads at once, a copy per CPU takes 200 times the memory on 200 CPUs. What a fault
costs more in all, beside other tools: benchmarks/probes_kernel.py.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from probes.kernel import requirements
from probes.kernel.bpf import Map
from probes.kernel.requirements import Host

THREADS, WATCHED = 32_768, 4_096
"""Room for that many threads (6 MB in the kernel) and watched processes."""
START_S = 60.0
WORD_BYTES = 8
_VALUE = struct.Struct("=18Q")  # struct counts of program.c
_TOLD = 16  # of these; the others are the program's own
_THREAD, _PROCESS, _CPU_COUNT = struct.Struct("=Q"), struct.Struct("=I"), struct.Struct("=Q")
_ROOT = Path(__file__).parents[2]


class Unavailable(Exception):
    """eBPF does not work here: why, and what it needs (several, if several are missing)."""

    def __init__(self, missing: Sequence[requirements.Missing]) -> None:
        super().__init__("; ".join(one.why for one in missing))
        self.missing = missing


class Counts(NamedTuple):
    """Of one thread, since its first event. faults: user read, write, ifetch, then kernel's; flushes: by reason, as
    observed.TLB_REASONS; times in nanoseconds; cgroup: id, where it was at that event."""

    faults: tuple[int, ...]
    flushes: tuple[int, ...]
    futex_waits: int
    futex_ns: int
    off_cpu_ns: int
    cgroup: int


class Program:
    """Attached. Raises Unavailable at its start, and OSError when no descriptor is left or the kernel refuses later;
    close() detaches."""

    def __init__(
        self,
        *,
        everyone: bool = False,
        futex: bool = False,
        off_cpu: bool = False,
        threads: int = THREADS,
        host: Host | None = None,
    ) -> None:
        host = host or Host()
        if found := requirements.missing(host):
            raise Unavailable(found)
        flags = [f"-DTHREADS={threads}", f"-DWATCHED={WATCHED}"]
        flags += [
            f"-D{name}" for name, on in (("ALL", everyone), ("FUTEX", futex), ("OFF_CPU", off_cpu)) if on
        ]
        options: dict[str, object] = {
            "flags": flags,
            "maps": ["threads", "watched", "lost"],
            "off_cpu": off_cpu,
            "packages": [str(one) for one in host.packages],
        }
        cpus = _possible_cpus(host.sys)
        answer, descriptors = _compiled(options)
        self.attached: frozenset[str] = frozenset(answer["attached"])
        self.refused: dict[str, str] = answer["refused"]
        self._links = descriptors[3:]
        self._threads = Map(descriptors[0], _THREAD.size, _VALUE.size, threads)
        self._watched = Map(descriptors[1], _PROCESS.size, 1, WATCHED)
        self._lost = Map(descriptors[2], _PROCESS.size, _CPU_COUNT.size * cpus, 1)

    def watch(self, pids: Iterable[int]) -> None:
        """Counts these, too, from now on. OSError E2BIG beyond WATCHED."""
        for pid in pids:
            self._watched.update(_PROCESS.pack(pid), b"\1")

    def unwatch(self, pids: Iterable[int]) -> None:
        """Counts no new threads of these; those that have an entry count on until `forget`."""
        for pid in pids:
            self._watched.delete(_PROCESS.pack(pid))

    def read(self) -> Iterator[tuple[int, int, bytes]]:
        """(pid, tid, counts as they lie in the map) of all threads that had an event; `decoded` says what they mean.
        What did not change need not be decoded again."""
        _, keys, values = self._threads.items()
        for (thread,), at in zip(_THREAD.iter_unpack(keys), range(0, len(values), _VALUE.size), strict=True):
            yield thread >> 32, thread & 0xFFFFFFFF, bytes(values[at : at + _VALUE.size])

    def forget(self, pid: int, tid: int) -> bytes | None:
        """Takes a thread out that ended, with its last counts."""
        key = _THREAD.pack(pid << 32 | tid)
        last = self._threads.lookup(key)
        self._threads.delete(key)
        return last

    def lost(self) -> int:
        """Events of threads for which there was no room."""
        found = self._lost.lookup(_PROCESS.pack(0))
        return sum(count for (count,) in _CPU_COUNT.iter_unpack(found)) if found else 0

    def close(self) -> None:
        """Detaches. Can be called again."""
        for descriptor in self._links:
            os.close(descriptor)
        self._links = []
        for one in (self._threads, self._watched, self._lost):
            one.close()


def decoded(value: bytes) -> Counts:
    """Of an entry of `Program.read`."""
    flat = words(value)
    return Counts(flat[:6], flat[6:12], *flat[12:])


def words(value: bytes) -> tuple[int, ...]:
    """The numbers of `Counts` one after the other, or as many of them as there are bytes for."""
    return struct.unpack_from(f"={min(len(value) // WORD_BYTES, _TOLD)}Q", value)


def _compiled(options: dict[str, object]) -> tuple[dict[str, Any], list[int]]:
    """What probes.kernel.compile answers. Raises Unavailable."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        command = [sys.executable, "-m", "probes.kernel.compile", str(theirs.fileno()), json.dumps(options)]
        path = os.pathsep.join((str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])))
        child = subprocess.Popen(  # noqa: S603  our own module
            command,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        theirs.close()
        ours.settimeout(START_S)
        try:
            message, descriptors, _, _ = socket.recv_fds(ours, 1 << 16, 64)
        except TimeoutError:
            child.kill()
            message, descriptors = b"", []
        said = child.communicate()[1].decode(errors="replace").strip()
    answer = json.loads(message) if message else {"error": f"the compiler ended with {child.returncode}"}
    if "error" in answer:
        details = f": {said.splitlines()[-1]}" if said else ""
        raise Unavailable([requirements.Missing(f"BCC: {answer['error']}{details}", "")])
    if len(descriptors) != len(answer["maps"]) + len(answer["attached"]):
        for descriptor in descriptors:
            os.close(descriptor)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return answer, descriptors


def _possible_cpus(sys_folder: Path) -> int:
    """As the kernel sizes values per CPU: by the highest possible one."""
    text = (sys_folder / "devices/system/cpu/possible").read_text().strip()
    return int(text.replace(",", "-").rpartition("-")[2]) + 1
