"""Brings requests, which a log has in the order in which they ended, into that in which they were sent. Pure.

A request may have been sent before one that is here and still be running: each waits for as long as the longest of the
last ones took. One that comes later than that is out of order, and counted.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from collector.chains.prompt import Prompt

LONGEST_S = 30.0
MAX_WAITING = 1000
MAX_CHARACTERS = 16 << 20
_RECENT = 256


class Waiting:
    """late: requests that came when a later one was already gone."""

    def __init__(self) -> None:
        self.late = 0
        self._heap: list[tuple[float, int, float, Prompt]] = []
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._number = self._characters = 0
        self._gone_s = float("-inf")

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, prompt: Prompt, now_s: float) -> None:
        """Hold it. now_s: of any clock that `first` is asked with as well."""
        self._recent.append(min(prompt.seconds, LONGEST_S))
        self._number += 1
        self._characters += _size(prompt)
        self.late += prompt.time < self._gone_s
        heappush(self._heap, (prompt.time, self._number, now_s, prompt))

    def first(self, now_s: float, *, at_once: bool = False) -> Prompt | None:
        """The one that was sent first, where it need wait no longer or shall not."""
        return self._heap[0][3] if self._heap and (at_once or self._is_due(now_s)) else None

    def drop(self) -> None:
        """Let go of the one that was sent first."""
        time_s, _, _, prompt = heappop(self._heap)
        self._gone_s = max(self._gone_s, time_s)
        self._characters -= _size(prompt)

    def _is_due(self, now_s: float) -> bool:
        full = len(self._heap) > MAX_WAITING or self._characters > MAX_CHARACTERS
        return full or now_s - self._heap[0][2] >= max(self._recent)


def _size(prompt: Prompt) -> int:
    """Characters, or tokens where it has no text; roughly."""
    texts = (str(message.get("content", "")) for message in prompt.messages or ())
    return len(prompt.text or "") + len(prompt.tokens or ()) + sum(map(len, texts))
