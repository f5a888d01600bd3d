"""What the program in the kernel counted, as totals of processes and threads that never go back.

An entry is one thread's. When a thread ended its last counts go into the total of its process, and the entry is let go.

Whose is a TLB flush? It counts for whoever runs on the CPU when it happens. remote_ipi_send: who asks other CPUs to
flush, as by munmap: the storm's cause. remote_shootdown: who was interrupted, most often a thread of the same process,
but on a CPU that still held its memory another's, or nobody's (idle: not counted). One shootdown of three other CPUs is
one sent and up to three received, so that the two are not to be added up.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Sequence

from cachemodel import observed
from probes.kernel import processes
from probes.kernel.ebpf import WORD_BYTES, Program, words
from probes.reading import Reading

SWEEP_S = 1.0
"""How often ended threads are looked for: it lists every counted process's threads."""
_MODES = (("page_fault_user", "user", 0), ("page_fault_kernel", "kernel", 3))
_ACCESSES = ("read", "write", "ifetch")
_FLUSHES, _WAITS, _WAITED, _OFF, _WIDTH = 6, 12, 13, 14, 15
_BYTES = _WIDTH * WORD_BYTES
_TOPS = sum(1 << 8 * WORD_BYTES * at - 1 for at in range(1, _WIDTH + 1))
"""The highest bit of each count, which none reaches."""


class _Entry:
    """One thread's, as it lies in the map, and its counts side by side as one number: those of hundreds of threads
    that are all busy are added up ten times a second, and this is a quarter of the work of fifteen numbers each.
    told: its readings, kept since most of many threads wait."""

    __slots__ = ("counts", "raw", "told")

    def __init__(self) -> None:
        self.raw, self.counts = b"", 0
        self.told: list[Reading] | None = None


class Counted:
    """Reads one Program. Raises OSError where the kernel refuses."""

    def __init__(self, program: Program, *, threads: bool, futex: bool, off_cpu: bool) -> None:
        self._program, self._by_thread = program, threads
        self._columns = _columns(program.attached, futex, off_cpu)
        self._entries: dict[int, dict[int, _Entry]] = {}
        self._totals: dict[int, int] = {}  # as those of an entry
        self.cgroups: dict[int, int] = {}
        self._swept = time.monotonic()

    def watch(self, pids: Iterable[int]) -> None:
        """Counts these, too; they are told from now on, with 0 while nothing happened."""
        pids = list(pids)
        self._program.watch(pids)
        for pid in pids:
            self._totals.setdefault(pid, 0)

    def drop(self, pid: int) -> list[Reading]:
        """Counts and tells a process no longer; returns the readings of the last update. What was counted since is
        taken by nobody: where its number is used again, it may be another's."""
        last = self.readings(pid)
        self._program.unwatch([pid])
        for other, tid, _ in list(self._program.read()):
            if other == pid:
                self._program.forget(pid, tid)
        self._entries.pop(pid, None)
        self._totals.pop(pid, None)
        self.cgroups.pop(pid, None)
        return last

    def update(self, told: Container[int]) -> None:
        """Takes everything in, and now and then lets go of what ended. told: processes whose totals are needed."""
        for pid, tid, raw in self._program.read():
            self._take(pid, tid, raw)
        if time.monotonic() - self._swept >= SWEEP_S:
            self.sweep(told)

    def sweep(self, told: Container[int]) -> None:
        """Lets go of the entries of ended threads, after their last counts were taken in."""
        for pid, entries in list(self._entries.items()):
            for tid in entries.keys() - set(processes.threads(pid)):
                if last := self._program.forget(pid, tid):
                    self._take(pid, tid, last)
                del entries[tid]
            if not entries:
                del self._entries[pid]
                if pid not in told:
                    del self._totals[pid], self.cgroups[pid]
        self._swept = time.monotonic()

    def readings(self, pid: int) -> list[Reading]:
        """Of a process, and of its threads that run and had any event."""
        total = self._totals.get(pid)
        if total is None:
            return []
        counts = _apart(total)
        found = [self._reading(column, counts, pid, None) for column in self._columns]
        if self._by_thread:
            for tid, entry in self._entries.get(pid, {}).items():
                if entry.told is None:
                    counts = _apart(entry.counts)
                    seen = [one for one in self._columns if counts[one[0]]]
                    entry.told = [self._reading(one, counts, pid, tid) for one in seen]
                found += entry.told
        return found

    def _take(self, pid: int, tid: int, raw: bytes) -> None:
        entries = self._entries.get(pid)
        if entries is None:
            entries = self._entries[pid] = {}
        entry = entries.get(tid)
        if entry is None:
            entry = entries[tid] = _Entry()
            self.cgroups[pid] = words(raw)[_WIDTH]
        elif entry.raw == raw:
            return
        now = int.from_bytes(raw[:_BYTES], "little")
        grown = (now | _TOPS) - entry.counts  # a count that went back borrows its highest bit, and no other's
        # An entry made anew since: its thread ended, and another has its number.
        grown = grown ^ _TOPS if grown & _TOPS == _TOPS else now
        entry.raw, entry.counts, entry.told = raw, now, None
        self._totals[pid] = self._totals.get(pid, 0) + grown

    @staticmethod
    def _reading(column: _Column, counts: Sequence[int], pid: int, tid: int | None) -> Reading:
        at, metric, scale, attributes = column
        return Reading(metric, counts[at] * scale, "ebpf", pid, tid, attributes)


def _apart(counts: int) -> tuple[int, ...]:
    return words(counts.to_bytes(_BYTES, "little"))


_Column = tuple[int, str, float, tuple[tuple[str, str], ...]]


def _columns(attached: Iterable[str], futex: bool, off_cpu: bool) -> list[_Column]:
    """(place, metric, unit in SI, attributes) of what is attached: what is not is no reading."""
    columns: list[_Column] = []
    for tracepoint, mode, start in _MODES:
        if tracepoint in attached:
            columns += [
                (start + at, "hitmap.page_faults", 1, _fault(mode, access))
                for at, access in enumerate(_ACCESSES)
            ]
    if "tlb_flush" in attached:
        columns += [
            (_FLUSHES + at, "hitmap.tlb_flushes", 1, (("hitmap.tlb_flush.reason", reason),))
            for at, reason in enumerate(observed.TLB_REASONS)
        ]
    if futex and "syscalls:sys_exit_futex" in attached:
        columns += [(_WAITS, "hitmap.futex_waits", 1, ()), (_WAITED, "hitmap.futex_wait_time", 1e-9, ())]
    if off_cpu and "sched_switch" in attached:
        columns.append((_OFF, "hitmap.off_cpu_time", 1e-9, ()))
    return columns


def _fault(mode: str, access: str) -> tuple[tuple[str, str], ...]:
    return (("hitmap.fault.mode", mode), ("hitmap.fault.access", access))
