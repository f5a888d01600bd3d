"""A process that does a known amount of what kernels count: one line in, one line out.

read N | write N        N pages for the first time          thread N      the same as `read`, in a thread of its own
kernel N                N pages that the kernel writes       ifetch N      N pages of code, called
short N                 N threads, one after the other, a page each
shoot N                 a page taken away N times beside a busy thread
lock S                  waits S seconds for a lock           idle N        N threads that wait from now on
tids                    its threads
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import sys
import threading
import time
from pathlib import Path

PAGE = mmap.PAGESIZE
WINDOW = 16 * PAGE  # the kernel maps that much of a file around a fault
kept: list[object] = []


def pages(count: int) -> mmap.mmap:
    memory = mmap.mmap(-1, count * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory


def read(count: int) -> None:
    pages(count)[::PAGE]


def write(count: int) -> None:
    data = bytes(count)
    pages(count)[::PAGE] = data


def kernel(count: int) -> None:
    memory = pages(count)
    with Path("/dev/zero").open("rb", buffering=0) as zero:
        for at in range(count):
            zero.readinto(memoryview(memory)[at * PAGE : at * PAGE + 1])


def ifetch(count: int) -> None:
    file = os.memfd_create("code")  # its pages stay small
    os.truncate(file, count * WINDOW)
    for at in range(count):
        os.pwrite(file, b"\xc3", at * WINDOW)  # ret
    code = mmap.mmap(file, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_EXEC | mmap.PROT_WRITE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(code))
    for at in range(count):
        ctypes.CFUNCTYPE(None)(start + at * WINDOW)()


def thread(count: int) -> int:
    ids: list[int] = []
    one = threading.Thread(target=lambda: (ids.append(threading.get_native_id()), read(count)))
    one.start()
    one.join()
    return ids[0]


def short(count: int) -> None:
    for _ in range(count):
        thread(1)


def shoot(count: int) -> None:
    stop = threading.Event()
    ready = threading.Event()
    data = bytes(1 << 23)  # tens of milliseconds without the interpreter's lock

    def spin() -> None:
        ready.set()
        while not stop.is_set():
            hashlib.sha256(data)

    busy = threading.Thread(target=spin)
    busy.start()
    ready.wait()
    memory = pages(16)
    for done in range(count):
        if done % 50 == 0:
            time.sleep(0.02)  # lets the scheduler give each a CPU
        memory[::PAGE] = bytes(16)
        memory.madvise(mmap.MADV_DONTNEED)
    stop.set()
    busy.join()


def lock(seconds: float) -> None:
    held = threading.Lock()
    held.acquire()
    held.acquire(timeout=seconds)


def idle(count: int) -> None:
    threading.stack_size(64 * 1024)
    forever = threading.Event()
    try:
        for _ in range(count):
            threading.Thread(target=forever.wait, daemon=True).start()
    except RuntimeError:  # the host allows no more
        pass
    kept.append(forever)


def main() -> None:
    does = {
        "read": read,
        "write": write,
        "kernel": kernel,
        "ifetch": ifetch,
        "thread": thread,
        "short": short,
    }
    does |= {"shoot": shoot, "idle": idle}
    pages(1)[::PAGE]  # warm up
    print("ready", flush=True)
    for line in sys.stdin:
        what, _, count = line.strip().partition(" ")
        answer: object = "done"
        if what == "lock":
            lock(float(count))
        elif what == "tids":
            answer = len(list(Path("/proc/self/task").iterdir()))
        elif what == "sleep":
            time.sleep(float(count))
        else:
            answer = does[what](int(count)) or "done"
        print(answer, flush=True)


if __name__ == "__main__":
    main()
