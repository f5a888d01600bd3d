"""The prompts of a growing request log, in the order in which the requests ended."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from collector.chains.prompt import Prompt, read_prompt
from collector.log_tail import UNREADABLE, LogFile
from collector.otlp.check import Window
from collector.request_log import NO_ID, Rejected, UsageRow, decode_line, usage_row
from collector.usage.style import Record

log = logging.getLogger(__name__)

Known = Callable[[str, Sequence[str], float, float], set[str]]
"""Which requests of a server, sent between two times (Unix seconds), have a chain in the store."""


class PromptLog:
    """Reads on in one server's log. Lines that are no good for usage either are counted by those who read that.

    reasons: lines without a prompt that could be used. stored: requests that have a chain in the store, among those
    that were in the log before the start; whoever settles one takes it out.
    """

    def __init__(self, path: Path, server: str, window: Window, known: Known | None) -> None:
        self.path = path
        self.reasons: Counter[str] = Counter()
        self.stored: set[str] = set()
        self._server, self._window, self._known = server, window, known
        self._file = LogFile(path)
        self._old_bytes: int | None = None  # of the log, from before the start

    def read(self) -> tuple[int, list[Prompt]]:
        """How many lines came, and their prompts. Raises OSError for a log that cannot be read."""
        if self._old_bytes is None:
            self._old_bytes = self.path.stat().st_size if self.path.exists() else 0
        old = self._file.offset < self._old_bytes
        lines = self._file.lines() or []
        self._file.lost.clear()
        prompts = [prompt for line in lines if (prompt := self._prompt(line))]
        if old and prompts and self._known:
            times = [prompt.time for prompt in prompts]
            try:
                ids = [prompt.request_id for prompt in prompts]
                self.stored |= self._known(self._server, ids, min(times), max(times))
            except Exception as error:  # a row too many does less harm than one too few
                log.warning("chains %s: the store does not say which it has: %s", self._server, error)
        return len(lines), prompts

    def behind_bytes(self) -> int:
        """How much of the log is not read yet."""
        try:
            return max(0, self.path.stat().st_size - self._file.offset)
        except OSError:
            return 0

    def close(self) -> None:
        """Let go of the file; `read` goes on where it was."""
        self._file.close()

    def _prompt(self, line: bytes) -> Prompt | None:
        try:
            record = decode_line(line)
            row = record if isinstance(record, Rejected) else self._usage(record)
            told = (
                None
                if isinstance(record, Rejected) or isinstance(row, Rejected)
                else read_prompt(record, row)
            )
        except Exception as error:  # a line that goes wrong as nobody foresaw must not cost those around it
            log.warning(
                "chains %s: a line is left out: %s: %.200s", self._server, type(error).__name__, error
            )
            told = UNREADABLE
        if isinstance(told, str):
            self.reasons[told] += 1
            return None
        return told

    def _usage(self, record: Record) -> UsageRow | Rejected:
        now_s = time.time()
        row = usage_row(record, self._server, now_s, (), self._window)
        own = record.get("client_request_id")
        if (
            isinstance(row, Rejected) and row.reason == NO_ID and own
        ):  # ended before the server gave it a name
            return usage_row({**record, "request_id": own}, self._server, now_s, (), self._window)
        return row
