"""What rewriting would save: the same requests, at the same times, replayed through the server's own block rules."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.advisor.rules import Rule, apply
from analysis.prefix_replay.model import Requests
from analysis.prefix_replay.replay import replay
from analysis.prefix_replay.rules import Rule as CacheRule
from cachemodel.prompts.model import Prompt

Body = Mapping[str, Any]
Tokens = NDArray[np.uint32]
Tokenize = Callable[[Body], Tokens]
"""The prompt tokens of a request as its server would render it."""


@dataclass(frozen=True, slots=True)
class Total:
    """Of n requests, tokens: prompt tokens, and of these what is served and computed."""

    prompt: int
    served: int

    @property
    def computed(self) -> int:
        """Tokens that the cache does not save."""
        return self.prompt - self.served


@dataclass(frozen=True, slots=True)
class Gain:
    """Computed tokens that a rewrite saves: alone; next, with those told before it in place; last, with all others. A
    fault behind another saves nothing alone, and one in front of another nothing until that is gone, too."""

    alone: int
    next: int
    last: int

    @property
    def most(self) -> int:
        """What hangs on it."""
        return max(self.alone, self.next, self.last)


class Replayed:
    """Requests through one cache, as they were sent and as rules would have written them.

    rule: of the cache. tokens: of each request; served: (n,) of these, from the cache; as_sent: the sums.
    """

    def __init__(self, prompts: Sequence[Prompt], tokenize: Tokenize, rule: CacheRule) -> None:
        self._bodies = [prompt.body or {} for prompt in prompts]
        self._tokenize, self.rule = tokenize, rule
        self.tokens = [tokenize(body) for body in self._bodies]
        self._isolation = np.array([_number(prompt.isolation) for prompt in prompts], dtype=np.uint64)
        self._reads_off = np.array([bool(prompt.reads_off) for prompt in prompts])
        times = np.array([np.nan if prompt.time is None else prompt.time for prompt in prompts])
        self._sent = None if np.isnan(times).any() else times
        self.served = self._served(self.tokens, rule)
        self.as_sent = Total(sum(map(len, self.tokens)), int(self.served.sum()))

    def rewritten(self, rules: Sequence[Rule]) -> Total:
        """With these rules in front of the server."""
        told = []
        for body, before in zip(self._bodies, self.tokens, strict=True):
            after = apply(rules, body)
            told.append(before if after is body else self._tokenize(after))
        return Total(sum(map(len, told)), int(self._served(told, self.rule).sum()))

    def shared(self) -> Total:
        """Without salts and adapters that keep requests apart."""
        return self._again(isolation=np.zeros_like(self._isolation))

    def read(self) -> Total:
        """Without options that keep the cache from being read."""
        return self._again(reads_off=np.zeros_like(self._reads_off))

    def by(self, rule: CacheRule) -> Total:
        """By the rule of another cache."""
        return Total(self.as_sent.prompt, int(self._served(self.tokens, rule).sum()))

    def _again(self, **columns: NDArray[Any]) -> Total:
        return Total(self.as_sent.prompt, int(self._served(self.tokens, self.rule, **columns).sum()))

    def _served(
        self, tokens: Sequence[Tokens], rule: CacheRule, **columns: NDArray[Any]
    ) -> NDArray[np.int64]:
        """(n,) tokens that the cache serves of each."""
        offsets = np.zeros(len(tokens) + 1, np.int64)
        np.cumsum([len(one) for one in tokens], out=offsets[1:])
        requests = Requests(
            tokens=np.concatenate(tokens) if tokens else np.zeros(0, np.uint32),
            offsets=offsets,
            isolation=columns.get("isolation", self._isolation),
            sent=self._sent,
            reads_off=columns.get("reads_off", self._reads_off),
        )
        return replay(requests, rule).served


def gains(replayed: Replayed, rules: Sequence[Sequence[Rule]]) -> list[Gain]:
    """Of each set of rules, in this order; nothing of an empty one."""
    everything = replayed.rewritten([rule for own in rules for rule in own]).computed
    told, so_far, before = [], list[Rule](), replayed.as_sent.computed
    for at, own in enumerate(rules):
        if not own:
            told.append(Gain(0, 0, 0))
            continue
        so_far += own
        after = replayed.rewritten(so_far).computed
        others = [rule for other, its in enumerate(rules) for rule in its if other != at]
        alone = replayed.as_sent.computed - replayed.rewritten(own).computed
        told.append(Gain(alone, before - after, replayed.rewritten(others).computed - everything))
        before = after
    return told


def _number(isolation: str) -> int:
    return zlib.crc32(isolation.encode(errors="replace")) + 1 if isolation else 0
