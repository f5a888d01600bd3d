"""Which counters of the CPU, in groups that count at the same times, so that a ratio compares like with like."""

from __future__ import annotations

from probes.perf.events import HARDWARE, Event, Kernel, Refused, cache_event, open_group

_L1D, _LLC, _DTLB = 0, 2, 3  # enum perf_hw_cache_id
_CYCLES, _INSTRUCTIONS = 0, 1  # enum perf_hw_id

PAIRS = (
    (
        Event("hitmap.pmu.cycles", HARDWARE, _CYCLES),
        Event("hitmap.pmu.instructions", HARDWARE, _INSTRUCTIONS),
    ),
    (cache_event("hitmap.pmu.llc.loads", _LLC, False), cache_event("hitmap.pmu.llc.misses", _LLC, True)),
    (cache_event("hitmap.pmu.l1d.loads", _L1D, False), cache_event("hitmap.pmu.l1d.misses", _L1D, True)),
    (cache_event("hitmap.pmu.dtlb.loads", _DTLB, False), cache_event("hitmap.pmu.dtlb.misses", _DTLB, True)),
)
"""Two of each, since few CPUs have more than four counters free: a larger group might never get its turn."""
EVENTS = tuple(event for pair in PAIRS for event in pair)

Groups = tuple[tuple[Event, ...], ...]


def tried(kernel: Kernel) -> tuple[Groups, dict[Event, Refused]]:
    """Groups of what this CPU counts, tried on the calling thread, and why the rest is refused."""
    refused: dict[Event, Refused] = {}
    for event in EVENTS:
        try:
            opened = open_group(kernel, (event,), 0)
        except Refused as error:
            refused[event] = error
            continue
        for fd in opened.fds:
            kernel.close(fd)
    groups = (tuple(event for event in pair if event not in refused) for pair in PAIRS)
    return tuple(group for group in groups if group), refused


def why(refused: Refused) -> tuple[str, str]:
    """(one sentence, what would open it) of a refusal."""
    sentences = {
        "unsupported": (
            "this CPU or hypervisor does not offer this counter",
            "a host with its PMU passed through",
        ),
        "denied": ("this user may not open counters", "CAP_PERFMON, or sysctl kernel.perf_event_paranoid=2"),
        "full": ("no file descriptor was left", "more open files (ulimit -n)"),
    }
    return sentences.get(refused.why, (f"the kernel refused it: {refused}", ""))
