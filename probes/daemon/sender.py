"""Points on their way to a collector, on a thread of its own: sensors are read on time whatever it answers."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping

from probes.daemon.deltas import Point
from probes.daemon.otlp import Attributes, Channel, Refused, export

MOST_WAITING = 200_000
"""Points kept while the collector is away; at some hundred a second, minutes."""
_CHUNK = 4000  # points of an export: far below the 4 MB that receivers take
_AGAIN_S = (1.0, 2.0, 5.0, 10.0)

Batch = tuple[list[Point], Mapping[int | None, Attributes]]


class Sender:
    """sent: points that the collector has. lost: those it has not, by why: `refused`, `dropped` (more waited than is
    kept). trouble: why it takes none now, empty while it does."""

    def __init__(self, channel: Channel, version: str) -> None:
        self.sent, self.lost, self.trouble = 0, Counter[str](), ""
        self._channel, self._version = channel, version
        self._waiting: deque[Batch] = deque()
        self._points = 0
        self._wake = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="hitmap-probe-sender", daemon=True)
        self._thread.start()

    def put(self, points: list[Point], resources: Mapping[int | None, Attributes]) -> None:
        """Take points; the oldest go where too many wait."""
        with self._wake:
            for start in range(0, len(points), _CHUNK):
                chunk = points[start : start + _CHUNK]
                self._waiting.append((chunk, resources))
                self._points += len(chunk)
            while self._points > MOST_WAITING:
                dropped, _ = self._waiting.popleft()
                self._points -= len(dropped)
                self.lost["dropped"] += len(dropped)
            self._wake.notify()

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what waits, as far as that is possible in time."""
        with self._wake:
            self._ending = True
            self._wake.notify()
        self._thread.join(timeout_s)
        with self._wake:
            self.lost["dropped"] += self._points
            self._waiting.clear()
            self._points = 0
        self._channel.close()

    def _run(self) -> None:
        tries = 0
        while batch := self._next():
            try:
                self._channel.send(export(*batch, self._version))
            except Refused as answer:
                self.trouble = str(answer)
                if not answer.again:
                    self.lost["refused"] += len(batch[0])
                    continue
                self._put_back(batch)
                if not self._pause(_AGAIN_S[min(tries, len(_AGAIN_S) - 1)]):
                    return
                tries += 1
            else:
                self.sent, self.trouble, tries = self.sent + len(batch[0]), "", 0

    def _next(self) -> Batch | None:
        """The oldest; None at the end."""
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._ending)
            if not self._waiting:
                return None
            batch = self._waiting.popleft()
            self._points -= len(batch[0])
            return batch

    def _put_back(self, batch: Batch) -> None:
        with self._wake:
            self._waiting.appendleft(batch)
            self._points += len(batch[0])

    def _pause(self, seconds: float) -> bool:
        """Wait before the next try; False where there will be none."""
        with self._wake:
            return not self._wake.wait_for(lambda: self._ending, seconds)
