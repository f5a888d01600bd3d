"""The in-process ClickHouse engine (chDB) of one directory, and who may use which of its handles.

What shapes this module, seen on chDB 4.4: one engine path per process, guarded by an exclusive file lock; any number of
handles to it, each with settings and a current database of its own; a query on a handle whose stream is open silently
returns nothing, so a handle serves one call at a time; `readonly` sticks to the handle it was set on. Hence two pools:
readers, set to readonly once and for all, and writers.
"""

from __future__ import annotations

import os
import queue
import re
import tempfile
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chdb

READER_HANDLES = 6
WRITER_HANDLES = 4
# Callers of a pool that may wait for a handle, each in a thread: with those that hold one they fit into the 40 threads
# of Starlette's pool, so that readers in a queue keep no writer out.
WAITING = 14
HANDLE_WAIT_S = 20.0
# Formats whose blocks can be sent one after the other; any other has a head or a tail and is built whole.
STREAMABLE = frozenset(
    {"CSV", "JSONEachRow", "JSONLines", "Native", "RowBinary", "TSV", "TSVRaw", "TabSeparated"}
)

_SELECT = re.compile(r"\s*\(*\s*(SELECT|WITH)\b", re.IGNORECASE)  # the only statements that can be streamed
_SETTING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CODE = re.compile(r"Code: (\d+)\. DB::Exception: (.*)", re.DOTALL)

Blocks = Generator[bytes, None, None]  # of a result; to be closed by whoever does not read it to its end


class EngineError(Exception):
    """ClickHouse, or what stands for it here, refused or failed a statement; `code` is ClickHouse's error code."""

    def __init__(self, code: int, text: str, name: str = "") -> None:
        super().__init__(f"Code: {code}. DB::Exception: {text}" + (f" ({name})" if name else ""))
        self.code = code

    @classmethod
    def of(cls, error: Exception) -> EngineError:
        """The engine's own code and words out of what the binding raised."""
        found = _CODE.search(str(error))
        return cls(int(found[1]), found[2].strip()) if found else cls(1002, str(error), "UNKNOWN_EXCEPTION")


