"""The daemon: reads its sensors on time, and hands points to whoever sends them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from probes.daemon.deltas import Deltas, Point
from probes.daemon.otlp import Attributes
from probes.daemon.targets import Targets
from probes.reading import Gap, Reading, Sensor

_LOOK_S = 2.0  # between two looks for processes that came or went
_HAND_S = 1.0  # between two exports
_LOST_TOGETHER = 1000  # resources of processes that exited, kept until their points are out


class Sink(Protocol):
    """Takes points. lost: those that it could not pass on, by why; trouble: why it passes none on now, empty while it
    does."""

    lost: Counter[str]
    trouble: str

    def put(self, points: list[Point], resources: dict[int | None, Attributes]) -> None: ...

    def close(self) -> None: ...


@dataclass
class Watch:
    """A sensor and how often it is read. began_ns: when it began to count."""

    sensor: Sensor
    every_s: float
    began_ns: int = field(default_factory=time.time_ns)

    def __post_init__(self) -> None:
        self.deltas = Deltas(self.began_ns)
        self.due_s = 0.0


class Itself:
    """What the probe takes and loses itself, as a sensor."""

    def __init__(self, lost: Callable[[], Counter[str]]) -> None:
        self._lost, self._began_s = lost, time.process_time()

    def read(self) -> Sequence[Reading]:
        """CPU time since it began, and points lost by why."""
        cpu = Reading("hitmap.probe.cpu.time", time.process_time() - self._began_s, "getrusage")
        lost = self._lost().items()
        return [
            cpu,
            *(Reading("hitmap.probe.lost", n, "probe", attributes=(("reason", why),)) for why, n in lost),
        ]

    def gaps(self) -> Sequence[Gap]:
        return ()

    def close(self) -> None:
        pass


class Daemon:
    """Reads until it is told to stop or has nothing left to watch. One thread, the caller's.

    points: so far. lost: readings and points that were not told, by why.
    """

    def __init__(self, watches: Sequence[Watch], targets: Targets, sink: Sink) -> None:
        self._targets, self._sink = targets, sink
        self._watches = [*watches, Watch(Itself(lambda: self.lost), 1.0)]
        self._resources: dict[int | None, Attributes] = {}
        self.points = 0

    @property
    def lost(self) -> Counter[str]:
        """Over all sensors, and on the way."""
        together = Counter(self._sink.lost)
        for watch in self._watches:
            together.update(watch.deltas.lost)
        return together

    @property
    def trouble(self) -> str:
        """Why no point gets through now."""
        return self._sink.trouble

    def gaps(self) -> Iterator[Gap]:
        """What its sensors cannot tell, each once."""
        yield from dict.fromkeys(gap for watch in self._watches for gap in watch.sensor.gaps())

    def run(self, stop: threading.Event, tick: Callable[[Daemon], None] = lambda _: None) -> None:
        """Until `stop` is set. tick: called about once a second."""
        look_s = hand_s = time.monotonic()
        waiting: list[Point] = []
        while not stop.is_set():
            now_s = time.monotonic()
            if now_s >= look_s:
                self._look()
                look_s = now_s + _LOOK_S
                if self._targets.gone:
                    break
            for watch in self._watches:
                if now_s >= watch.due_s:
                    waiting += watch.deltas.take(watch.sensor.read(), time.time_ns())
                    # not after the last one was due: a machine that slept does not catch up
                    watch.due_s = max(watch.due_s + watch.every_s, now_s)
            if now_s >= hand_s:
                self._hand(waiting)
                waiting, hand_s = [], now_s + _HAND_S
                tick(self)
            next_s = min(look_s, hand_s, *(watch.due_s for watch in self._watches))
            stop.wait(max(0.0, next_s - time.monotonic()))
        self._hand(waiting)

    def close(self) -> None:
        """Pass on what waits, and let go of all sensors."""
        self._sink.close()
        for watch in self._watches:
            watch.sensor.close()

    def _look(self) -> None:
        if not self._targets.refresh() and self._resources:
            return
        pids = self._targets.pids
        for watch in self._watches:
            if pids is not None and (follow := getattr(watch.sensor, "watch", None)):
                follow(pids)
        # those that exited stay for a while: their last points may be on their way
        gone = [pid for pid in self._resources if pid not in self._targets.resources()]
        kept = {pid: self._resources[pid] for pid in gone[-_LOST_TOGETHER:]}
        self._resources = {**kept, **self._targets.resources()}

    def _hand(self, points: list[Point]) -> None:
        if not points:
            return
        if self._targets.pids is None:
            self._name(points)
        self.points += len(points)
        self._sink.put(points, self._resources)

    def _name(self, points: Sequence[Point]) -> None:
        """Where all processes are watched: say which those are that have points."""
        unknown = {point.reading.pid for point in points} - self._resources.keys()
        found: dict[int | None, Attributes] = {
            pid: told for pid in unknown if pid is not None and (told := self._targets.resource_of(pid))
        }
        if len(self._resources) > 10 * _LOST_TOGETHER:
            self._resources = self._targets.resources()
        self._resources = {**self._resources, **found}
