"""KV in a file of fixed slots, written and read by one thread in the order asked.

The file has no name, so that nothing is left behind however the process ends, and grows only as slots are used. Every
block has a checksum. Trouble of the disk is counted and costs hits; after `MAX_FAILURES` in a row the tier switches
itself off. Nothing here raises once the file is open.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import tempfile
import threading
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path

import torch

from cachemodel.errors import UserError
from engine.cache.block import CachedBlock

_log = logging.getLogger(__name__)
MAX_WAITING_BYTES = 64 << 20
"""KV that waits to be written; more is dropped."""
MIN_WAITING_BLOCKS = 4
MAX_FAILURES = 8


class Read:
    """A block on its way from the disk. done: it ended; kv is None where that failed. Cancelled ones are not read."""

    __slots__ = ("cancelled", "done", "kv", "slot")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.kv: torch.Tensor | None = None
        self.done = self.cancelled = False


class DiskTier:
    """capacity: slots. off: it gave up. failures: of writes and reads; error: the last one. failed: blocks whose write
    failed, for the core to take.

    Raises UserError where the folder cannot be written to.
    """

    def __init__(
        self, folder: Path | None, capacity: int, shape: tuple[int, ...], dtype: torch.dtype
    ) -> None:
        try:
            self._file = tempfile.TemporaryFile(prefix="hitmap-kv-", dir=folder, buffering=0)  # noqa: SIM115
        except OSError as error:
            where = folder or tempfile.gettempdir()
            raise UserError(
                f"the disk tier cannot write to {where} ({error.strerror}): name a folder it can use"
            ) from None
        self.capacity, self._shape, self._dtype = capacity, shape, dtype
        self.block_bytes = math.prod(shape) * dtype.itemsize
        self.free = list(range(capacity - 1, -1, -1))
        self.failed: deque[CachedBlock] = deque()
        self.failures = 0
        self.error = ""
        self.off = False
        self._in_a_row = 0
        self._checksums: dict[int, int] = {}
        self._room = threading.Semaphore(max(MIN_WAITING_BLOCKS, MAX_WAITING_BYTES // self.block_bytes))
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="kv-disk", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Of the file."""
        return self._file.fileno()

    def take(self) -> int | None:
        """A free slot, if there is one."""
        return self.free.pop() if self.free and not self.off else None

    def give(self, slot: int) -> None:
        """Take a slot back. What is asked of it later happens later."""
        self.free.append(slot)

    def reserve_write(self) -> bool:
        """Whether one more block may wait to be written; `write` or `cancel_write` must follow."""
        return self._room.acquire(blocking=False)

    def cancel_write(self) -> None:
        """Give a reservation back."""
        self._room.release()

    def write(self, slot: int, kv: torch.Tensor, block: CachedBlock) -> None:
        """Write a block's KV, a contiguous tensor on the CPU that nobody changes any more."""
        self._jobs.put(lambda: self._write(slot, kv, block))

    def read(self, slot: int) -> Read:
        """Fetch a slot."""
        read = Read(slot)
        self._jobs.put(lambda: self._read(read))
        return read

    def settle(self) -> None:
        """Wait until everything asked so far is done."""
        done = threading.Event()
        self._jobs.put(done.set)
        done.wait()

    def close(self) -> None:
        """End the thread and give the space back."""
        self._jobs.put(None)
        self._thread.join()
        self._file.close()

    # On the disk's thread

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _write(self, slot: int, kv: torch.Tensor, block: CachedBlock) -> None:
        self._room.release()
        self._checksums.pop(slot, None)
        try:
            if self.off:
                return
            data = _bytes(kv)
            self._transfer(data, slot, lambda part, at: os.pwrite(self.fileno(), part, at))
            self._checksums[slot] = zlib.crc32(data)
            self._in_a_row = 0
        except Exception as error:  # of any kind: without this thread who waits for a block waits for ever
            self._fail(error)
            self.failed.append(block)

    def _read(self, read: Read) -> None:
        if read.cancelled:
            return
        try:
            expected = self._checksums.get(read.slot)
            if expected is not None and not self.off:
                kv = torch.empty(self._shape, dtype=self._dtype)
                data = _bytes(kv)
                self._transfer(data, read.slot, lambda part, at: os.preadv(self.fileno(), [part], at))
                if zlib.crc32(data) != expected:
                    raise OSError("a block's checksum is wrong")
                read.kv = kv
                self._in_a_row = 0
        except Exception as error:
            self._fail(error)
        finally:
            read.done = True

    def _transfer(self, data: memoryview, slot: int, call: Callable[[memoryview, int], int]) -> None:
        """All of `data`, at the slot's place, in as many calls as it takes."""
        at = 0
        while at < len(data):
            moved = call(data[at:], slot * self.block_bytes + at)
            if moved <= 0:
                raise OSError("the file ends too early")
            at += moved

    def _fail(self, error: Exception) -> None:
        self.failures += 1
        self.error = str(error)
        self._in_a_row += 1
        if self._in_a_row >= MAX_FAILURES and not self.off:
            self.off = True
            _log.warning("the disk tier is off after %d failures in a row: %s", MAX_FAILURES, self.error)


def _bytes(kv: torch.Tensor) -> memoryview:
    """What a contiguous tensor holds; bfloat16 has no other way into a buffer."""
    return kv.flatten().view(torch.uint8).numpy().data
