"""The in-process ClickHouse engine (chDB) of one directory, and who may use which of its handles.

What shapes this module, seen on chDB 4.4: one engine path per process, guarded by an exclusive file lock; any number of
handles to it, each with settings and a current database of its own; a query on a handle whose stream is open silently
returns nothing, so a handle serves one call at a time; `readonly` sticks to the handle it was set on. Hence two pools:
readers, set to readonly once and for all, and writers. A statement can be stopped by KILL QUERY on a third handle: the
setting `workload`, which means nothing here, tells in system.processes which handle a statement runs on.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
import threading
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

# The engine looks once, when it is loaded: its times are UTC wherever the machine stands.
os.environ["TZ"] = "UTC"
import chdb

from store.errors import EngineError
from store.handles import Handle, Pool, Statement
from store.right_results import RIGHT_RESULTS
from store.statement_kind import selects

READER_HANDLES = 6
WRITER_HANDLES = 4
# Formats whose blocks can be sent one after the other. Any other has a head or a tail and goes through a file: built in
# memory, as chDB would, it is counted in no query's limit.
STREAMABLE = frozenset(
    """
    Buffers CSV JSONCompactEachRow JSONEachRow JSONL JSONLines LineAsString NDJSON Native RowBinary TSKV TSV TSVRaw
    TabSeparated TabSeparatedRaw
    """.split()  # noqa: SIM905 - a list of words reads as one
)
KEPT_BYTES = 1 << 30  # of a result in a file
STOP_TRIES, STOP_WAIT_S = 100, 0.05

_SETTING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORMATS = "SELECT name FROM system.formats WHERE is_output"

Blocks = Generator[bytes, None, None]  # of a result; to be closed by whoever does not read it to its end


def _half_of_the_machine() -> int:
    return min(4_000_000_000, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


@dataclass(frozen=True)
class Limits:
    """Bounds of the engine, in bytes and seconds.

    memory: of all queries and caches together; a query that would pass it fails and leaves the process alive.
    reader_seconds: how long one reader's query may run.
    reader_threads: how many threads one reader's query may use.
    stall_seconds: how long a client may take for a block of its result before the query is stopped; what it takes at
    once, up to some megabytes, lies in buffers. A client that means to be slow says wait_end_of_query.
    """

    memory: int = field(default_factory=_half_of_the_machine)
    reader_seconds: int = 120
    reader_threads: int = 8
    stall_seconds: float = 15.0

    @property
    def of_a_reader(self) -> dict[str, int]:
        """The settings of a reader's handle; 0 would mean no limit."""
        return {
            "max_memory_usage": self.memory // 2,
            "max_execution_time": self.reader_seconds,
            "max_threads": self.reader_threads,
        }


INSERT_FILE, RESULT_FILE = "insert-", "result-"
_READ_BYTES = 1 << 20


