"""What a rule is, and the facts that it looks at."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Aspect = Literal["b", "a", "change", "ratio", "sigmas"]
SIGNS: Mapping[str, Callable[[float, float], bool]] = {"<": operator.lt, ">": operator.gt}


@dataclass(frozen=True, slots=True)
class Fact:
    """A number of both sides, None where nothing tells it. n_a, n_b: what it rests on; sigmas: of its change, None
    where no interval can be had."""

    a: float | None
    b: float | None
    n_a: int
    n_b: int
    sigmas: float | None = None

    def aspect(self, name: Aspect) -> float | None:
        """The number that a condition asks for; None where it is not known."""
        if name == "sigmas":
            return self.sigmas
        if name in ("a", "b"):
            return self.a if name == "a" else self.b
        if self.a is None or self.b is None:
            return None
        if name == "change":
            return self.b - self.a
        if self.a > 0:
            return self.b / self.a
        return math.inf if self.b > 0 else None


Facts = Mapping[str, Fact]


@dataclass(frozen=True, slots=True)
class Condition:
    """`fact.aspect > bound`; what is not known fulfils none."""

    fact: str
    aspect: Aspect
    sign: str
    bound: float

    def holds(self, facts: Facts) -> bool:
        """Whether it does."""
        fact = facts.get(self.fact)
        value = fact.aspect(self.aspect) if fact else None
        return value is not None and SIGNS[self.sign](value, self.bound)


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table; `rules/README.md` says what each field is."""

    id: str
    title: str
    when: tuple[Condition, ...]
    remedy: str
    confirm: str
    blamed: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    dialects: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    answers: tuple[int, ...] = ()
