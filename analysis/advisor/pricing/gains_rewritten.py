"""Requests as sets of rules write them: what sets have in common is written and tokenised once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.advisor.rewriting.blocks import holds_marks
from analysis.advisor.rewriting.rules import Rule, apply

Body = Mapping[str, Any]
Rules = tuple[Rule, ...]
Tokens = NDArray[np.uint32]
Tokenize = Callable[[Body], Tokens]

_TEXTS = ("prompt", "input", "system", "instructions")
"""Fields of a request that may be what it says, as one text."""
_SAME = {"developer": "system", "model": "assistant"}
"""Roles that go by another name in some forms of requests."""
_Idle = tuple[int, tuple[str | int, ...]]
"""A rule that had nothing to do in a request as it was sent, and what it looked at there. Prompts of a log share what
they have in common: in another one that shares all of this the rule has nothing to do, either."""


class Rewritten:
    """n requests. bodies, tokens: as they were sent; tokenize: a body's tokens.

    Kept is what asking again would cost: of requests that rules change the tokens, and which rule leads from one
    version to which; of the others, which rules leave them as they are.
    """

    def __init__(self, bodies: Sequence[Body], tokens: Sequence[Tokens], tokenize: Tokenize) -> None:
        self._bodies, self._tokens, self._tokenize = bodies, tokens, tokenize
        self._rules: dict[Rule, int] = {}
        self._changed: dict[int, _Versions] = {}
        self._unchanged: dict[int, set[int]] = {}  # by which rules, by number
        self._idle = set[_Idle]()

    def by(self, sets: Iterable[Rules]) -> dict[Rules, list[Tokens]]:
        """Tokens of all requests with each of some sets of rules, which are applied one after the other."""
        numbered = {
            rules: [self._rules.setdefault(rule, len(self._rules)) for rule in rules] for rules in sets
        }
        told = {rules: list(self._tokens) for rules in numbered}
        rules_of, asked = list(self._rules), {number for own in numbered.values() for number in own}
        for at, body in enumerate(self._bodies):
            if asked <= self._unchanged.get(at, set()):
                continue
            versions = self._changed.get(at) or _Versions(tokens={0: self._tokens[at]})
            request = _Request(body, versions, rules_of, self._idle)
            if not any(request.after(0, number) for number in asked):
                self._unchanged[at] = asked
                continue
            self._changed[at] = versions
            for rules, numbers in numbered.items():
                told[rules][at] = request.tokens(numbers, self._tokenize)
        return told


@dataclass(slots=True)
class _Versions:
    """Of one request, numbered from 0, which is as it was sent. tokens: of those that were asked for; after: the
    version that a rule, by its number, makes of another; by: rules that lead to each from what was sent."""

    tokens: dict[int, Tokens]
    after: dict[tuple[int, int], int] = field(default_factory=dict)
    by: list[Rules] = field(default_factory=lambda: [()])


class _Request:
    """One request and its versions while they are worked out."""

    def __init__(self, body: Body, versions: _Versions, rules: Sequence[Rule], idle: set[_Idle]) -> None:
        self._versions, self._rules, self._idle = versions, rules, idle
        self._bodies = {0: body}
        self._seen: dict[str, tuple[str | int, ...]] = {}

    def after(self, at: int, number: int) -> int:
        """What a rule makes of a version: that one itself, where it has nothing to do."""
        versions, rule = self._versions, self._rules[number]
        if (told := versions.after.get((at, number))) is None:
            seen = number, self._sent(rule.role)
            told = at if not at and seen in self._idle else self._written(at, rule)
            if not at and not told:
                self._idle.add(seen)
            versions.after[at, number] = told
        return told

    def tokens(self, numbers: Sequence[int], tokenize: Tokenize) -> Tokens:
        """With these rules, one after the other."""
        at = 0
        for number in numbers:
            at = self.after(at, number)
        if at not in self._versions.tokens:
            self._versions.tokens[at] = tokenize(self._body(at))
        return self._versions.tokens[at]

    def _written(self, at: int, rule: Rule) -> int:
        before = self._body(at)
        if (after := apply([rule], before)) is before:
            return at
        self._versions.by.append((*self._versions.by[at], rule))
        new = len(self._versions.by) - 1
        self._bodies[new] = after
        return new

    def _sent(self, role: str) -> tuple[str | int, ...]:
        """All that rules of a role look at in the request as it was sent."""
        if role not in self._seen:
            self._seen[role] = tuple(_looked_at(role, self._bodies[0]))
        return self._seen[role]

    def _body(self, at: int) -> Body:
        if at not in self._bodies:
            self._bodies[at] = apply(self._versions.by[at], self._bodies[0])
        return self._bodies[at]


def _looked_at(role: str, body: Body) -> Iterator[str | int]:
    """What rules of a role decide by whether there is anything to do, by its place in memory: all of a request but
    numbers, names, and what others say. Of others it counts whether there are any, and any that could hold the marks
    of what is taken out."""
    for name, value in body.items():
        if isinstance(value, list):
            yield name
            others = [one for one in value if _is_of_others(role, one)]
            yield from (id(one) for one in value if not _is_of_others(role, one))
            yield len(others[:1]) + any(map(holds_marks, others))
        elif isinstance(value, dict) or name in _TEXTS:
            yield name
            yield id(value)


def _is_of_others(role: str, message: object) -> bool:
    told = message.get("role") if isinstance(message, dict) else None
    return isinstance(told, str) and _SAME.get(told, told) != role
