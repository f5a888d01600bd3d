"""Engines under measurement: requests one after the other or all at once, and what a few runs say together."""

from __future__ import annotations

import itertools
import queue
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import EngineFailed
from engine.faults import Faults
from engine.model.load import Loaded
from engine.observer import Observer
from engine.request import FinishReason, Output, Request, Sampling

_ids = itertools.count()


@dataclass(frozen=True, slots=True)
class Spread:
    """Of the same figure in several rounds."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values), len(values))


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to come."""

    prompt: list[int]
    max_tokens: int


class Running:
    """An engine that runs, and a caller that takes every token at once. Use it as a context."""

    def __init__(self, config: EngineConfig, loaded: Loaded, observer: Observer | None = None) -> None:
        self.faults = Faults()
        self.engine = Engine(config, observer, self.faults, loaded=loaded)
        self._vocabulary = loaded.config.vocab_size

    def __enter__(self) -> Running:
        self.engine.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.engine.stop()

    def tokens(self, count: int, rnd: random.Random) -> list[int]:
        """Text that nobody has seen before."""
        return [rnd.randrange(self._vocabulary) for _ in range(count)]

    def serve(self, prompt: list[int], max_tokens: int = 1) -> Request:
        """One request, alone."""
        return self.play([Asked(prompt, max_tokens)])[0]

    def play(self, mix: Sequence[Asked]) -> list[Request]:
        """All of them at once; returns when all have ended. Raises EngineFailed where one failed."""
        outputs: queue.SimpleQueue[Output] = queue.SimpleQueue()
        requests = []
        for asked in mix:
            sampling = Sampling(max_tokens=asked.max_tokens, ignore_eos=True)
            requests.append(Request(f"bench-{next(_ids)}", asked.prompt, sampling))
            self.engine.submit(requests[-1], outputs.put)
        left = len(requests)
        while left:
            output = outputs.get()
            if output.finish_reason is not None:
                left -= 1
                self.engine.finished(output.request)
                if output.finish_reason is FinishReason.ERROR:
                    raise EngineFailed(output.request.error)
        return requests


def ttft_ms(request: Request) -> float:
    """Milliseconds from its arrival to its first token."""
    return (request.first_token_ns - request.timeline.start_ns) / 1e6


def timed_s(
    running: Running, mix: Sequence[Asked], finish: Callable[[], None] | None = None
) -> tuple[float, float, list[Request]]:
    """Play a mix: seconds of wall time, CPU seconds of the whole process, the requests. finish: work that is left when
    they have ended, and counts."""
    wall, cpu = time.perf_counter(), time.process_time()
    requests = running.play(mix)
    if finish:
        finish()
    return time.perf_counter() - wall, time.process_time() - cpu, requests
