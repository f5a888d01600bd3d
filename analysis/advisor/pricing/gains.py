"""What rewriting would save: the same requests, at the same times, replayed through the server's own block rules."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.advisor.pricing.gains_rewritten import Rewritten, Rules
from analysis.advisor.pricing.marked import Ends, Marked, marked, needs_marks
from analysis.advisor.rewriting.rules import Rule, apply
from analysis.prefix_replay.model import Requests
from analysis.prefix_replay.replay import replay
from analysis.prefix_replay.rules import Rule as CacheRule
from cachemodel.prompts.model import Kind, Prompt

Body = Mapping[str, Any]
Tokens = NDArray[np.uint32]
Counts = NDArray[np.int64]
Numbers = NDArray[np.uint64]
Tokenize = Callable[[Body], Tokens]
"""The prompt tokens of a request as its server would render it."""

PICTURES = (Kind.IMAGE, Kind.AUDIO, Kind.FILE)
"""Parts whose tokens no text tells."""


@dataclass(frozen=True, slots=True)
class Total:
    """Of n requests, tokens: prompt tokens, and of these what is served and computed."""

    prompt: int
    served: int

    @property
    def computed(self) -> int:
        """Tokens that the cache does not save."""
        return self.prompt - self.served


@dataclass(frozen=True)
class Outcome:
    """What a replay makes of n requests: prompt tokens of each, and how many of them are served, (n,)."""

    prompt: Counts
    served: Counts

    @property
    def computed(self) -> Counts:
        """(n,) tokens that the cache does not save."""
        return self.prompt - self.served

    @property
    def total(self) -> Total:
        """Of all of them."""
        return Total(int(self.prompt.sum()), int(self.served.sum()))


@dataclass(frozen=True)
class Change:
    """The same requests before and after a rewrite."""

    before: Outcome
    after: Outcome

    @property
    def saved(self) -> int:
        """Computed tokens, fewer by so many."""
        return self.before.total.computed - self.after.total.computed


@dataclass(frozen=True)
class Gain:
    """What a rewrite changes: alone; next, with those told before it in place; last, with all others. A fault behind
    another saves nothing alone, and one in front of another nothing until that is gone, too."""

    alone: Change
    next: Change
    last: Change

    @property
    def most(self) -> Change:
        """What hangs on it: that of the three which saves most."""
        return max(self.next, self.alone, self.last, key=lambda change: change.saved)


class Replayed:
    """Requests through one cache, as they were sent and as rules would have written them.

    rule: of the cache; ends: where blocks of a request end, for rules that need breakpoints. tokens: of each request;
    caches: its server and the model it was asked for, which have blocks of their own. sent: what became of them.
    """

    def __init__(
        self, prompts: Sequence[Prompt], tokenize: Tokenize, rule: CacheRule, ends: Ends | None = None
    ) -> None:
        self._bodies = [prompt.body or {} for prompt in prompts]
        self.rule = rule
        self._ends = ends if needs_marks(rule) else None
        self.tokens = [tokenize(body) for body in self._bodies]
        self._rewritten = Rewritten(self._bodies, self.tokens, tokenize)
        self.caches = [(prompt.server, _model(prompt)) for prompt in prompts]
        salts = [prompt.isolation for prompt in prompts]
        self._isolation = _numbers(list(zip(self.caches, salts, strict=True)))
        self._reads_off = np.array([bool(prompt.reads_off) for prompt in prompts], dtype=np.bool_)
        times = np.array([np.nan if prompt.time is None else prompt.time for prompt in prompts])
        self._times = None if np.isnan(times).any() else times
        self._place = np.zeros(0, np.uint32)
        self.sent = self._outcome(self.tokens, self._bodies)

    @property
    def served(self) -> Counts:
        """(n,) tokens of each request as it was sent that came from the cache."""
        return self.sent.served

    @property
    def as_sent(self) -> Total:
        """Of all requests as they were sent."""
        return self.sent.total

    def rewritten(self, rules: Sequence[Rule]) -> Outcome:
        """With these rules in front of the server."""
        return self.rewritten_by([tuple(rules)])[tuple(rules)]

    def tokens_with(self, rules: Sequence[Rule]) -> list[Tokens]:
        """Of each request, with these rules in front of the server."""
        return self._rewritten.by([tuple(rules)])[tuple(rules)]

    def rewritten_by(self, sets: Iterable[Rules]) -> dict[Rules, Outcome]:
        """With each of some sets of rules in front of the server."""
        return {
            rules: self._outcome(tokens, [apply(rules, body) for body in self._bodies] if self._ends else ())
            for rules, tokens in self._rewritten.by(sets).items()
        }

    def shared(self) -> Total:
        """Without salts and adapters that keep requests apart."""
        return self._again(isolation=_numbers(self.caches))

    def of_one_model(self) -> Total:
        """The same, if all models (which vLLM's adapters are named as, too) of a server had one cache."""
        return self._again(isolation=_numbers([server for server, _ in self.caches]))

    def read(self) -> Total:
        """Without options that keep the cache from being read."""
        return self._again(reads_off=np.zeros_like(self._reads_off))

    def by(self, rule: CacheRule) -> Total:
        """By the rule of another cache."""
        return self._outcome(self.tokens, self._bodies, rule).total

    def marked(self) -> Total | None:
        """With breakpoints where they are advised; None where the rule needs none."""
        if self._ends is None:
            return None
        lengths = [len(one) for one in self.tokens]
        own = marked(self._bodies, self._ends)
        return self._outcome(self.tokens, self._bodies, marks=own.as_advised(lengths)).total

    def _again(self, **columns: NDArray[Any]) -> Total:
        return self._outcome(self.tokens, self._bodies, None, None, **columns).total

    def _outcome(
        self,
        tokens: Sequence[Tokens],
        bodies: Sequence[Body],
        rule: CacheRule | None = None,
        marks: Marked | None = None,
        **columns: NDArray[Any],
    ) -> Outcome:
        if marks is None and self._ends is not None:
            marks = marked(bodies, self._ends)
        offsets = np.zeros(len(tokens) + 1, np.int64)
        np.cumsum([len(one) for one in tokens], out=offsets[1:])
        requests = Requests(
            tokens=self._side_by_side(tokens, int(offsets[-1])),
            offsets=offsets,
            isolation=columns.get("isolation", self._isolation),
            sent=self._times,
            reads_off=columns.get("reads_off", self._reads_off),
            breakpoints=marks.breakpoints if marks else None,
            parts=marks.parts if marks else None,
        )
        return Outcome(np.diff(offsets), replay(requests, rule or self.rule).served)

    def _side_by_side(self, tokens: Sequence[Tokens], count: int) -> Tokens:
        """In the same place each time: fresh memory takes longer to get than to fill."""
        if len(self._place) < count:
            self._place = np.empty(count + count // 16, np.uint32)
        return np.concatenate(tokens, out=self._place[:count]) if tokens else self._place[:0]


def gains(replayed: Replayed, rules: Sequence[Sequence[Rule]]) -> list[Gain | None]:
    """Of each set of rules, in this order; None of an empty one."""
    own = [tuple(one) for one in rules]
    so_far = list(accumulate(own, initial=()))
    others = [so_far[at] + tuple(chain(*own[at + 1 :])) for at in range(len(own))]
    asked = {one for at in range(len(own)) if own[at] for one in (own[at], *so_far[at : at + 2], others[at])}
    by = replayed.rewritten_by((asked | {so_far[-1]}) - {()}) | {(): replayed.sent}
    everything = by[so_far[-1]]
    return [
        Gain(
            Change(replayed.sent, by[own[at]]),
            Change(by[so_far[at]], by[so_far[at + 1]]),
            Change(by[others[at]], everything),
        )
        if own[at]
        else None
        for at in range(len(own))
    ]


def _model(prompt: Prompt) -> str:
    """As it was asked for: what a response calls it can be another name of the same one."""
    asked = (prompt.body or {}).get("model")
    return asked if isinstance(asked, str) else prompt.model


def _numbers(of: Sequence[Hashable]) -> Numbers:
    """(n,) The same number for what is the same."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(one, len(known)) for one in of], dtype=np.uint64)
