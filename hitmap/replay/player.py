"""The schedule: everything a recording holds, at its time, through the ports."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self

from cachemodel.errors import UserError
from hitmap.replay.capture import Capture, Export, Item, KvMessage, LogLine, Scrape, ServerLogLine
from hitmap.replay.ports import Exporter, HttpPort, KvPort, recorded_pages
from hitmap.replay.shift import shift_export, shift_kv, shift_log, shift_metrics

Shift = Literal["now", "none"]
# the least that attach takes, and what it does unless told
_SHORTEST_INTERVAL_S, _LONGEST_INTERVAL_S = 0.05, 5.0


class Player:
    """A played server. Its ports are open from the start; `play` sends what was recorded.

    otlp: HOST:PORT of the collector; tell: told when it is waited for. log_file: where the request log grows; the
    server's own log, if there is one, grows in server_log_file beside it, last modified when its last line was written.
    speed: 2 plays in half the time.
    shift: `now` moves all times by one constant, fixed here because /metrics is served from here on: the recording's
    end falls on the end of a play that begins at once, and nothing lies in the future; `none` keeps the recorded times
    and bytes. Raises UserError for a port or a log file that cannot be used.
    """

    def __init__(
        self,
        capture: Capture,
        otlp: str,
        log_file: Path,
        *,
        speed: float = 1.0,
        shift: Shift = "now",
        http_port: int = 0,
        kv_port: int = 0,
        replay_port: int = 0,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.capture, self.log_file, self.speed = capture, log_file, speed
        self._items = capture.items
        self._begin, self._end = self._items[0].time_ns, self._items[-1].time_ns
        self.shift_ns = 0
        if shift == "now":
            # Slower than recorded, it is the begin that falls on now: at its end the play would outrun the clock.
            self.shift_ns = time.time_ns() + int((self._end - self._begin) / max(speed, 1.0)) - self._end
        self.counts: Counter[str] = Counter()
        self.server_log_file = log_file.with_name(f"{log_file.stem}.server.log")
        self._server_log = (
            self.server_log_file if shift == "now" else self.server_log_file.with_suffix(".part")
        )
        try:
            log_file.touch()
            if capture.server_log:
                self.server_log_file.touch()
        except OSError as error:
            raise UserError(f"the log {error.filename} cannot be written: {error.strerror}") from None
        with ExitStack() as opened:
            self._exporter = opened.enter_context(closing(Exporter(otlp, tell)))
            self._kv = opened.enter_context(closing(KvPort(kv_port, replay_port)))
            self._http = opened.enter_context(closing(HttpPort(recorded_pages(capture, self._kv), http_port)))
            self._opened = opened.pop_all()
        if capture.scrapes:
            self._show(capture.scrapes[0])

    @property
    def url(self) -> str:
        """Base address of the played server."""
        return self._http.url

    @property
    def kv_endpoint(self) -> str:
        """Where KV events are published."""
        return self._kv.endpoint

    @property
    def replay_endpoint(self) -> str:
        """Where published KV events can be asked for again."""
        return self._kv.replay_endpoint

    @property
    def scrapes_served(self) -> int:
        """How often /metrics was scraped."""
        return self._http.scrapes_served

    @property
    def texts_left(self) -> int:
        """How many /metrics texts were shown and not scraped yet."""
        return self._http.texts_left

    @property
    def interval_s(self) -> float | None:
        """How often to scrape so that no text waits: twice for each, as attach can. None where there are none."""
        if not self.capture.scrapes:
            return None
        between_s = (self._end - self._begin) / 1e9 / self.speed / len(self.capture.scrapes)
        return min(max(between_s / 2, _SHORTEST_INTERVAL_S), _LONGEST_INTERVAL_S)

    def wait_attached(self, timeout_s: float) -> bool:
        """Wait until somebody watches what was recorded: has scraped /metrics, has subscribed to the KV events.

        Whether they have in time.
        """
        deadline = time.monotonic() + timeout_s
        scraped = not self.capture.scrapes or self._http.wait_served(timeout_s)
        return scraped and (
            not self.capture.kv or self._kv.subscribed.wait(max(0.0, deadline - time.monotonic()))
        )

    def play(
        self, progress: Callable[[int, int], None] | None = None, stopping: threading.Event | None = None
    ) -> None:
        """Send everything in recorded order, at recorded distances divided by the speed.

        progress: called with items sent and items in all. stopping: ends the play early. Raises UserError when the
        collector refuses.
        """
        stopping = stopping or threading.Event()
        began = time.monotonic()
        with self.log_file.open("ab") as log:
            for number, item in enumerate(self._items, start=1):
                due = began + (item.time_ns - self._begin) / 1e9 / self.speed
                if stopping.wait(max(0.0, due - time.monotonic())) or not self._send(item, log, stopping):
                    break
                if progress:
                    progress(number, len(self._items))
        if self._server_log.exists() and self._server_log != self.server_log_file:
            self._server_log.replace(self.server_log_file)

    def wait_scraped(self, idle_s: float, stopping: threading.Event | None = None) -> bool:
        """After the play: wait until every /metrics text has been scraped, or nobody has for `idle_s`.

        Whether all were. stopping: ends the wait early.
        """
        return not self.capture.scrapes or self._http.wait_served(idle_s, stopping)

    def close(self) -> None:
        """Close all ports; the log file stays."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, item: Item, log: IO[bytes], stopping: threading.Event) -> bool:
        """Whether the item was sent; False when told to stop."""
        match item:
            case Export():
                if not self._exporter.send(shift_export(item.body, self.shift_ns), stopping):
                    return False
                self.counts["exports"] += 1
            case Scrape():
                self._show(item)
                self.counts["metrics texts"] += 1
            case KvMessage():
                self._kv.publish(item.topic, item.seq, shift_kv(item.payload, self.shift_ns))
                self.counts["KV messages"] += 1
            case LogLine():
                log.write(shift_log(item.line, self.shift_ns) + b"\n")
                log.flush()
                self.counts["log lines"] += 1
            case ServerLogLine():
                self._write_server_log(item)
                self.counts["server log lines"] += 1
        return True

    def _write_server_log(self, line: ServerLogLine) -> None:
        """The log has no clock of its own: its readers go by the time at which the file was modified.

        Unshifted, a reader that looks between the write and the correction of that time would be off by the age of the
        recording: the file takes its place when it is whole.
        """
        with self._server_log.open("ab") as file:
            file.write(line.line + b"\n")
        written_ns = line.time_ns + self.shift_ns
        os.utime(self._server_log, ns=(written_ns, written_ns))

    def _show(self, scrape: Scrape) -> None:
        if scrape.slots is not None:
            self._http.page("/slots", scrape.slots)
        self._http.show(shift_metrics(scrape.text, scrape.time_ns, self.shift_ns))
