"""What of the kernel can be watched here: each tried just now, not guessed from versions."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from probes.kernel import processes, requirements, selftest
from probes.kernel.ebpf import Program, Unavailable
from probes.kernel.requirements import Host, Missing
from probes.kernel.sensor import MAJOR, MINOR
from probes.kernel.thread import ThreadCounters
from probes.perf.counters import ProcessCounters
from probes.support import State, Support

FAULTS, FLUSHES = "page faults by mode and access", "TLB flushes and shootdowns"
FUTEX, OFF_CPU = "waits for locks (futex)", "off-CPU time"
PAGES, ROUNDS = 4096, 200


def support(host: Host | None = None) -> list[Support]:
    """One row a feature. Takes about half a second where eBPF works."""
    host = host or Host()
    return [*_ebpf(host), *_by_thread(host), _own_threads(), *_others(host)]


def _ebpf(host: Host) -> Iterator[Support]:
    no_tracefs = requirements.tracefs(host)
    try:
        program = Program(futex=not no_tracefs, off_cpu=True, host=host)
    except Unavailable as unavailable:
        yield from (_not(name, unavailable.missing) for name in (FAULTS, FLUSHES, FUTEX, OFF_CPU))
        return
    except OSError as error:
        missing = [Missing(f"eBPF could not be started: {error.strerror}", "more open files (ulimit -n)")]
        yield from (_not(name, missing) for name in (FAULTS, FLUSHES, FUTEX, OFF_CPU))
        return
    try:
        program.watch([os.getpid()])
        yield _faults(program)
        yield _flushes(program)
        for name, tracepoint in ((FUTEX, "syscalls:sys_exit_futex"), (OFF_CPU, "sched_switch")):
            if name == FUTEX and no_tracefs:
                yield _not(name, [no_tracefs])
            elif tracepoint in program.attached:
                yield Support("kernel", name, State.YES, f"eBPF, {tracepoint}")
            else:
                yield Support("kernel", name, State.NEVER, f"this kernel has no {tracepoint}")
    finally:
        program.close()


def _faults(program: Program) -> Support:
    seen = selftest.faults(program, PAGES)
    how = f"eBPF: {seen.done:,} pages touched, {seen.counted:,} faults"
    exact = seen.done <= seen.counted <= seen.done + selftest.TOLERANCE
    if exact:
        return Support("kernel", FAULTS, State.YES, how)
    why = "; ".join(program.refused.values()) or "the counts are not what was done: do not use them"
    return Support("kernel", FAULTS, State.NEVER, f"{how}; {why}")


def _flushes(program: Program) -> Support:
    if "tlb_flush" not in program.attached:
        return Support("kernel", FLUSHES, State.NEVER, program.refused.get("tlb_flush", "no such tracepoint"))
    cpus = len(os.sched_getaffinity(0))
    if cpus == 1:
        return Support(
            "kernel", FLUSHES, State.YES, "eBPF, tlb:tlb_flush; one CPU, so that none is shot down"
        )
    seen = selftest.shootdowns(program, ROUNDS)
    how = f"eBPF: pages taken away {seen.done} times beside a busy thread, {seen.counted} shootdowns"
    return Support("kernel", FLUSHES, State.YES if seen.counted else State.LESS, how)


def _not(name: str, missing: Sequence[Missing]) -> Support:
    never = any(one.needs == "x86_64" for one in missing)
    return Support(
        "kernel",
        name,
        State.NEVER if never else State.NO,
        "; ".join(one.why for one in missing),
        "" if never else "; ".join(one.needs for one in missing if one.needs),
    )


def _by_thread(host: Host) -> Iterator[Support]:
    """Minor and major faults of a thread: perf's software events, else /proc."""
    name = "minor and major faults by thread"
    counters = ProcessCounters(
        os.getpid(), [(MINOR, MAJOR)], threads=True, user_only_will_do=False, proc=host.proc
    )
    try:
        _touch()
        counters.read()
        counted = counters.process().get(MINOR)
    finally:
        refusals = list(counters.refusals.values())
        counters.close()
    if counted is not None and counted.value >= PAGES:
        yield Support(
            "kernel", name, State.YES, f"perf software events: {PAGES:,} pages, {counted.value:,.0f}"
        )
    elif (host.proc / "self" / "stat").exists():
        why = str(refusals[0]) if refusals else "they count nothing"
        needs = "CAP_PERFMON, or sysctl kernel.perf_event_paranoid=1"
        yield Support("kernel", name, State.LESS, f"/proc; perf software events: {why}", needs)
    else:
        yield Support("kernel", name, State.NO, "/proc is not mounted", "mount -t proc proc /proc")


def _own_threads() -> Support:
    counters = ThreadCounters()
    before = counters.read()
    _touch()
    spent = counters.delta(before, counters.read())
    how = f"getrusage: {PAGES:,} pages touched, {spent.minor_faults:,} faults"
    return Support("kernel", "threads of the instrumented process", State.YES, how)


def _others(host: Host) -> Iterator[Support]:
    """What /proc shows of other users' processes."""
    started = time.perf_counter()
    seen = processes.processes(host.proc)
    took = (time.perf_counter() - started) * 1e3
    other = [one.pid for one in seen if not _mine(host.proc / str(one.pid))]
    name = "other users' processes"
    if not other and os.geteuid():
        yield Support("kernel", name, State.NO, "/proc shows none", "root, or /proc mounted without hidepid")
        return
    yield Support("kernel", name, State.YES, f"/proc: {len(seen)} processes in {took:.0f} ms")
    readable = all(_readable(host.proc / str(pid) / "fd") for pid in other[:8])
    yield Support(
        "kernel",
        "process by its port",
        State.YES if readable else State.LESS,
        "sockets of all processes" if readable else "only sockets of this user's processes",
        "" if readable else "root, or CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
    )


def _touch() -> None:
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        selftest.touch(memory)


def _mine(folder: Path) -> bool:
    try:
        return folder.stat().st_uid == os.geteuid()
    except OSError:
        return True


def _readable(folder: Path) -> bool:
    try:
        for descriptor in folder.iterdir():
            descriptor.readlink()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
