"""Follows a growing request log and hands its rows to a sink."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, runtime_checkable

from collector.detection import LineReader
from collector.otlp.check import DEFAULT_WINDOW, Window, check_logs
from collector.request_log import (
    CANARY,
    IMPLAUSIBLE,
    MAX_LINE_BYTES,
    NO_ID,
    NO_TIME,
    NOT_AN_OBJECT,
    NOT_JSON,
    TOO_LONG,
    Rejected,
    parse_line,
)
from collector.sink import Entry, Sink
from collector.source import FAILING, RUNNING, WAITING, ThreadSource

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
POLL_S = 0.2
RETRY_S = 1.0
CUT_OFF, UNREADABLE = "line was cut off", "unreadable"
REASONS = frozenset(
    {CUT_OFF, UNREADABLE, TOO_LONG, NOT_JSON, NOT_AN_OBJECT, NO_ID, NO_TIME, IMPLAUSIBLE, CANARY}
)
_NEWEST_BYTES = 1 << 16


class LogPosition(NamedTuple):
    """A line of a log: when it was written (Unix seconds), and how long the process had run by then."""

    time_s: float
    uptime_us: int


@runtime_checkable
class Anchored(Protocol):
    """A LineReader for a log that tells the time since its process started, but not when that was."""

    def anchor(self, lines: Sequence[str], written_s: float) -> None:
        """The newest lines of the file, and when the last of them was written (Unix seconds)."""

    def resume(self, stored: LogPosition) -> None:
        """Leave out lines of the same process up to this one."""


class LogFile:
    """The complete lines of a file that others write to, rotate and truncate.

    `offset` is where reading may be taken up again: right after the last complete line. A last line without its end
    waits. A file that became shorter is read from its start; one that was replaced is read to its end before the new
    one. `lost` counts lines that were given up, by reason.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self.lost: dict[str, int] = {}
        self._file: BinaryIO | None = None
        self._rest = b""
        self._skipping = False  # inside a line that is too long

    def lines(self) -> list[bytes] | None:
        """The next lines, up to a megabyte of them: empty when there are none yet, None when there is no file."""
        file = self._file = self._file or self._open()
        if file is None:
            return None
        if os.fstat(file.fileno()).st_size < file.tell():
            self._forget_rest()
            self.offset = file.seek(0)
        chunk = file.read(CHUNK_BYTES)
        if not chunk and self._was_replaced(file):
            self.close()
            self.offset = 0
            return self.lines()
        return self._complete(chunk)

    def newest(self) -> tuple[list[bytes], float]:
        """The last lines of the open file, read or not, and when it was last written (Unix seconds)."""
        if self._file is None:
            return [], 0.0
        status = os.fstat(self._file.fileno())
        tail = os.pread(self._file.fileno(), _NEWEST_BYTES, max(0, status.st_size - _NEWEST_BYTES))
        return tail.split(b"\n")[:-1], status.st_mtime

    def close(self) -> None:
        """Let go of the file; a line that has no end by now never gets one."""
        if self._file:
            self._file.close()
            self._file = None
        self._forget_rest()

    def _open(self) -> BinaryIO | None:
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return None
        file.seek(self.offset)
        return file

    def _was_replaced(self, file: BinaryIO) -> bool:
        try:
            return not os.path.samestat(self.path.stat(), os.fstat(file.fileno()))
        except FileNotFoundError:
            return False

    def _forget_rest(self) -> None:
        if self._rest:
            self._lose(CUT_OFF)
        self._rest, self._skipping = b"", False

    def _complete(self, chunk: bytes) -> list[bytes]:
        *lines, rest = (self._rest + chunk).split(b"\n")
        if lines:
            self.offset += sum(len(line) + 1 for line in lines)
            if self._skipping:
                del lines[0]
                self._skipping = False
        if len(rest) > MAX_LINE_BYTES:
            if not self._skipping:
                self._lose(TOO_LONG)
            self.offset += len(rest)
            self._skipping, rest = True, b""
        self._rest = rest
        return [line for line in lines if line.strip()]

    def _lose(self, reason: str) -> None:
        self.lost[reason] = self.lost.get(reason, 0) + 1


