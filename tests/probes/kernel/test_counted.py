"""Totals of entries of the kernel's map, held against sums in plain Python. The real map is in test_ebpf."""

from __future__ import annotations

import math
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.observed import TLB_REASONS
from probes.kernel import counted
from probes.kernel.counted import Counted

PLACES = 15
NAMES = [
    *(("hitmap.page_faults", mode, access) for mode in ("user", "kernel") for access in ("read", "write", "ifetch")),
    *(("hitmap.tlb_flushes", reason) for reason in TLB_REASONS),
    ("hitmap.futex_waits",),
    ("hitmap.futex_wait_time",),
    ("hitmap.off_cpu_time",),
]  # fmt: skip
COUNTS = st.one_of(st.integers(0, 3), st.sampled_from([2**32 - 1, 2**32, 2**62]))
Entries = dict[tuple[int, int], list[int]]
READS = st.lists(
    st.dictionaries(
        st.tuples(st.integers(1, 3), st.integers(1, 3)), st.lists(COUNTS, min_size=PLACES, max_size=PLACES), max_size=6
    ),
    max_size=6,
)  # fmt: skip


class Entered:
    """What stands in the map, in place of the program that fills it."""

    attached = frozenset(
        ["page_fault_user", "page_fault_kernel", "tlb_flush", "syscalls:sys_exit_futex", "sched_switch"]
    )

    def __init__(self) -> None:
        self.entries: Entries = {}

    def read(self) -> Iterator[tuple[int, int, bytes]]:
        for (pid, tid), counts in self.entries.items():
            yield pid, tid, struct.pack("=18Q", *counts, 70 + pid, 2**64 - 1, 2**64 - 1)


@pytest.fixture(scope="module", autouse=True)
def unswept() -> Iterator[None]:
    """Nobody looks in /proc for these threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted, "SWEEP_S", math.inf)
        yield


@given(READS)
def test_totals_are_what_entries_grew_by_and_an_entry_made_anew_begins_at_0(reads: list[Entries]) -> None:
    program = Entered()
    counting = Counted(program, threads=True, futex=True, off_cpu=True)  # type: ignore[arg-type]
    totals: dict[int, list[int]] = defaultdict(lambda: [0] * PLACES)
    for entries in reads:
        for key, now in entries.items():
            before = program.entries.get(key, [0] * PLACES)
            grown = [new - old for new, old in zip(now, before, strict=True)]
            if min(grown) < 0:
                grown = now
            totals[key[0]] = [total + more for total, more in zip(totals[key[0]], grown, strict=True)]
        if any(max(total) >= 2**63 for total in totals.values()):
            return  # no counter of 64 bits gets there: 292 years of nanoseconds
        program.entries |= entries
        counting.update(told=range(9))
        for pid, expected in totals.items():
            found = counting.readings(pid)
            assert told(found, None) == units(expected)
            assert counting.cgroups[pid] == 70 + pid
            for (of, tid), counts in program.entries.items():
                if of == pid:
                    assert told(found, tid) == {name: n for name, n in units(counts).items() if n}


def units(counts: list[int]) -> dict[tuple[str, ...], float]:
    scales = [*[1] * (PLACES - 2), 1e-9, 1e-9]
    return {name: n * scale for name, n, scale in zip(NAMES, counts, scales, strict=True)}


def told(readings, tid: int | None) -> dict[tuple[str, ...], float]:  # type: ignore[no-untyped-def]
    found = [one for one in readings if one.tid == tid]
    names = [(one.metric, *(value for _, value in one.attributes)) for one in found]
    assert max(Counter(names).values(), default=1) == 1, "each is told once"
    return dict(zip(names, (one.value for one in found), strict=True))