class Engine:
    """Owns `directory` for the life of the object; raises RuntimeError when another process owns it."""

    def __init__(self, directory: Path, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.directory = directory.absolute()
        for prefix in (INSERT_FILE, RESULT_FILE):
            for left in self.directory.glob(f"{prefix}*"):  # of a process that was killed
                left.unlink()
        path = f"{directory}?max_server_memory_usage={self.limits.memory}&mark_cache_size=268435456"
        names = [f"handle-{n}" for n in range(READER_HANDLES + WRITER_HANDLES)]
        self._handles = [Handle(chdb.connect(path), name) for name in names]  # type: ignore[no-untyped-call]
        self._control, self._controlling = chdb.connect(path), threading.Lock()  # type: ignore[no-untyped-call]
        readers, writers = self._handles[:READER_HANDLES], self._handles[READER_HANDLES:]
        right = ", ".join(f"{name} = {value}" for name, value in RIGHT_RESULTS.items())
        for handle in self._handles:
            handle.connection.query(f"SET workload = {quote_text(handle.name)}, {right}")
        bounds = ", ".join(f"{name} = {value}" for name, value in self.limits.of_a_reader.items())
        for handle in readers:
            handle.connection.query(f"SET {bounds}, readonly = 2")
        self._readers, self._writers = Pool(readers), Pool(writers)
        names = self._control.query(_FORMATS, "TSVRaw").bytes().decode().split()
        self._formats = {name.lower(): name for name in names}

    @property
    def busy(self) -> bool:
        """Whether a statement is under way."""
        return self._readers.busy or self._writers.busy

    def close(self) -> None:
        """Close every handle, when none is busy; the directory is free afterwards."""
        for handle in self._handles:
            handle.connection.close()
        self._control.close()

    def output_format(self, name: str) -> str:
        """The format as ClickHouse spells it; raises EngineError for any that is chDB's own (objects, not bytes)."""
        known: str | None = self._formats.get(name.lower())
        if known:
            return known
        raise EngineError(73, f"Unknown format {name}", "UNKNOWN_FORMAT")

    def stop(self, statement: Statement) -> None:
        """Stop a statement wherever it is, be it in the queue for a handle; returns when it has ended, or in vain."""
        statement.stop()
        for _ in range(STOP_TRIES):  # the engine may not know it yet
            with statement.lock, self._controlling:
                if statement.handle_name is None:
                    return
                running = f"Settings['workload'] = {quote_text(statement.handle_name)}"
                self._control.query(f"KILL QUERY WHERE {running} ASYNC", "Null")
            if statement.ended.wait(STOP_WAIT_S):
                return

    @contextmanager
    def _handle(self, writer: bool, database: str, settings: Mapping[str, str]) -> Iterator[Handle]:
        """A handle with `database` and `settings` in force; both are gone from it afterwards."""
        if unknown := [name for name in settings if not _SETTING_NAME.fullmatch(name)]:
            raise EngineError(115, f"{unknown[0]!r} is no setting", "UNKNOWN_SETTING")
        with (self._writers if writer else self._readers).handle() as handle, _engine_errors():
            handle.connection.query(f"USE {quote_name(database)}")
            if not settings:
                yield handle
                return
            try:
                changes = ", ".join(f"{name} = {quote_text(value)}" for name, value in settings.items())
                handle.connection.query(f"SET {changes}")
                yield handle
            finally:
                # DEFAULT would be the engine's, and lift what binds this handle
                kept: dict[str, str | int] = {"workload": quote_text(handle.name), **RIGHT_RESULTS}
                kept |= {} if writer else self.limits.of_a_reader
                defaults = ", ".join(f"{name} = {kept.get(name, 'DEFAULT')}" for name in settings)
                handle.connection.query(f"SET {defaults}")

    def query(
        self,
        sql: str,
        output_format: str,
        *,
        writer: bool = False,
        database: str = "default",
        params: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        statement: Statement | None = None,
    ) -> Blocks:
        """Run one statement and yield its result in `output_format`, block by block where the format allows.

        sql: without a FORMAT of its own. statement: where it notes its progress, and what `stop` takes.
        Raises EngineError before the first block, or between blocks when the statement fails half way.
        """
        bound, statement = dict(params or {}), statement or Statement()
        output_format = self.output_format(output_format)
        with self._handle(writer, database, settings or {}) as handle, statement.on(handle):
            if not selects(sql):
                result = handle.connection.query(sql, output_format, params=bound)
                statement.add(result)
                yield result.bytes()
                return
            if output_format in STREAMABLE:
                with handle.connection.send_query(sql, output_format, params=bound) as stream:
                    for block in stream:
                        statement.add(block)
                        if data := block.bytes():
                            yield data
                return
            file = self._keep(handle, sql, output_format, bound, statement)
        with file:  # the handle serves others by now
            while data := file.read(_READ_BYTES):
                yield data

    def _keep(
        self, handle: Handle, sql: str, output_format: str, params: dict[str, str], statement: Statement
    ) -> IO[bytes]:
        """The whole result in a file without a name."""
        path = self.directory / f"{RESULT_FILE}{uuid.uuid4()}"
        outgrown = threading.Event()

        def watch() -> None:
            if not outgrown.is_set() and path.exists() and path.stat().st_size > KEPT_BYTES:
                outgrown.set()
                threading.Thread(target=self.stop, args=(statement,)).start()

        statement.on_progress = watch
        into = f"{sql}\nINTO OUTFILE {quote_text(str(path))} COMPRESSION 'none' FORMAT {output_format}"
        try:
            result = handle.connection.query(into, "Null", params=params)
            file = path.open("rb") if path.exists() else io.BytesIO()  # the format Null makes none
            statement.add(result, file.seek(0, os.SEEK_END))
            file.seek(0)
        except (RuntimeError, chdb.ChdbError):
            if outgrown.is_set():
                raise EngineError(
                    396,
                    f"a result in the format {output_format} may have {KEPT_BYTES} bytes at most;"
                    " Native, RowBinary, CSV, TSV and JSONEachRow have no such limit",
                    "TOO_MANY_ROWS_OR_BYTES",
                ) from None
            raise
        finally:
            statement.on_progress = None
            path.unlink(missing_ok=True)
        return file

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
        with tempfile.NamedTemporaryFile(dir=self.directory, prefix=INSERT_FILE) as file:
            file.write(data)
            file.flush()
            head, inline = _split_settings(sql)
            source = f"{head} FROM INFILE {quote_text(file.name)} COMPRESSION 'none' {inline} FORMAT {input_format}"
            with self._handle(True, database, settings or {}) as handle:
                return int(handle.connection.query(source, "Null").rows_read())


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
