"""A server that is not there, for a run that sends nothing: it holds all it is sent and tells it, in blocks of 16.

A run against it takes the course that costs most: nothing ever leaves its device, so that a search for the device's end
goes as far as the budget lets it. What a run does before it knows better is the same on every server.
"""

from __future__ import annotations

from collections.abc import Mapping
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


class RehearsalServer:
    """A Transport. It tokenizes and takes token ids: texts are a little longer on a server that does not."""

    def __init__(self, model: str = "") -> None:
        self._model = model or "model"
        self._held: set[tuple[str, tuple[int, ...]]] = set()

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

    def _generate(self, prompt: list[int], salt: str) -> Answer:
        held = 0
        if (salt, tuple(prompt)) in self._held:
            held = len(prompt)
        self._held.add((salt, tuple(prompt)))
        cached = _LAW.served(len(prompt), held)
        told = {"prompt_tokens": len(prompt), "cached_tokens": cached, "device_tokens": cached}
        told |= {"host_tokens": 0, "remote_tokens": 0}
        return Answer(200, (len(prompt) - cached) / 1e6, True, told)
