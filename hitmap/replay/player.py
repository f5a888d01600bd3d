"""The schedule: everything a recording holds, at its time, through the ports."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self

from hitmap.replay.capture import Capture, Export, KvMessage, LogLine, Scrape
from hitmap.replay.ports import Exporter, HttpPort, KvPort
from hitmap.replay.shift import shift_export, shift_kv, shift_log, shift_metrics

Shift = Literal["now", "none"]


class Player:
    """A played server. Its ports are open from the start; `play` sends what was recorded.

    otlp: HOST:PORT of the collector. log_file: where the request log grows. speed: 2 plays in half the time. shift:
    `now` moves all times by one constant so that the recording's end falls on the end of the play and nothing lies in
    the future; `none` keeps the recorded times and bytes.
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
    ) -> None:
        self.capture, self.log_file, self.speed = capture, log_file, speed
        self._items = capture.items
        self._begin, self._end = self._items[0].time_ns, self._items[-1].time_ns
        self.shift_ns = 0
        if shift == "now":
            self.shift_ns = time.time_ns() + int((self._end - self._begin) / speed) - self._end
        self.counts: Counter[str] = Counter()
        self._exporter = Exporter(otlp)
        self._http = HttpPort(capture, http_port)
        self._kv = KvPort(kv_port, replay_port)
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
        """How often /metrics was fetched."""
        return self._http.scrapes_served

    def wait_attached(self, timeout_s: float) -> bool:
        """Wait until somebody has fetched /metrics and subscribed to the KV events; whether they have in time."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.scrapes_served and (not self.capture.kv or self._kv.subscribed.wait(0.05)):
                return True
            time.sleep(0.05)
        return False

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
                if (wait := due - time.monotonic()) > 0 and stopping.wait(wait):
                    return
                self._send(item, log)
                if progress:
                    progress(number, len(self._items))

    def wait_scraped(self, timeout_s: float) -> bool:
        """After the play: wait until the last /metrics text has been fetched."""
        return not self.capture.scrapes or self._http.wait_served(timeout_s)

    def close(self) -> None:
        """Close all ports; the log file stays."""
        self._kv.close()
        self._http.close()
        self._exporter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, item: Export | Scrape | KvMessage | LogLine, log: IO[bytes]) -> None:
        match item:
            case Export():
                self._exporter.send(shift_export(item.body, self.shift_ns))
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

    def _show(self, scrape: Scrape) -> None:
        self._http.metrics = shift_metrics(scrape.text, scrape.time_ns, self.shift_ns)
