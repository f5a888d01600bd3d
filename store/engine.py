"""The in-process ClickHouse engine (chDB) of one directory, and who may use which of its handles.

What shapes this module, seen on chDB 4.4: one engine path per process, guarded by an exclusive file lock; any number of
handles to it, each with settings and a current database of its own; a query on a handle whose stream is open silently
returns nothing, so a handle serves one call at a time; `readonly` sticks to the handle it was set on. Hence two pools:
readers, set to readonly once and for all, and writers.
"""

from __future__ import annotations

import queue
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chdb

READER_HANDLES = 6
WRITER_HANDLES = 4
HANDLE_WAIT_S = 20.0
# Formats whose blocks can be sent one after the other; any other has a head or a tail and is built whole.
STREAMABLE = frozenset(
    {"Native", "TabSeparated", "TSV", "TSVRaw", "CSV", "RowBinary", "JSONEachRow", "JSONLines"}
)

_SELECT = re.compile(r"\s*\(*\s*(SELECT|WITH)\b", re.IGNORECASE)  # the only statements that can be streamed
_SETTING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CODE = re.compile(r"Code: (\d+)\. (DB::Exception.*)", re.DOTALL)


class EngineError(Exception):
    """ClickHouse refused or failed a statement; `code` is ClickHouse's error code."""

    def __init__(self, message: str, code: int = 1002) -> None:
        super().__init__(message)
        self.code = code

    @classmethod
    def of(cls, error: Exception) -> EngineError:
        """The engine's own message and code out of what the binding raised."""
        found = _CODE.search(str(error))
        if not found:
            return cls(str(error))
        return cls(f"Code: {found[1]}. {found[2].strip()}", int(found[1]))


@dataclass(frozen=True)
class Limits:
    """Bounds of the engine, in bytes and seconds.

    memory: of all queries and caches together; a query that would pass it fails and leaves the process alive.
    query_memory: of one reader's query.
    query_seconds: how long one reader's query may run.
    """

    memory: int = 4_000_000_000
    query_memory: int = 2_000_000_000
    query_seconds: int = 120


class Engine:
    """Owns `directory` for the life of the object; raises RuntimeError when another process owns it."""

    def __init__(self, directory: Path, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self._path = f"{directory}?max_server_memory_usage={limits.memory}&mark_cache_size=268435456"
        self._readers: queue.LifoQueue[Any] = queue.LifoQueue()
        self._writers: queue.LifoQueue[Any] = queue.LifoQueue()
        self._handles = []
        for pool, count in ((self._writers, WRITER_HANDLES), (self._readers, READER_HANDLES)):
            for _ in range(count):
                handle = chdb.connect(self._path)  # type: ignore[no-untyped-call]
                self._handles.append(handle)
                pool.put(handle)
        for handle in list(self._readers.queue):
            handle.query(
                f"SET max_memory_usage = {limits.query_memory}, max_execution_time = {limits.query_seconds},"
                " allow_introspection_functions = 0, readonly = 2"
            )

    def close(self) -> None:
        """Close every handle; the directory is free afterwards."""
        for handle in self._handles:
            handle.close()

    @contextmanager
    def _handle(self, writer: bool, database: str | None, settings: Mapping[str, str]) -> Iterator[Any]:
        pool = self._writers if writer else self._readers
        try:
            handle = pool.get(timeout=HANDLE_WAIT_S)
        except queue.Empty:
            raise EngineError(
                "Code: 202. DB::Exception: every query handle is busy; try again later "
                "(TOO_MANY_SIMULTANEOUS_QUERIES)",
                202,
            ) from None
        try:
            with _engine_errors():
                handle.query(f"USE {quote_name(database or 'default')}")
                if settings:
                    handle.query(f"SET {assignments(settings)}")
            yield handle
        finally:
            if settings:
                handle.query("SET " + ", ".join(f"{name} = DEFAULT" for name in settings))
            pool.put(handle)

    def query(
        self,
        sql: str,
        output_format: str,
        *,
        writer: bool = False,
        database: str | None = None,
        params: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Iterator[bytes]:
        """Run one statement and yield its result in `output_format`, block by block where the format allows.

        Raises EngineError before the first block, or between blocks when the statement fails half way.
        """
        bound = dict(params or {})
        with self._handle(writer, database, settings or {}) as handle, _engine_errors():
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
        database: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> int:
        """Insert `data` by an INSERT statement without its FORMAT clause; return the rows written.

        All or nothing for one partition of one table; raises EngineError.
        """
        if settings:
            sql = f"{sql} SETTINGS {assignments(settings)}"
        with (
            self._handle(True, database, {}) as handle,
            _engine_errors(),
            handle.send_insert(sql, input_format) as stream,
        ):
            stream.append(data)
            return int(stream.finish().rows_written)


@contextmanager
def _engine_errors() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, chdb.ChdbError) as error:
        raise EngineError.of(error) from None


def quote_name(name: str) -> str:
    """`name` as a quoted ClickHouse identifier."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quote_text(text: str) -> str:
    """`text` as a ClickHouse string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def assignments(settings: Mapping[str, str]) -> str:
    """`a = '1', b = 'x'` for SET and SETTINGS; raises EngineError for a name that is not an identifier."""
    for name in settings:
        if not _SETTING_NAME.fullmatch(name):
            raise EngineError(f"Code: 115. DB::Exception: {name!r} is no setting (UNKNOWN_SETTING)", 115)
    return ", ".join(f"{name} = {quote_text(value)}" for name, value in settings.items())
