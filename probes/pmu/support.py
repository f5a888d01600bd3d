"""Which of the CPU's counters work here, each tried just now."""

from __future__ import annotations

from probes.perf import events
from probes.perf.events import Kernel, Refusal, Refused
from probes.pmu.events import PAIRS, why
from probes.support import State, Support

_NAMES = ("cycles and instructions", "last-level cache", "L1 data cache", "data TLB")
_WORK = 200_000


def support(kernel: Kernel | None = None) -> list[Support]:
    """One row a pair of events."""
    kernel = kernel or events.Syscalls()
    return [_row(kernel, name, pair) for name, pair in zip(_NAMES, PAIRS, strict=True)]


def _row(kernel: Kernel, name: str, pair: tuple[events.Event, ...]) -> Support:
    try:
        opened = events.open_group(kernel, pair, 0)
    except Refused as refused:
        sentence, needs = why(refused)
        if refused.why is Refusal.UNSUPPORTED:
            return Support("pmu", name, State.NEVER, f"{sentence} ({refused})")
        return Support("pmu", name, State.NO, sentence, needs)
    try:
        sum(range(_WORK))
        counted = events.read_group(kernel, opened.fds, inherited=False)
    except OSError as error:
        return Support("pmu", name, State.NO, f"its counters do not answer: {error.strerror}")
    finally:
        for fd in opened.fds:
            kernel.close(fd)
    if not counted[0].running:
        return Support("pmu", name, State.NO, "other perf sessions hold the counters", "end them")
    how = ", ".join(
        f"{one.value:,} {event.metric.rpartition('.')[2]}" for event, one in zip(pair, counted, strict=True)
    )
    if opened.user_only:
        needs = "CAP_PERFMON, or sysctl kernel.perf_event_paranoid=1"
        return Support("pmu", name, State.LESS, f"{how}; without work in the kernel", needs)
    return Support("pmu", name, State.YES, how)
