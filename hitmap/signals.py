"""SIGINT and SIGTERM as an event that a command waits for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that is set at the first of them; what they did before comes back at the end.

    A handler runs on the main thread between any two of its instructions. Where these are in Event.wait, its lock is
    taken, and a handler that called Event.set itself would wait for it for ever: another thread does.
    """
    stopping = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: threading.Thread(target=stopping.set, daemon=True).start())
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
