"""Faults, flushes, waits, switches and memory of processes, by the best means there is here.

The ladder: eBPF tells who touched pages how, TLB flushes and waits; without it those stay a gap. Minor and major faults
have no tracepoint: of a process they are the kernel's own count in /proc, of a thread perf's software events where eBPF
is missing, else /proc's. Everything else is from /proc. `Reading.source` says which it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from probes.kernel import processes, requirements
from probes.kernel.counted import Counted
from probes.kernel.ebpf import Program, Unavailable
from probes.kernel.processes import Process
from probes.kernel.procfs import Gone, ProcessFiles
from probes.kernel.requirements import Host, Missing
from probes.perf import events
from probes.perf.counters import ProcessCounters
from probes.perf.events import Event, Refusal
from probes.reading import Gap, Reading

THREADS_A_READ = 128
"""So many threads' files are read at once, of all processes together; the others have their turn at the next reads."""
MOST_PROCESSES = 128
"""Of a whole host: those that were busiest when there was room for one more, until they end."""
CHOOSE_S = 1.0
"""How often new processes of a host are looked for."""
FAULTS_AND_FLUSHES = "hitmap.page_faults, hitmap.tlb_flushes"
FUTEX, OFF_CPU = "hitmap.futex_waits, hitmap.futex_wait_time", "hitmap.off_cpu_time"
MINOR, MAJOR = Event("minor", events.SOFTWARE, 5), Event("major", events.SOFTWARE, 6)
_FILES = "more open files (ulimit -n)"


