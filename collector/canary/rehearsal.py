"""A server that is not there, for a run that sends nothing: it holds all it is sent and tells it, in blocks of 16.

A run against it takes the course that costs most: nothing ever leaves its device, so that a search for the device's end
goes as far as the budget lets it. What a run does before it knows better is the same on every server.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from cachemodel.alignment import Alignment
from collector.canary.wire import Answer

_LAW = Alignment(16)
_IDS = 512


class RehearsalClock:
    """Time that passes only by waiting."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


class RehearsalRandom(Random):
    """Draws the tokens of a prompt as a stretch of numbers that no other prompt has, whatever its length."""

    def __init__(self) -> None:
        super().__init__(0)
        self._drawn = 0

    def choices(self, population: Any, *arguments: Any, k: int = 1, **more: Any) -> Any:
        begin, self._drawn = self._drawn, self._drawn + k
        return range(begin, self._drawn)


class RehearsalServer:
    """A Transport. It tokenizes and takes token ids: texts are a little longer on a server that does not."""

    def __init__(self, model: str = "") -> None:
        self._model = model or "model"
        self._held: set[tuple[str, range]] = set()

    def send(
        self,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        timeout_s: float,
        *,
        fresh: bool = False,
    ) -> Answer:
        if path == "/v1/models":
            return Answer(200, 0.0, body={"data": [{"id": self._model}]})
        if body is None or path == "/tokenize":
            return Answer(200, 0.0, body={"tokens": list(range(_IDS))})
        return self._generate(body["prompt"], body.get("cache_salt", ""))

    def _generate(self, prompt: range, salt: str) -> Answer:
        held = len(prompt) if (salt, prompt) in self._held else 0
        self._held.add((salt, prompt))
        cached = _LAW.served(len(prompt), held)
        told = {"prompt_tokens": len(prompt), "cached_tokens": cached, "device_tokens": cached}
        told |= {"host_tokens": 0, "remote_tokens": 0}
        return Answer(200, (len(prompt) - cached) / 1e6, True, told)