class _Tail(ThreadSource):
    """Reads a file from its start and on as it grows, until it is stopped.

    What was read in an earlier run comes out in the same bytes and is stored once. window: which times are kept.
    """

    unit = "rows"

    def __init__(self, name: str, path: Path, sink: Sink, poll_s: float, window: Window) -> None:
        super().__init__(name, sink)
        self._window = window
        self._log = LogFile(path)
        self._poll_s = poll_s

    def entries(self, lines: list[bytes]) -> list[Entry]:
        """What the lines give."""
        raise NotImplementedError

    def unreadable(self, error: Exception) -> None:
        """Count a line that went wrong as nobody foresaw: it must not cost those around it."""
        self.counts[UNREADABLE] += 1
        log.warning("%s: a line is left out: %s: %.200s", self.name, type(error).__name__, error)

    def work(self) -> None:
        try:
            lines = self._log.lines()
        except OSError as error:  # a folder, or not ours to read
            self.tell(FAILING, f"{self._log.path}: {error.strerror}")
            self._stopping.wait(RETRY_S)
            return
        if lines is None:
            self.tell(WAITING, f"{self._log.path} is not there yet")
        if not lines:
            self._stopping.wait(self._poll_s)
            return
        if good := self.entries(lines):
            self.deliver(good)
        self.counts.update(self._log.lost)
        self._log.lost.clear()
        self.tell(RUNNING, f"{self.counts['rows']} {self.unit} from {self._log.path}{self._left_out()}")

    def _left_out(self) -> str:
        """What a status line says of the lines that gave nothing, by reason; empty where there are none."""
        reasons = [f"{count:,} x {name}" for name, count in self.counts.items() if name in REASONS and count]
        return f"; left out {', '.join(reasons)}" if reasons else ""

    def stop(self, timeout_s: float = 5.0) -> None:
        super().stop(timeout_s)
        self._log.close()


class LogTail(_Tail):
    """Follows the request log of one server. A line that is no good is counted by its reason and the rest goes on."""

    unit = "responses"

    def __init__(
        self,
        path: Path,
        server: str,
        sink: Sink,
        label_fields: Sequence[str] = (),
        window: Window = DEFAULT_WINDOW,
        *,
        poll_s: float = POLL_S,
    ) -> None:
        super().__init__(f"request log {server}", path, sink, poll_s, window)
        self._server = server
        self._label_fields = tuple(label_fields)

    def entries(self, lines: list[bytes]) -> list[Entry]:
        return [entry for line in lines if (entry := self._entry(line))]

    def _entry(self, line: bytes) -> Entry | None:
        try:
            row = parse_line(line, self._server, time.time(), self._label_fields, self._window)
            if not isinstance(row, Rejected):
                return row.entry()
            self.counts[row.reason] += 1
        except Exception as error:
            self.unreadable(error)
        return None


class ServerLogTail(_Tail):
    """Follows the server's own log. Lines that mean nothing to the dialect are counted as `other`.

    stored: asked once for the newest line that is stored, where the reader cannot tell lines apart by their time.
    """

    unit = "events"

    def __init__(
        self,
        path: Path,
        server: str,
        read_line: LineReader,
        sink: Sink,
        stored: Callable[[], LogPosition | None] = lambda: None,
        window: Window = DEFAULT_WINDOW,
        *,
        poll_s: float = POLL_S,
    ) -> None:
        super().__init__(f"server log {server}", path, sink, poll_s, window)
        self._read_line = read_line
        self._ask_stored: Callable[[], LogPosition | None] | None = stored

    def work(self) -> None:
        if self._ask_stored and isinstance(self._read_line, Anchored):
            if position := self._ask_stored():
                self._read_line.resume(position)
            self._ask_stored = None
        super().work()

    def entries(self, lines: list[bytes]) -> list[Entry]:
        now_s = time.time()
        try:
            self._anchor()
        except Exception as error:
            self.unreadable(error)
        return [entry for line in lines for entry in self._events(line, now_s) if self._is_timely(entry)]

    def _anchor(self) -> None:
        if isinstance(self._read_line, Anchored):
            newest, written_s = self._log.newest()
            self._read_line.anchor([line.decode(errors="replace") for line in newest], written_s)

    def _events(self, line: bytes, now_s: float) -> Sequence[Entry]:
        try:
            found = self._read_line(line.decode(errors="replace"), now_s)
        except Exception as error:
            self.unreadable(error)
            return ()
        self.counts["other"] += not found
        return found

    def _is_timely(self, entry: Entry) -> bool:
        """Whether an event's time is one that any other log record could have."""
        rejected = check_logs(entry.payload, self._window).rejected
        self.counts["bad_time"] += rejected.total()
        return not rejected