class KernelSensor:
    """pids: whom to watch; None for the whole host. threads: also by thread. futex, off_cpu: also those, by eBPF.

    What does not work is in `gaps`, from the start on. Of a process that ended the last totals are told once more.
    Should another of the host have its number, one read passes without it, and its totals begin at 0.
    """

    def __init__(
        self,
        pids: Iterable[int] | None,
        *,
        threads: bool = False,
        futex: bool = False,
        off_cpu: bool = False,
        host: Host | None = None,
    ) -> None:
        self._host = host or Host()
        self._everyone, self._by_thread = pids is None, threads
        self._files: dict[int, ProcessFiles] = {}
        self._perf: dict[int, ProcessCounters] = {}
        self._lasting: list[Gap] = []
        self._passing: list[Gap] = []  # of the last read
        self._missing: dict[int, Gap] = {}  # those asked for that are no more
        self._last_words: dict[int, list[Reading] | None] = {}  # told for the last time by the last read
        self._chosen = -CHOOSE_S
        self._program: Program | None = None
        self._counted: Counted | None = None
        if futex and (missing := requirements.tracefs(self._host)):
            self._lasting.append(Gap(FUTEX, missing.why, missing.needs))
            futex = False
        self._start_ebpf(futex, off_cpu)
        if pids is not None:
            self.watch(pids)

    def watch(self, pids: Iterable[int]) -> None:
        """These and no others from now on. What is watched already keeps its totals. ValueError: all are watched."""
        if self._everyone:
            raise ValueError("the whole host is watched: there is nothing to add")
        wanted = set(pids)
        self._missing = {pid: gap for pid, gap in self._missing.items() if pid in wanted}
        for pid in self._files.keys() - wanted:
            self._drop(pid)
        for pid in sorted(wanted - self._files.keys()):
            self._add(pid)

    def cgroups(self) -> dict[int, int]:
        """Id of the cgroup (v2; inode of its folder) of each process in which eBPF saw an event."""
        return dict(self._counted.cgroups) if self._counted else {}

    def read(self) -> Sequence[Reading]:
        """All totals and gauges now."""
        self._passing = []
        if self._everyone and time.monotonic() - self._chosen >= CHOOSE_S:
            self._choose()
        self._last_words.clear()
        room, waiting = THREADS_A_READ, 0
        for pid in self._files:
            left, used = self._update(pid, room)
            room, waiting = room - used, waiting + left
        self._update_counted()  # after it is known whose numbers still are theirs
        found: list[Reading] = []
        for pid in list(self._files):
            found += self._readings(pid)
            if pid in self._last_words:
                self._drop(pid)
        if waiting:
            why = f"{waiting} threads were not looked at this time: they have their turn at the next reads"
            self._passing.append(Gap("process.context_switches and figures by thread", why))
        return found

    def gaps(self) -> Sequence[Gap]:
        """What it could not tell, as of the last read."""
        return [*self._lasting, *self._passing, *self._missing.values()]

    def close(self) -> None:
        """Detaches from the kernel. Can be called again."""
        if self._program:
            self._program.close()
        self._program, self._counted = None, None
        for pid in list(self._files):
            self._drop(pid)

    def _start_ebpf(self, futex: bool, off_cpu: bool) -> None:
        try:
            program = Program(everyone=self._everyone, futex=futex, off_cpu=off_cpu, host=self._host)
        except (Unavailable, OSError) as error:
            missing = (
                error.missing
                if isinstance(error, Unavailable)
                else [Missing(f"eBPF could not be started: {error.strerror}", _FILES)]
            )
            names = [FAULTS_AND_FLUSHES, *([FUTEX] if futex else []), *([OFF_CPU] if off_cpu else [])]
            self._lasting += [Gap(", ".join(names), one.why, one.needs) for one in missing]
            return
        self._program = program
        self._counted = Counted(program, threads=self._by_thread, futex=futex, off_cpu=off_cpu)
        for tracepoint, why in program.refused.items():
            what = OFF_CPU if tracepoint == "sched_switch" else FAULTS_AND_FLUSHES
            self._lasting.append(Gap(what, f"{tracepoint} could not be attached: {why}"))

    def _lose_ebpf(self, error: OSError) -> None:
        self._lasting.append(
            Gap(FAULTS_AND_FLUSHES, f"the kernel no longer gives its counts: {error.strerror}")
        )
        if self._program:
            self._program.close()
        self._program, self._counted = None, None

    def _add(self, pid: int) -> None:
        try:
            process = processes.process(pid, self._host.proc)
            if process is None:
                raise Gone
            files = ProcessFiles(process, self._host.proc, sparing=not self._by_thread)
            files.update(THREADS_A_READ)  # what its threads did before is not told
            self._files[pid] = files
        except Gone:
            self._missing[pid] = Gap(f"process {pid}", "no such process, or /proc hides it from this user")
            return
        except OSError as error:
            self._missing[pid] = Gap(f"process {pid}", f"it cannot be looked at: {error.strerror}", _FILES)
            return
        try:
            if self._counted and not self._everyone:
                self._counted.watch([pid])
        except OSError as error:
            why = f"eBPF does not count process {pid}: {error.strerror}"
            self._lasting.append(Gap(FAULTS_AND_FLUSHES, why, "fewer processes to watch"))
        if self._by_thread and not self._counted:
            self._add_perf(pid)

    def _add_perf(self, pid: int) -> None:
        """Counts the faults of its threads, but of later ones /proc tells from their start on. The kernel's part must
        be in it: a count without would be a wrong number."""
        events.raise_descriptor_limit()
        self._perf[pid] = ProcessCounters(
            pid,
            [(MINOR, MAJOR)],
            threads=True,
            new_threads=False,
            user_only_will_do=False,
            proc=self._host.proc,
        )

    def _drop(self, pid: int) -> None:
        del self._files[pid]
        if counters := self._perf.pop(pid, None):
            counters.close()
        if not self._counted:
            return
        try:
            self._counted.drop(pid)
        except OSError as error:
            self._lose_ebpf(error)

    def _choose(self) -> None:
        """Of the whole host: fills the room with the busiest of those that are not in yet, but kernel threads, which
        have no memory of their own."""
        self._chosen = time.monotonic()
        try:
            everyone = processes.processes(self._host.proc)
        except OSError as error:
            self._passing.append(_no_descriptor(error))
            return
        kthreadd, taken = 2, self._files.keys() | self._last_words.keys()
        others = [one for one in everyone if one.pid not in taken and kthreadd not in (one.pid, one.parent)]
        room = MOST_PROCESSES - len(self._files)
        if len(others) > room:
            others.sort(key=self._activity, reverse=True)
            why = f"{len(others) - room} of the host's processes are not told: {MOST_PROCESSES} at most are"
            self._passing.append(Gap("processes", why))
        for one in others[:room]:
            self._add(one.pid)
        self._missing.clear()  # that processes of a host end is no gap

    def _activity(self, process: Process) -> int:
        """CPU time so far."""
        try:
            return sum(ProcessFiles(process, self._host.proc).busy())
        except (Gone, OSError):
            return 0

    def _update_counted(self) -> None:
        if not self._counted or not self._program:
            return
        try:
            self._counted.update(self._files)
            lost = self._program.lost()
        except OSError as error:
            self._lose_ebpf(error)
            return
        if lost:
            why = f"{lost} events were not counted: more threads than the map in the kernel has room for"
            self._passing.append(Gap(FAULTS_AND_FLUSHES, why, "fewer processes to watch"))

    def _update(self, pid: int, room: int) -> tuple[int, int]:
        """Threads left for the next time, and looked at now."""
        try:
            left, used = self._files[pid].update(room)
        except Gone:
            self._end(pid)
            return 0, 0
        except OSError as error:
            self._passing.append(_no_descriptor(error))
            return 0, 0
        if counters := self._perf.get(pid):
            counters.read()
            self._passing += _perf_gaps(counters)
        return left, used

    def _end(self, pid: int) -> None:
        """What eBPF counted since the last read is the process's own, unless another has its number by now."""
        self._last_words[pid], why = None, "it exited"
        try:
            if self._counted and processes.process(pid, self._host.proc):
                self._last_words[pid] = self._counted.drop(pid)
                why = "it exited, and another has its number: what it did last is not told"
        except OSError as error:
            self._lose_ebpf(error)
        if not self._everyone:
            self._missing[pid] = Gap(f"process {pid}", why)

    def _readings(self, pid: int) -> list[Reading]:
        counters = self._perf.get(pid)
        by_perf = counters.threads() if counters else {}
        found = self._files[pid].readings(self._by_thread, faults_elsewhere=by_perf)
        for tid, counts in by_perf.items():
            for event, count in counts.items():
                key = (("system.paging.fault.type", event.metric),)
                found.append(Reading("process.paging.faults", count.value, "perf", pid, tid, key))
        if (last := self._last_words.get(pid)) is not None:
            return found + last
        return found + (self._counted.readings(pid) if self._counted else [])


def _perf_gaps(counters: ProcessCounters) -> list[Gap]:
    """Why /proc tells threads' faults, which takes longer."""
    return [
        Gap(
            "perf software events by thread (/proc is read instead)",
            str(refused),
            _FILES if refused.why is Refusal.FULL else "CAP_PERFMON, or kernel.perf_event_paranoid=1",
        )
        for refused in counters.refusals.values()
    ]


def _no_descriptor(error: OSError) -> Gap:
    return Gap("process.*", f"/proc could not be read: {error.strerror}", _FILES)
