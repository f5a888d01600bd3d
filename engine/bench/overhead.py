"""What telemetry costs: the same mix with and without it, spans, metrics and KV events all on."""

from __future__ import annotations

import gc
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from rich.progress import Progress

from cachemodel.kv_events import Event
from engine.bench.mix import Mix
from engine.bench.running import Running, Spread, timed_s
from engine.config import EngineConfig
from engine.model.load import Loaded
from engine.observer import Step
from engine.request import Request
from engine.telemetry import Telemetry, TelemetryConfig

GOAL = 0.02
"""Share of throughput that telemetry may cost."""
_THREADS = ("spans", "kv events")
"""Telemetry's own."""
_ORDERS = (("told", "silent", "again"), ("silent", "told", "again"), ("silent", "again", "told"))
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Overhead:
    """Shares, 0.01 for one percent. The last span was sent when a run with telemetry ends.

    lost_share: requests a second lost; below 0 where telemetry was faster, which is the machine's noise. noise_share:
    how far two runs without telemetry are apart. cpu_share: CPU time of telemetry's calls and threads, of all that the
    process took; gRPC's own threads are not in it.
    """

    lost_share: Spread
    noise_share: Spread
    cpu_share: Spread

    @property
    def resolution(self) -> float:
        """About what the median of all rounds cannot tell from nothing."""
        return self.noise_share.median / math.sqrt(self.noise_share.rounds)


class _Clocked:
    """Telemetry with a stopwatch on every call."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._spent: dict[int, int] = {}  # by thread: each adds to its own
        self._threads = [thread for thread in threading.enumerate() if thread.name in _THREADS]

    def request_started(self, request: Request) -> None:
        self._clock(self._telemetry.request_started, request)

    def request_finished(self, request: Request) -> None:
        self._clock(self._telemetry.request_finished, request)

    def step_done(self, step: Step) -> None:
        self._clock(self._telemetry.step_done, step)

    def kv_events(self, events: Sequence[Event]) -> None:
        self._clock(self._telemetry.kv_events, events)

    def finish(self) -> None:
        """Send the last spans. Raises RuntimeError where the receiver does not take them."""
        if not self._telemetry.flush():
            raise RuntimeError("the receiver of spans is stuck")

    def cpu_s(self) -> float:
        """So far."""
        clocks = [time.pthread_getcpuclockid(thread.ident) for thread in self._threads if thread.ident]
        return sum(self._spent.values()) / 1e9 + sum(time.clock_gettime(clock) for clock in clocks)

    def _clock(self, call: Callable[[T], None], what: T) -> None:
        began, thread = time.thread_time_ns(), threading.get_ident()
        call(what)
        self._spent[thread] = self._spent.get(thread, 0) + time.thread_time_ns() - began


def measure_overhead(
    config: EngineConfig, loaded: Loaded, mix: Mix, rounds: int, progress: Progress
) -> Overhead:
    """Each round plays one draw of the mix with telemetry and twice without, in changing order."""
    losses, noises, shares = [], [], []
    task = progress.add_task("telemetry", total=rounds)
    with (
        _receiver() as endpoint,
        _telemetry(config, endpoint) as telemetry,
        Running(config, loaded, telemetry) as told,
        Running(config, loaded) as silent,
    ):
        for number in range(-1, rounds):  # the first warms up
            wall_s, cpu_s, own_s = {}, {}, telemetry.cpu_s()
            for name in _ORDERS[number % len(_ORDERS)]:
                running, finish = (told, telemetry.finish) if name == "told" else (silent, None)
                running.engine.reset_prefix_cache()
                gc.collect()
                wall_s[name], cpu_s[name], _ = timed_s(running, mix.draw(running, number), finish)
            if number >= 0:
                # Two runs without telemetry are two chances to be quick: each is compared on its own.
                losses += [1 - wall_s[name] / wall_s["told"] for name in ("silent", "again")]
                noises.append(abs(1 - wall_s["silent"] / wall_s["again"]))
                shares.append((telemetry.cpu_s() - own_s) / cpu_s["told"])
                progress.advance(task)
    return Overhead(Spread.of(losses), Spread.of(noises), Spread.of(shares))


@contextmanager
def _telemetry(config: EngineConfig, endpoint: str) -> Iterator[_Clocked]:
    """Everything that can be told, to somebody who takes it."""
    telemetry = Telemetry(config, TelemetryConfig(otlp=endpoint, kv_events="tcp://127.0.0.1:*"))
    try:
        yield _Clocked(telemetry)
    finally:
        telemetry.close()


@contextmanager
def _receiver() -> Iterator[str]:
    """A process that takes spans and drops them; where it listens."""
    with subprocess.Popen(
        [sys.executable, "-m", "engine.bench.sink"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            if process.stdout is None or not (endpoint := process.stdout.readline().strip()):
                raise RuntimeError("the receiver of spans did not start")
            yield endpoint
        finally:
            process.terminate()
