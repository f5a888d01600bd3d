"""A process by its files in /proc: no privilege, no program in the kernel, always there.

Totals begin when this begins. Those of faults and CPU time are the kernel's own for the whole process, with threads
that ended; context switches it keeps by thread only, so that they are summed here, and what a thread did between our
last look and its end is missing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterator
from operator import sub
from pathlib import Path

from probes.kernel import parse, processes
from probes.kernel.processes import Process
from probes.reading import Reading

PROC = Path("/proc")
ROUND_S = 0.5
"""How often all threads are looked at: of a server with 60 it takes longer than all else. What a process has as one is
read each time."""
ROUND_SHARE, LONGEST_ROUND_S = 500, 10.0
"""Where threads are not told one by one: times the CPU time of a look at them all that pass before the next, so that it
takes 0.2 % of a core of however many threads; up to so long."""
_TICK_S, _PAGE = 1 / os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_FAULTS = ("process.paging.faults", "system.paging.fault.type")
_COLUMNS = (
    (*_FAULTS, "minor", 1.0),
    (*_FAULTS, "major", 1.0),
    ("process.cpu.time", "cpu.mode", "user", _TICK_S),
    ("process.cpu.time", "cpu.mode", "system", _TICK_S),
    ("process.context_switches", "process.context_switch.type", "voluntary", 1.0),
    ("process.context_switches", "process.context_switch.type", "involuntary", 1.0),
)
_SWITCHES = slice(4, 6)


class Gone(Exception):
    """The process exited, or its number is another's by now."""


class _Thread:
    """base: subtracted; totals: since then, never lower than before; schedule: its schedstat, the same until it runs;
    told: its readings, kept since most of many threads wait."""

    __slots__ = ("base", "schedule", "started", "told", "totals")

    def __init__(self, started: int, base: tuple[int, ...]) -> None:
        self.started, self.base, self.totals = started, base, (0,) * len(base)
        self.schedule, self.told = b"", list[Reading]()

    def update(self, now: tuple[int, ...]) -> tuple[int, ...]:
        """Takes what was read; returns by how much its totals grew."""
        totals = tuple(map(max, self.totals, map(sub, now, self.base)))
        grown = tuple(map(sub, totals, self.totals))
        self.totals = totals
        if any(grown):
            self.told = []
        return grown


