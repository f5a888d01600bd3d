"""Engines with their thread, and how tests talk to them."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.core import Engine
from engine.faults import Faults
from engine.request import Output, Request
from tests.engine.core.tiny import Seen, loaded, settings

Make = Callable[..., Engine]


@pytest.fixture
def make() -> Iterator[Make]:
    """Engines with the tiny model, stopped at the end."""
    engines: list[Engine] = []

    def start(*, started: bool = True, **changes: Any) -> Engine:
        engine = Engine(settings(**changes), Seen(), Faults(), loaded=loaded())
        engines.append(engine)
        if started:
            engine.start()
        return engine

    yield start
    for engine in engines:
        engine.stop()


def serve(engine: Engine, asked: Request) -> list[Output]:
    """Submit, read all outputs, say that they were handed over."""
    outputs: queue.SimpleQueue[Output] = queue.SimpleQueue()
    engine.submit(asked, outputs.put)
    read = [outputs.get(timeout=60)]
    while read[-1].finish_reason is None:
        read.append(outputs.get(timeout=60))
    engine.finished(asked)
    return read


def seen(engine: Engine) -> Seen:
    assert isinstance(engine.observer, Seen)
    return engine.observer


def until(true: Callable[[], bool]) -> None:
    """Wait for what happens on another thread."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it did not happen within a minute"
        time.sleep(0.001)
