"""Caches, TLB, cycles and instructions of processes, by the CPU's own counters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from probes.perf import events
from probes.perf.counters import Count, ProcessCounters
from probes.perf.events import Event, Kernel
from probes.pmu.events import tried, why
from probes.reading import Gap, Reading

PROC = Path("/proc")


class PmuSensor:
    """pids: whom to watch. threads: also by thread; then what a new thread did until the next read is not counted.

    An event that the CPU does not offer is a gap, never 0; so is one that never had its turn. Of a process that ended
    the last totals are told once more.
    """

    def __init__(
        self, pids: Iterable[int], *, threads: bool = False, kernel: Kernel | None = None, proc: Path = PROC
    ) -> None:
        self._kernel, self._by_thread, self._proc = kernel or events.Syscalls(), threads, proc
        self._processes: dict[int, ProcessCounters] = {}
        self._ended: dict[int, Gap] = {}
        events.raise_descriptor_limit()
        self._groups, refused = tried(self._kernel)
        self._lasting = [Gap(event.metric, *why(error)) for event, error in refused.items()]
        self._passing: list[Gap] = []
        self.watch(pids)

    def watch(self, pids: Iterable[int]) -> None:
        """These and no others from now on. What is watched already keeps its totals."""
        wanted = set(pids)
        self._ended = {pid: gap for pid, gap in self._ended.items() if pid in wanted}
        for pid in self._processes.keys() - wanted:
            self._processes.pop(pid).close()
        for pid in sorted(wanted - self._processes.keys()):
            if not (self._proc / str(pid)).exists():
                self._ended[pid] = Gap(f"process {pid}", "no such process, or /proc hides it from this user")
            elif self._groups:
                self._processes[pid] = ProcessCounters(
                    pid, self._groups, threads=self._by_thread, kernel=self._kernel, proc=self._proc
                )

    def read(self) -> Sequence[Reading]:
        """All totals now; without groups of events there is none."""
        self._passing = []
        found: list[Reading] = []
        for pid, counters in list(self._processes.items()):
            ended = counters.ended
            counters.read()
            counts = counters.process()
            found += (_reading(event, count, pid, None) for event, count in counts.items())
            if self._by_thread:
                found += (
                    _reading(event, count, pid, tid)
                    for tid, by_event in counters.threads().items()
                    for event, count in by_event.items()
                )
            self._passing += self._gaps_of(counters, counts)
            if ended:
                self._processes.pop(pid).close()
                self._ended[pid] = Gap(f"process {pid}", "it exited")
        return found

    def gaps(self) -> Sequence[Gap]:
        """What it could not tell, as of the last read."""
        return [*self._lasting, *self._passing, *self._ended.values()]

    def close(self) -> None:
        """Can be called again."""
        for counters in self._processes.values():
            counters.close()
        self._processes.clear()

    def _gaps_of(self, counters: ProcessCounters, counts: dict[Event, Count]) -> list[Gap]:
        pid, gaps = counters.pid, []
        for group, refused in counters.refusals.items():
            gaps.append(Gap(_names(group), f"process {pid}: {why(refused)[0]}", why(refused)[1]))
        silent = [
            event
            for group in self._groups
            if group not in counters.refusals
            for event in group
            if event not in counts
        ]
        if silent:
            reason = f"process {pid}: other users of the counters left them no turn yet"
            gaps.append(Gap(_names(silent), reason, "fewer perf sessions at once"))
        if counters.uncounted:
            reason = f"process {pid}: no descriptor was left for {counters.uncounted} groups of its threads"
            gaps.append(Gap("hitmap.pmu", reason, "more open files (ulimit -n)"))
        if counters.silent:
            gaps.append(
                Gap("hitmap.pmu", f"process {pid}: {counters.silent} groups of counters did not answer")
            )
        if counters.user_only:
            reason = f"process {pid}: work in the kernel is not counted"
            gaps.append(Gap("hitmap.pmu", reason, "CAP_PERFMON, or sysctl kernel.perf_event_paranoid=1"))
        return gaps


def _reading(event: Event, count: Count, pid: int, tid: int | None) -> Reading:
    return Reading(event.metric, count.value, "perf", pid, tid, (), count.running)


def _names(group: Iterable[Event]) -> str:
    return ", ".join(event.metric for event in group)
