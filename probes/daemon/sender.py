"""Points on their way to a collector, on a thread of its own: sensors are read on time whatever it answers."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import NamedTuple

from probes.daemon.channel import Channel, Refused
from probes.daemon.deltas import Point
from probes.daemon.otlp import Resources, export

MOST_WAITING = 200_000
"""Points kept while the collector is away; at some hundred a second, minutes. Some 150 bytes each."""
_CHUNK = 4000  # points of an export: far below the 4 MB that receivers take
_AGAIN_S = (1.0, 2.0, 5.0, 10.0)
_LONGEST_S = 60.0  # that a collector can make us wait


class _Batch(NamedTuple):
    points: int
    request: bytes


class Sender:
    """A sink. sent: points that the collector has. lost: those it has not, by why: `refused` (for good), `dropped`
    (more waited than is kept), `unsent` (at the end). trouble: what it has against them now, empty for
    nothing."""

    over = False

    def __init__(self, channel: Channel, version: str, most_waiting: int = MOST_WAITING) -> None:
        self.sent, self.lost, self.trouble = 0, Counter[str](), ""
        self._channel, self._version, self._most = channel, version, most_waiting
        self._waiting: deque[_Batch] = deque()
        self._kept = 0  # points that wait or are on their way
        self._wake = threading.Condition()
        self._ending = self._closed = False
        self._thread = threading.Thread(target=self._run, name="hitmap-probe-sender", daemon=True)
        self._thread.start()

    def put(self, points: list[Point], resources: Resources) -> None:
        """Take points; the oldest go where too many wait."""
        chunks = (points[start : start + _CHUNK] for start in range(0, len(points), _CHUNK))
        batches = [
            _Batch(len(chunk), export(chunk, resources, self._version).SerializeToString())
            for chunk in chunks
        ]
        with self._wake:
            self._waiting += batches
            self._kept += len(points)
            self._drop_oldest()
            self._wake.notify()

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what waits, as far as that is possible in time: who answers nothing now is asked once more."""
        with self._wake:
            self._ending = True
            self._wake.notify()
        self._thread.join(timeout_s)
        with self._wake:
            self._closed = True
            if self._kept:
                self.lost["unsent"] += self._kept
        self._channel.close()

    def _run(self) -> None:
        tries = 0
        while batch := self._next():
            last = self._ending
            try:
                taken = self._channel.send(batch.request)
            except Refused as answer:
                self.trouble = str(answer)
                if not answer.again:
                    self._done(batch, batch.points)
                    continue
                self._put_back(batch)
                if last:
                    return
                pause_s = _AGAIN_S[min(tries, len(_AGAIN_S) - 1)]
                self._pause(pause_s if answer.wait_s is None else min(answer.wait_s, _LONGEST_S))
                tries += 1
            else:
                self._done(batch, taken.rejected)
                self.trouble, tries = taken.remark, 0

    def _next(self) -> _Batch | None:
        """The oldest; None at the end."""
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._ending)
            return self._waiting.popleft() if self._waiting and not self._closed else None

    def _done(self, batch: _Batch, rejected: int) -> None:
        with self._wake:
            if self._closed:  # counted as unsent already
                return
            self._kept -= batch.points
            self.sent += batch.points - rejected
            if rejected:
                self.lost["refused"] += rejected

    def _put_back(self, batch: _Batch) -> None:
        with self._wake:
            self._waiting.appendleft(batch)
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        while self._kept > self._most and self._waiting:
            dropped = self._waiting.popleft()
            self._kept -= dropped.points
            self.lost["dropped"] += dropped.points

    def _pause(self, seconds: float) -> None:
        """Wait before the next try, but at the end no longer."""
        with self._wake:
            self._wake.wait_for(lambda: self._ending, seconds)
