"""Memory that is slow on purpose: pages that no cache holds, and mappings that come and go."""

from __future__ import annotations

import hashlib
import mmap
import os
import tempfile
import threading
from typing import IO

MEGABYTE = 1 << 20
_CHUNK = 4 * MEGABYTE
_ROUNDS = 50_000  # some tens of milliseconds, without asking for the interpreter's lock in between


class Memory:
    """On the calling thread, which pays for it. One file, made when it is first needed and gone with the process.

    Where temporary files lie in memory (tmpfs) nothing can be cold: the faults are minor ones there.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._size = 0
        self._lock = threading.Lock()

    def prepare(self, nbytes: int) -> None:
        """Make a file that long, where there is none. Raises OSError where there is no room."""
        with self._lock:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="hitmap-cold-")  # noqa: SIM115 - faults come again
            for start in range(self._size, nbytes, _CHUNK):
                self._file.write(os.urandom(min(_CHUNK, nbytes - start)))
            self._file.flush()
            os.fsync(self._file.fileno())  # a page that is dirty cannot be dropped
            self._size = max(self._size, nbytes)

    def read_cold(self, nbytes: int) -> None:
        """Touch each page of so much of a file whose pages are not in memory: a major page fault each.

        Nothing where it was not prepared.
        """
        nbytes, file = min(nbytes, self._size), self._file
        if not nbytes or file is None:
            return
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(file.fileno(), nbytes, prot=mmap.PROT_READ) as view:
            view.madvise(mmap.MADV_RANDOM)  # else a fault brings its neighbours along
            for page in range(0, nbytes, mmap.PAGESIZE):
                view[page]

    def unmap(self, nbytes: int) -> None:
        """Map, write and unmap a page at a time, beside a thread that is busy on another CPU: a minor fault each, and a
        flush of the TLB, for which the other CPU is interrupted."""
        stop, cpus = threading.Event(), os.sched_getaffinity(0)
        own, other = min(cpus), max(cpus)
        beside = threading.Thread(target=_busy, args=(stop, other), name="busy", daemon=True)
        beside.start()
        try:
            os.sched_setaffinity(0, {own})
            for _ in range(0, nbytes, mmap.PAGESIZE):
                with mmap.mmap(-1, mmap.PAGESIZE) as page:
                    page[0] = 1
        finally:
            os.sched_setaffinity(0, cpus)
            stop.set()
            beside.join()


def _busy(stop: threading.Event, cpu: int) -> None:
    """On a CPU, in this memory and without the interpreter's lock: only then has that CPU something to flush. On a busy
    machine the two threads would take turns on one CPU, and nobody had to be interrupted: each keeps to its own."""
    os.sched_setaffinity(0, {cpu})
    while not stop.is_set():
        hashlib.pbkdf2_hmac("sha256", b"busy", b"busy", _ROUNDS)
