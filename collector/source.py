"""What a telemetry source is to those who start it: a thread that feeds a sink and tells how it fares."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cachemodel.errors import UserError
from collector.sink import Backpressure, Entry, Sink

log = logging.getLogger(__name__)

WAITING, RUNNING, FAILING = "waiting", "running", "failing"
_RETRY_S = 1.0
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """How a source fares.

    state: `waiting` (nothing came yet), `running` or `failing`; detail: one line for a person; counts: what was
    taken, skipped and refused since the start.
    """

    source: str
    state: str
    detail: str
    counts: Mapping[str, int]


class Source(Protocol):
    """Something that `Attachment` starts, stops and asks for its status."""

    def start(self) -> None:
        """Begin; raises UserError where a person must put something right first."""
        ...

    def stop(self) -> None: ...

    def status(self) -> SourceStatus: ...


class ThreadSource:
    """A source that runs `work` in a thread of its own until it is stopped, whatever goes wrong meanwhile."""

    def __init__(self, name: str, sink: Sink) -> None:
        self.name = name
        self.counts: Counter[str] = Counter()
        self._sink = sink
        self._state, self._detail = WAITING, "nothing received yet"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError as error:
            raise UserError(
                f"{self.name}: {error}: raise the limit of threads (ulimit -u), or end something"
            ) from None

    def stop(self, timeout_s: float = 5.0) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def status(self) -> SourceStatus:
        return SourceStatus(self.name, self._state, self._detail, dict(self.counts))

    def work(self) -> None:
        """Do one bounded piece of work, waiting included; called again and again."""
        raise NotImplementedError

    def tell(self, state: str, detail: str) -> None:
        if (state, detail) != (self._state, self._detail) and state == FAILING:
            log.warning("%s: %s", self.name, detail)
        self._state, self._detail = state, detail

    def deliver(self, entries: Sequence[Entry]) -> bool:
        """Offer entries to the sink until it takes them; False when the source was stopped first."""
        while True:
            try:
                self.counts["rows"] += self._sink.put(entries)
                return True
            except Backpressure as full:
                self.counts["refused"] += 1
                self.tell(FAILING, str(full))
                wait_s = full.retry_after_s
            except Exception as error:
                self.counts["errors"] += 1
                self.tell(FAILING, f"the spool failed: {error}")
                wait_s = _RETRY_S
            if self._stopping.wait(wait_s):
                return False

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.work()
            except Exception as error:  # a source outlives what it meets; the status says what that was
                self.counts["errors"] += 1
                if (
                    not isinstance(error, OSError) and type(error) is not RuntimeError
                ):  # the machine's; others are ours
                    log.exception("%s", self.name)
                self.tell(FAILING, f"{type(error).__name__}: {error}")
                self._stopping.wait(_RETRY_S)


class PollingSource(ThreadSource):
    """Asks every `interval_s` seconds; after failures in a row twice as long each time, up to a minute.

    `poll` counts `failures` up, and sets it to 0 when it worked.
    """

    def __init__(self, name: str, sink: Sink, interval_s: float) -> None:
        super().__init__(name, sink)
        self.failures = 0
        self._interval_s = interval_s

    def poll(self) -> None:
        """Ask once and store what comes."""
        raise NotImplementedError

    def work(self) -> None:
        began = time.monotonic()
        self.poll()
        longest_s = max(_LONGEST_WAIT_S, self._interval_s)
        wait_s = min(self._interval_s * 2 ** min(self.failures, 6), longest_s)
        self._stopping.wait(max(0.0, began + wait_s - time.monotonic()))


def now_us() -> int:
    """The wall clock in microseconds."""
    return time.time_ns() // 1000
