"""Answers that take a while: worked out beside the page, for all who wait for the same, and kept for a short time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

AT_ONCE = 2  # of them are worked out; others wait their turn


@dataclass(slots=True)
class _Kept:
    future: Future[Any] = field(default_factory=Future)
    done_at: float | None = None
    waiting: int = 0


class Answers:
    """By what was asked. kept_s: how long after it was given. most: answers that are kept."""

    def __init__(self, kept_s: float, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._kept_s, self._most, self._clock = kept_s, most, clock
        self._kept: dict[Hashable, _Kept] = {}
        self._lock = threading.Lock()
        self._turn = threading.Semaphore(AT_ONCE)

    def get(self, key: Hashable, work: Callable[[], Any], meanwhile: Callable[[float], None]) -> Any:
        """The answer, from `work` unless it is kept or on its way. meanwhile: called with the seconds gone by while it
        is waited for; what it raises ends the waiting and not the work, but work not begun for which nobody waits any
        longer is left. An error of `work` is raised here, and not kept."""
        kept = self._asked(key, work)
        begun = self._clock()
        try:
            while not kept.future.done():
                meanwhile(self._clock() - begun)
            return kept.future.result()
        finally:
            with self._lock:
                kept.waiting -= 1
                if not kept.waiting and kept.future.cancel() and self._kept.get(key) is kept:
                    del self._kept[key]

    def forget(self) -> None:
        """Work everything out anew from now on."""
        with self._lock:
            self._kept.clear()

    def _asked(self, key: Hashable, work: Callable[[], Any]) -> _Kept:
        with self._lock:
            now = self._clock()
            for old in [k for k, v in self._kept.items() if v.done_at and now - v.done_at > self._kept_s]:
                del self._kept[old]
            kept = self._kept.get(key)
            if kept is None:
                kept = self._kept[key] = _Kept()
                # A daemon: whoever ends the process does not wait for an answer.
                threading.Thread(target=self._work, args=(key, kept, work), daemon=True).start()
            kept.waiting += 1
            return kept

    def _work(self, key: Hashable, kept: _Kept, work: Callable[[], Any]) -> None:
        with self._turn:
            if not kept.future.set_running_or_notify_cancel():
                return
            try:
                answer = work()
            except BaseException as error:
                with self._lock:
                    if self._kept.get(key) is kept:
                        del self._kept[key]
                kept.future.set_exception(error)
                return
            with self._lock:
                kept.done_at = self._clock()
                done = [k for k, v in self._kept.items() if v.done_at is not None]
                for old in done[: max(0, len(done) - self._most)]:
                    del self._kept[old]
            kept.future.set_result(answer)
