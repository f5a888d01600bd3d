"""How times depend on tokens, and the strata within which what is left over is alike.

A law is a line in the terms of strata.Sources and how far times are off it, which grows with them. What a request is
off, in such units, is compared within strata of what the law expects. Strata of lengths and of sources that do not
differ are one: a tail learned from all requests is less noisy than one from a few hundred.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from analysis.attribution.layers import Mask
from analysis.attribution.model import Ints
from analysis.attribution.shows.strata import COMPUTED, LOADS, Line, edges, fit
from analysis.quantiles import Floats

_LEAST = 0.2  # of the mean spread: what a spread is at least, where a line says less
_CHANCE = (
    1.358  # of Kolmogorov and Smirnov: two samples of one distribution are further apart in 5 % of cases
)
_LENGTHS = 5
_MOST = 0.9

Told = tuple[Floats, Floats, Ints]
"""Terms (d, n), values (n,) and groups (n,) of some requests of one side."""


@dataclass(frozen=True)
class Law:
    """What a value is expected to be, and how far it is off on average (never less than `least`)."""

    line: Line
    spread: Line
    least: float

    def off(self, values: Floats, terms: Floats, group: Ints) -> Floats:
        """How many spreads values (n,) are off."""
        return np.asarray((values - self.line(terms, group)) / self.varies(terms, group))

    def at(self, off: Floats, terms: Floats, group: Ints) -> Floats:
        """The values (n,) that are so far off."""
        return np.asarray(self.varies(terms, group) * off + self.line(terms, group))

    def varies(self, terms: Floats, group: Ints) -> Floats:
        """How much a spread is, (n,)."""
        return np.maximum(self.spread(terms, group), self.least)


def law(told: Told, towards: Law) -> Law:
    """Fitted to some requests, those that vary less counting more; `towards` holds where they say nothing."""
    terms, values, group = told
    line = fit(terms, values, group, towards.line)
    off = np.abs(values - line(terms, group))
    found = Law(
        line, fit(terms, off, group, towards.spread), _LEAST * float(off.mean()) if off.any() else 1.0
    )
    if not len(values) or not found.spread.varies:
        return found
    return replace(found, line=fit(terms, values, group, towards.line, found.varies(terms, group)))


def common_law(a: Told, b: Told, groups: int) -> Law:
    """Of both sides. Slopes are those within each: between them, a change would lend its name to whatever else
    changed."""
    terms = np.concatenate([a[0], b[0]], axis=1)
    flat = Line.flat(len(terms), 2 * groups, _knots(a[0], b[0]))
    both = law(
        (terms, np.concatenate([a[1], b[1]]), np.concatenate([a[2], b[2] + groups])), Law(flat, flat, 1.0)
    )
    line, spread = (replace(x, levels=x.levels.reshape(2, -1).mean(axis=0)) for x in (both.line, both.spread))
    return Law(line, spread, both.least)


def _knots(a: Floats, b: Floats) -> Floats:
    """Where laws of terms (d, n) of both sides may bend: they have requests with more and with less computed tokens."""
    if len(a) <= COMPUTED or not a.shape[1] or not b.shape[1]:
        return np.empty(0)
    return edges(a[COMPUTED], b[COMPUTED])


@dataclass(frozen=True)
class Score:
    """Strata of requests by what a law expects of them. gate: terms; requests with none of them are in a stratum of
    their own, the first. number: of each stratum; those with one number are one."""

    law: Law
    edges: Floats
    gate: tuple[int, ...]
    number: Ints

    @property
    def count(self) -> int:
        return int(self.number.max()) + 1

    def __call__(self, terms: Floats, group: Ints) -> Ints:
        if self.count == 1:
            return np.zeros(len(group), dtype=np.int64)
        return self.number[self.fine(terms, group)]

    def fine(self, terms: Floats, group: Ints) -> Ints:
        """Before any are one."""
        stratum = np.searchsorted(self.edges, self.law.line(terms, group), side="right")
        return np.where(_through(terms, self.gate), stratum + 1, 0) if self.gate else stratum


def score(a: Told, b: Told, groups: int, gate: tuple[int, ...] = ()) -> Score:
    """Strata that both sides have."""
    if gate:
        a, b = (_where(told, _through(told[0], gate)) for told in (a, b))
    expected = common_law(a, b, groups)
    of_a, of_b = (expected.line(terms, group) for terms, _, group in (a, b))
    cuts = edges(of_a, of_b) if len(of_a) and len(of_b) else np.empty(0)
    return Score(expected, cuts, gate, np.arange(len(cuts) + 1 + bool(gate)))


def gate(a: Floats, b: Floats, passed_a: Mask, passed_b: Mask) -> tuple[int, ...]:
    """The loads without any of which a request does not pass a layer, by the terms (d, n) of both sides and who passed
    it (n,): a tier's own, or in a chain of caches what this layer or one behind it answered. None where others pass it,
    too."""
    terms, passed = np.concatenate([a, b], axis=1), np.concatenate([passed_a, passed_b])
    leading = tuple(
        row
        for row in range(LOADS, len(terms))
        if (terms[row] > 0).any() and passed[terms[row] > 0].mean() > _MOST
    )
    without = ~_through(terms, leading)
    return leading if leading and without.any() and passed[without].mean() < 1 - _MOST else ()


def _through(terms: Floats, gate: tuple[int, ...]) -> Mask:
    return np.asarray((terms[list(gate)] > 0).any(axis=0))


def _where(told: Told, rows: Mask) -> Told:
    terms, values, group = told
    return terms[:, rows], values[rows], group[rows]


@dataclass(frozen=True)
class Lengths:
    """Strata by group and length of the prompt; edges: of each group; number: as in Score."""

    edges: tuple[Floats, ...]
    number: Ints

    @property
    def count(self) -> int:
        return int(self.number.max()) + 1

    def __call__(self, group: Ints, prompt: Floats) -> Ints:
        if self.count == 1:
            return np.zeros(len(group), dtype=np.int64)
        return self.number[self.fine(group, prompt)]

    def fine(self, group: Ints, prompt: Floats) -> Ints:
        """Before any are one."""
        stratum = np.zeros(len(group), dtype=np.int64)
        first = 0
        for g, edge in enumerate(self.edges):
            here = np.flatnonzero(group == g)
            stratum[here] = first + np.searchsorted(edge, prompt[here], side="right")
            first += len(edge) + 1
        return stratum


def lengths(a: tuple[Ints, Floats], b: tuple[Ints, Floats], groups: int) -> Lengths:
    """By group and prompt of some requests of both sides."""
    cuts = []
    for g in range(groups):
        x, y = (prompt[group == g] for group, prompt in (a, b))
        cuts.append(edges(x, y, _LENGTHS) if len(x) and len(y) else np.empty(0))
    return Lengths(tuple(cuts), np.arange(sum(len(cut) + 1 for cut in cuts)))


def merged(a: tuple[Floats, Ints], b: tuple[Floats, Ints], count: int, *, by_value: bool = False) -> Ints:
    """Numbers (count,) of strata: neighbours whose values differ on neither side by more than chance have one.

    a, b: values and strata (n,) of some requests. by_value: neighbours by their mean, not by their number.
    """
    parts = [[np.sort(values[stratum == s]) for s in range(count)] for values, stratum in (a, b)]
    order = range(count)
    if by_value:
        means = [
            np.concatenate(both).mean() if any(map(len, both)) else 0.0 for both in zip(*parts, strict=True)
        ]
        order = np.argsort(means, kind="stable").tolist()
    number = np.zeros(count, dtype=np.int64)
    so_far = [of[order[0]] for of in parts]
    last = 0
    for s in order[1:]:
        here = [of[s] for of in parts]
        if all(_alike(x, y) for x, y in zip(so_far, here, strict=True)):
            so_far = [np.sort(np.concatenate(pair)) for pair in zip(so_far, here, strict=True)]
        else:
            so_far, last = here, last + 1
        number[s] = last
    return number


def _alike(x: Floats, y: Floats) -> bool:
    """Whether two sorted samples can be of one distribution (Kolmogorov and Smirnov)."""
    if not len(x) or not len(y):
        return True
    both = np.concatenate([x, y])
    upto = [np.searchsorted(of, both, side="right") / len(of) for of in (x, y)]
    return float(np.abs(upto[0] - upto[1]).max()) <= _CHANCE * math.sqrt(1 / len(x) + 1 / len(y))
