"""The daemon: reads its sensors on time, and hands points to whoever sends them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from probes.daemon.deltas import Deltas, Point
from probes.daemon.otlp import Resources
from probes.daemon.targets import Targets
from probes.reading import Gap, Reading, Sensor

_LOOK_S = 2.0  # between two looks for processes that came or went
_LOOK_SHARE = 200  # times that a look took: of a server with thousands of threads it takes long
_HAND_S = 1.0  # between two exports


class Sink(Protocol):
    """Takes points. lost: those that it could not pass on, by why; trouble: what stands against them now, empty while
    nothing does; over: whether it will take none any more."""

    lost: Counter[str]
    trouble: str
    over: bool

    def put(self, points: list[Point], resources: Resources) -> None: ...

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

    def read(self) -> list[Point]:
        """What was counted since the reading before."""
        return self.deltas.take(self.sensor.read(), time.time_ns())


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
    """Reads until it is told to stop, has nothing left to watch, or nobody takes points. One thread, the caller's.

    points: so far. lost: readings and points that were not told, by why.
    """

    def __init__(self, watches: Sequence[Watch], targets: Targets, sink: Sink) -> None:
        self.targets, self._sink = targets, sink
        self._watches = [*watches, Watch(Itself(lambda: self.lost), 1.0)]
        self._resources = targets.resources()
        self._waiting: list[Point] = []
        self._blind: Gap | None = None
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
        """What stands between the points and who takes them."""
        return self._sink.trouble

    def gaps(self) -> Iterator[Gap]:
        """What its sensors cannot tell, each once."""
        yield from dict.fromkeys(gap for watch in self._watches for gap in watch.sensor.gaps())
        if self._blind:
            yield self._blind

    def run(self, stop: threading.Event, tick: Callable[[Daemon], None] = lambda _: None) -> None:
        """Until `stop` is set. tick: called about once a second."""
        look_s = hand_s = time.monotonic()
        while not (stop.is_set() or self._sink.over or self.targets.gone):
            now_s = time.monotonic()
            if now_s >= look_s:
                self._look()
                took_s = time.monotonic() - now_s
                look_s = now_s + max(_LOOK_S, _LOOK_SHARE * took_s)
            for watch in self._watches:
                if now_s >= watch.due_s:
                    self._waiting += watch.read()
                    watch.due_s += watch.every_s
                    if watch.due_s <= now_s:  # a machine that slept does not catch up
                        watch.due_s = now_s + watch.every_s
            if now_s >= hand_s:
                self._hand()
                hand_s = now_s + _HAND_S
                tick(self)
            next_s = min(look_s, hand_s, *(watch.due_s for watch in self._watches))
            stop.wait(max(0.0, next_s - time.monotonic()))
        self._read_all()
        self._hand()
        tick(self)

    def close(self) -> None:
        """Pass on what waits, and let go of all sensors."""
        self._sink.close()
        for watch in self._watches:
            watch.sensor.close()

    def _look(self) -> None:
        """Before other processes are watched, all that was counted of these is told."""
        try:
            changed = self.targets.refresh()
        except OSError as error:
            why = f"processes that came or went could not be looked for: {error.strerror}"
            self._blind = Gap("new processes", why, "more open files (ulimit -n)")
            return
        self._blind = None
        if not changed:
            return
        self._read_all()
        self._hand()
        self._resources, pids = self.targets.resources(), self.targets.pids
        for watch in self._watches:
            if pids is not None and (follow := getattr(watch.sensor, "watch", None)):
                follow(pids)

    def _read_all(self) -> None:
        for watch in self._watches:
            self._waiting += watch.read()

    def _hand(self) -> None:
        points, self._waiting = self._waiting, []
        if not points:
            return
        if self.targets.pids is None:
            self._name(points)
        self.points += len(points)
        self._sink.put(points, self._resources)

    def _name(self, points: Sequence[Point]) -> None:
        """Where all processes are watched: say which those are that have points."""
        pids = {point.reading.pid for point in points} - self._resources.keys()
        with contextlib.suppress(OSError):  # no descriptor is left: their numbers say who they are
            if self.targets.name(pid for pid in pids if pid is not None):
                self._resources = {**self.targets.resources(), **self._resources}