def _half_of_the_machine() -> int:
    return min(4_000_000_000, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


@dataclass(frozen=True)
class Limits:
    """Bounds of the engine, in bytes and seconds.

    memory: of all queries and caches together; a query that would pass it fails and leaves the process alive.
    reader_seconds: how long one reader's query may run.
    reader_threads: how many threads one reader's query may use.
    """

    memory: int = field(default_factory=_half_of_the_machine)
    reader_seconds: int = 120
    reader_threads: int = 8

    @property
    def of_a_reader(self) -> dict[str, int]:
        """The settings of a reader's handle; 0 would mean no limit."""
        return {
            "max_memory_usage": self.memory // 2,
            "max_execution_time": self.reader_seconds,
            "max_threads": self.reader_threads,
        }


class _Pool:
    """Handles that serve one call at a time."""

    def __init__(self, handles: list[Any]) -> None:
        self._count = len(handles)
        self._free: queue.LifoQueue[Any] = queue.LifoQueue()
        for handle in handles:
            self._free.put(handle)
        self._waiting = threading.BoundedSemaphore(WAITING)

    @property
    def busy(self) -> bool:
        return self._free.qsize() < self._count

    @contextmanager
    def handle(self) -> Iterator[Any]:
        """A handle for the time of the context; raises EngineError when too many wait for one, or for too long."""
        handle = self._take()
        try:
            yield handle
        finally:
            self._free.put(handle)

    def _take(self) -> Any:
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


INSERT_FILE = "insert-"


class Engine:
    """Owns `directory` for the life of the object; raises RuntimeError when another process owns it."""

    def __init__(self, directory: Path, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._directory = directory.absolute()
        for left in self._directory.glob(f"{INSERT_FILE}*"):  # of a process that was killed
            left.unlink()
        path = f"{directory}?max_server_memory_usage={self.limits.memory}&mark_cache_size=268435456"
        self._handles = [chdb.connect(path) for _ in range(READER_HANDLES + WRITER_HANDLES)]  # type: ignore[no-untyped-call]
        readers, writers = self._handles[:READER_HANDLES], self._handles[READER_HANDLES:]
        bounds = ", ".join(f"{name} = {value}" for name, value in self.limits.of_a_reader.items())
        for handle in readers:
            handle.query(f"SET {bounds}, readonly = 2")
        self._readers, self._writers = _Pool(readers), _Pool(writers)

    @property
    def busy(self) -> bool:
        """Whether a statement is under way."""
        return self._readers.busy or self._writers.busy

    def close(self) -> None:
        """Close every handle, when none is busy; the directory is free afterwards."""
        for handle in self._handles:
            handle.close()

    @contextmanager
    def _handle(self, writer: bool, database: str, settings: Mapping[str, str]) -> Iterator[Any]:
        """A handle with `database` and `settings` in force; both are gone from it afterwards."""
        if unknown := [name for name in settings if not _SETTING_NAME.fullmatch(name)]:
            raise EngineError(115, f"{unknown[0]!r} is no setting", "UNKNOWN_SETTING")
        with (self._writers if writer else self._readers).handle() as handle, _engine_errors():
            handle.query(f"USE {quote_name(database)}")
            if not settings:
                yield handle
                return
            try:
                handle.query("SET " + ", ".join(f"{k} = {quote_text(v)}" for k, v in settings.items()))
                yield handle
            finally:
                # DEFAULT would be the engine's, and lift what binds this handle
                kept = {} if writer else self.limits.of_a_reader
                handle.query("SET " + ", ".join(f"{k} = {kept.get(k, 'DEFAULT')}" for k in settings))

    def query(
        self,
        sql: str,
        output_format: str,
        *,
        writer: bool = False,
        database: str = "default",
        params: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Blocks:
        """Run one statement and yield its result in `output_format`, block by block where the format allows.

        Raises EngineError before the first block, or between blocks when the statement fails half way.
        """
        bound = dict(params or {})
        with self._handle(writer, database, settings or {}) as handle:
            if output_format in STREAMABLE and _SELECT.match(sql):
                with handle.send_query(sql, output_format, params=bound) as stream:
                    for block in stream:
                        if data := block.bytes():
                            yield data
            else:
                yield handle.query(sql, output_format, params=bound).bytes()

    def insert(
        self,
        sql: str,
        input_format: str,
        data: bytes,
        *,
        database: str = "default",
        settings: Mapping[str, str] | None = None,
    ) -> int:
        """Insert `data` by an INSERT statement without its FORMAT clause; return the rows written, views included.

        All or nothing for one partition of one table; raises EngineError. The data goes through a file: chDB's insert
        stream reports success when the engine refused the rows (too many partitions, out of memory).
        """
        with tempfile.NamedTemporaryFile(dir=self._directory, prefix=INSERT_FILE) as file:
            file.write(data)
            file.flush()
            head, inline = _split_settings(sql)
            source = f"{head} FROM INFILE {quote_text(file.name)} COMPRESSION 'none' {inline} FORMAT {input_format}"
            with self._handle(True, database, settings or {}) as handle:
                return int(handle.query(source, "Null").rows_read())


def _split_settings(sql: str) -> tuple[str, str]:
    """An INSERT's head, and its own SETTINGS clause, which goes behind the file."""
    found = re.search(r"\bSETTINGS\b", sql, re.IGNORECASE)
    return (sql[: found.start()], sql[found.start() :]) if found else (sql, "")


@contextmanager
def _engine_errors() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, UnicodeDecodeError, chdb.ChdbError) as error:  # words on bytes that are no text
        raise EngineError.of(error) from None


def quote_name(name: str) -> str:
    """`name` as a quoted ClickHouse identifier."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quote_text(text: str) -> str:
    """`text` as a ClickHouse string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
