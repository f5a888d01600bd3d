"""Prompts made to measure, and what is true of each token of them by construction."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.planted.fleet import Replica

PARTS = (
    *("hit", "unaligned", "not_loaded", "elsewhere", "isolated"),
    *("evicted/capacity", "evicted/expiry", "evicted/clear", "evicted/restart"),
    *("changed", "cold", "unknown"),
)
COLD = "cold"


class Words:
    """Token ids of which no two passages have anything in common."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def __call__(self, tokens: int) -> list[int]:
        return [self._random.randrange(300, 2048) for _ in range(tokens)]


@dataclass(frozen=True)
class Planted:
    """A request, and how many of its prompt's tokens are of each part."""

    request_id: str
    truth: Mapping[str, int]


@dataclass
class Book:
    """What was planted, by case."""

    cases: dict[str, list[Planted]] = field(default_factory=lambda: defaultdict(list))
    words: Words = field(default_factory=Words)

    def plant(
        self, case: str, replica: Replica, prompt: list[int], truth: Mapping[str, int], **more: Any
    ) -> None:
        """Send a prompt whose tokens are of these parts; the engine must have served what is said to be a hit."""
        self.note(case, replica, replica.send(prompt, **more), len(prompt), truth)

    def prime(self, replica: Replica, prompt: list[int], **more: Any) -> None:
        """Send a prompt of which nothing was ever seen."""
        self.plant(COLD, replica, prompt, {"cold": len(prompt)}, **more)

    def note(
        self, case: str, replica: Replica, request_id: str, prompt: int, truth: Mapping[str, int]
    ) -> None:
        """Say what is true of a request that was answered."""
        assert set(truth) <= set(PARTS)
        assert sum(truth.values()) == prompt, f"{case}: {truth} is no prompt of {prompt} tokens"
        usage = replica.usages[request_id]
        served = usage["prompt_tokens_details"]["cached_tokens"]
        assert usage["prompt_tokens"] == prompt
        assert served == truth.get("hit", 0), f"{case} was not planted: {served} tokens served, not {truth}"
        self.cases[case].append(Planted(request_id, truth))
