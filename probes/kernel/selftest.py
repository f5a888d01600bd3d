"""Does the kernel count what is done here? Known work in this process, and what the program saw of it."""

from __future__ import annotations

import hashlib
import mmap
import os
import threading
import time
from typing import NamedTuple

from cachemodel import observed
from probes.kernel.ebpf import Counts, Program, decoded

PAGE = mmap.PAGESIZE
TOLERANCE = 64
"""Faults of the interpreter's own that may come on top."""
_AT_ONCE, _TRIES = 50, 5
_SHOOTDOWNS = tuple(observed.TLB_REASONS.index(reason) for reason in observed.SHOOTDOWNS)


class Seen(NamedTuple):
    """What was done, and what was counted of it."""

    done: int
    counted: int


def faults(program: Program, pages: int = 4096) -> Seen:
    """Reads that many pages for the first time, in this thread. Counted are its read faults in user mode."""
    with _small_pages(pages) as memory:
        before = _thread(program)
        touch(memory)
        after = _thread(program)
    return Seen(pages, after.faults[0] - before.faults[0])


def shootdowns(program: Program, rounds: int = 200) -> Seen:
    """Takes pages away that a thread on another CPU could know, that many times. Counted are flushes of other CPUs,
    sent and received: the best of a few tries, since the kernel may keep both threads on one CPU. 0 where there is but
    one."""
    found = Seen(rounds, 0)
    for _ in range(_TRIES):
        found = max(found, Seen(rounds, _storm(program, rounds)))
        if found.counted >= rounds // 2:
            break
    return found


def _storm(program: Program, rounds: int) -> int:
    stop = threading.Event()
    ready = threading.Event()
    busy = threading.Thread(target=_keep_busy, args=(ready, stop))
    busy.start()
    ready.wait()
    try:
        with _small_pages(16) as memory:
            before = _shot_down(program)
            for done in range(rounds):
                if done % _AT_ONCE == 0:
                    time.sleep(0.02)  # lets the scheduler give each thread a CPU
                memory[::PAGE] = bytes(16)
                memory.madvise(mmap.MADV_DONTNEED)
            counted = _shot_down(program) - before
    finally:
        stop.set()
        busy.join()
    return counted


def touch(memory: mmap.mmap) -> None:
    """Reads one byte of each page."""
    memory[::PAGE]


def _small_pages(pages: int) -> mmap.mmap:
    """Memory that is mapped page by page, and not there yet."""
    memory = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory


def _keep_busy(ready: threading.Event, stop: threading.Event) -> None:
    """Runs beside others: hashing lets go of the interpreter's lock."""
    data = bytes(1 << 23)  # tens of milliseconds each
    ready.set()
    while not stop.is_set():
        hashlib.sha256(data)


def _thread(program: Program) -> Counts:
    return _counts(program).get(threading.get_native_id(), Counts((0,) * 6, (0,) * 6, 0, 0, 0, 0))


def _shot_down(program: Program) -> int:
    return sum(counts.flushes[at] for counts in _counts(program).values() for at in _SHOOTDOWNS)


def _counts(program: Program) -> dict[int, Counts]:
    return {tid: decoded(raw) for pid, tid, raw in program.read() if pid == os.getpid()}