class ProcessFiles:
    """Of one process. Methods raise Gone where it ended, OSError where no descriptor is left.

    round_s: seconds between two looks at all threads; sparing: more where there are many.
    """

    def __init__(
        self, process: Process, proc: Path = PROC, round_s: float = ROUND_S, *, sparing: bool = False
    ) -> None:
        self.process, self._proc, self._folder = process, proc, f"{proc}/{process.pid}"
        self._latest: tuple[int, ...] = (0, 0, 0, 0)
        self._threads: dict[int, _Thread] = {}
        self._switches = (0, 0)
        self._stat = self._read_stat()
        self._base = self._latest
        self._first = set(processes.threads(process.pid, proc))
        self._queue: list[int] = []
        self._listed, self._round_s, self._round = 0, round_s, -round_s
        self._sparing, self._spent_s = sparing, 0.0
        self._looked, self._told = True, False  # whether all threads were since the switches were told

    def update(self, most: int) -> tuple[int, int]:
        """Reads the process, and at most so many of its threads, in turns: how many are left for the next time, and
        were read now."""
        self._stat = self._read_stat()
        if self._told:
            self._looked = self._told = False
        due = not self._queue and time.monotonic() - self._round >= self._pause_s()
        if due or self._stat.threads != self._listed:
            self._list(due)
        visited, began_s = 0, time.thread_time()
        while self._queue and visited < most:
            self._visit(self._queue.pop())
            visited += 1
        self._spent_s += time.thread_time() - began_s
        self._looked |= visited > 0 and not self._queue
        return len(self._queue), visited

    def busy(self) -> tuple[int, int]:
        """Ticks of user and system time so far."""
        return self._stat.user_ticks, self._stat.system_ticks

    def readings(self, threads: bool, faults_elsewhere: Container[int] = ()) -> list[Reading]:
        """As of the last update. Context switches only if all threads were looked at since they were told: between two
        looks nothing is known of them. faults_elsewhere: threads whose faults perf counts."""
        pid, stat = self.process.pid, self._stat
        counts = [now - base for now, base in zip(self._latest, self._base, strict=True)]
        self._told = True
        found = list(_readings((*counts, *(self._switches if self._looked else ())), pid, None))
        found.append(Reading("process.thread.count", stat.threads, "procfs", pid))
        if stat.state not in "ZX":  # without memory any more, and 0 would say it has some
            found.append(Reading("process.memory.usage", stat.resident_pages * _PAGE, "procfs", pid))
        if threads:
            for tid, thread in self._threads.items():
                if not thread.told and any(thread.totals):
                    start = 2 if tid in faults_elsewhere else 0
                    thread.told = list(_readings(thread.totals, pid, tid, start))
                found += thread.told
        return found

    def _pause_s(self) -> float:
        spare_s = min(ROUND_SHARE * self._spent_s, LONGEST_ROUND_S) if self._sparing else 0.0
        return max(self._round_s, spare_s)

    def _read_stat(self) -> parse.Stat:
        try:
            stat = parse.stat(_content(f"{self._folder}/stat"))
        except (FileNotFoundError, ProcessLookupError, PermissionError, ValueError) as error:
            raise Gone from error
        if stat.started != self.process.started:
            raise Gone
        self._latest = tuple(map(max, self._latest, _counts(stat)))
        return stat

    def _list(self, due: bool) -> None:
        """Looks which threads there are: new ones are next, the others where a round is due. Of many, this takes longer
        than looking at those whose turn it is."""
        now = set(processes.threads(self.process.pid, self._proc))
        for tid in self._threads.keys() - now:
            del self._threads[tid]
        if due:
            self._queue, self._round, self._spent_s = sorted(now, reverse=True), time.monotonic(), 0.0
        if new := now - self._threads.keys() - set(self._queue):
            self._queue = sorted(new, reverse=True) + self._queue
        self._listed = self._stat.threads

    def _visit(self, tid: int) -> None:
        folder = f"{self._folder}/task/{tid}"
        known = self._threads.get(tid)
        try:
            schedule = _schedule(folder)
            if known and schedule and schedule == known.schedule:
                return
            stat = parse.stat(_content(f"{folder}/stat"))
            switches = parse.switches(_content(f"{folder}/status"))
        except (FileNotFoundError, ProcessLookupError, PermissionError, ValueError):
            return  # it ended; the next update lets it go
        now = (*_counts(stat), *(switches or (0, 0)))
        if known is None or known.started != stat.started:
            base = now if tid in self._first else (0,) * len(now)
            known = self._threads[tid] = _Thread(stat.started, base)
            self._first.discard(tid)
        known.schedule = schedule
        voluntary, involuntary = known.update(now)[_SWITCHES]
        self._switches = self._switches[0] + voluntary, self._switches[1] + involuntary


def _counts(stat: parse.Stat) -> tuple[int, int, int, int]:
    return stat.minor_faults, stat.major_faults, stat.user_ticks, stat.system_ticks


def _readings(counts: tuple[int, ...], pid: int, tid: int | None, start: int = 0) -> Iterator[Reading]:
    for count, (metric, key, value, unit) in zip(counts[start:], _COLUMNS[start:], strict=False):
        yield Reading(metric, count * unit, "procfs", pid, tid, ((key, value),))


def _schedule(folder: str) -> bytes:
    """Empty where the kernel keeps none (no CONFIG_SCHED_INFO)."""
    try:
        return _content(f"{folder}/schedstat")
    except FileNotFoundError:
        return b""


def _content(path: str) -> bytes:
    """A file of /proc below a page, at once: three system calls and no Path, since this is done often."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 8192)
    finally:
        os.close(descriptor)
