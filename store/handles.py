"""Handles of the engine, each serving one statement at a time, and what is known of the statements that run on them."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from store.errors import EngineError

# Callers of a pool that may wait for a handle, each in a thread: with those that hold one they fit into the 40 threads
# of Starlette's pool, so that readers in a queue keep no writer out.
WAITING = 14
HANDLE_WAIT_S = 20.0
PROGRESS_REPORTS = 100  # that are kept of one statement
COUNTS = (
    "read_rows",
    "read_bytes",
    "written_rows",
    "written_bytes",
    "total_rows_to_read",
    "result_rows",
    "result_bytes",
)


@dataclass(frozen=True)
class Handle:
    """One connection to the engine. name: what its statements are known by in system.processes."""

    connection: Any
    name: str


class Pool:
    """Handles that serve one call at a time."""

    def __init__(self, handles: list[Handle]) -> None:
        self._count = len(handles)
        self._free: queue.LifoQueue[Handle] = queue.LifoQueue()
        for handle in handles:
            self._free.put(handle)
        self._waiting = threading.BoundedSemaphore(WAITING)

    @property
    def busy(self) -> bool:
        """Whether a handle is in use."""
        return self._free.qsize() < self._count

    @contextmanager
    def handle(self) -> Iterator[Handle]:
        """A handle for the time of the context; raises EngineError when too many wait for one, or for too long."""
        handle = self._take()
        try:
            yield handle
        finally:
            self._free.put(handle)

    def _take(self) -> Handle:
        busy = EngineError(
            202, "every query handle is busy; try again later", "TOO_MANY_SIMULTANEOUS_QUERIES"
        )
        if not self._waiting.acquire(blocking=False):
            raise busy
        try:
            return self._free.get(timeout=HANDLE_WAIT_S)
        except queue.Empty:
            raise busy from None
        finally:
            self._waiting.release()


class Statement:
    """One statement on its way through the engine: what it has done so far, and where it can be stopped.

    query_id: the client's name for it, or ours. by_writer: a reader's may be stopped by any reader.
    report_every_ms: how often its progress is noted in `reports`.
    """

    def __init__(self, query_id: str = "", *, by_writer: bool = False, report_every_ms: int = 100) -> None:
        self.query_id = query_id
        self.by_writer = by_writer
        self.sql = ""
        self.reports: list[Mapping[str, int]] = []
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.handle_name: str | None = None  # while the engine works for it
        self.on_progress: Callable[[], None] | None = None
        self._report_every_s = report_every_ms / 1000
        self._reported = self._started = time.monotonic()
        self._told: Mapping[str, int] = {}
        self._counted: Counter[str] = Counter()
        self._stopped = False

    @contextmanager
    def on(self, handle: Handle) -> Iterator[None]:
        """While the engine runs it on `handle`; raises EngineError when it was stopped before."""
        with self.lock:
            if self._stopped:
                raise EngineError(394, "Query was cancelled", "QUERY_WAS_CANCELLED")
            self.handle_name = handle.name
            self.ended.clear()
        handle.connection.set_progress_callback(self.note)
        try:
            yield
        finally:
            with self.lock:  # whoever stops it holds the lock, and must not hit the handle's next statement
                self.handle_name = None
            handle.connection.set_progress_callback(None)
            self.ended.set()

    def stop(self) -> None:
        """Have it end where it next looks; the engine has to be told, too."""
        self._stopped = True

    def note(self, told: Mapping[str, int]) -> None:
        """Take over what the engine tells; chDB does ten times a second and at the end."""
        self._told = told
        if self.on_progress:
            self.on_progress()
        now = time.monotonic()
        if now - self._reported >= self._report_every_s and len(self.reports) < PROGRESS_REPORTS:
            self._reported = now
            self.reports.append(self.progress)

    def add(self, block: Any, size: int | None = None) -> None:
        """Count a block of the result; the first one has often read its rows before the engine tells.

        size: bytes, where the block does not have them.
        """
        self._counted.update(
            read_rows=block.storage_rows_read(),
            read_bytes=block.storage_bytes_read(),
            result_rows=block.rows_read(),
            result_bytes=block.size() if size is None else size,
        )

    @property
    def progress(self) -> dict[str, int]:
        """Rows, bytes and nanoseconds so far, by ClickHouse's names for them."""
        counts = {name: max(self._told.get(name, 0), self._counted[name]) for name in COUNTS}
        return counts | {"elapsed_ns": int((time.monotonic() - self._started) * 1e9)}
