"""The step-time laws of both sides, told apart only where the data do.

Two fits of one unchanged server differ by chance, and more in each number than in what they predict: a prefill that
seems slower is made up for by a decode that seems faster. Replayed, such pairs would be blamed for parts of a change
that cancel. So the numbers of a speed are the same on both sides unless the fits, by their joint covariance, differ in
it by more than 3 sigma: the most likely laws under that constraint (generalised least squares). Speeds are freed one
after the other, the one that explains most first. Where a common law reproduces a side clearly worse than its own
(another batch or mix can lie where the law bends), each side keeps its own.

That a difference is too small to tell is no proof that there is none. So a speed that is taken as the same has a share
of 0, and for its interval laws are drawn about that as if it were free (`Laws.freed`): with the noise of both fits, and
as far again as the common law moved them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import astuple, dataclass, fields, replace

import numpy as np

from analysis.attribution.caused.causes import SPEEDS
from analysis.quantiles import Floats
from analysis.twin.model import Fit, Law

_NAMES = tuple(field.name for field in fields(Law))
_ONE_SIDED = 2.782  # sigmas beyond which, on one side, lies what lies beyond 3 on both


@dataclass(frozen=True)
class Laws:
    """a, b: of the sides. mean, covariance: (18,) and (18, 18) of their numbers, those of A first. free: (18, 18) about
    the same mean, of what they could be were no speed the same. changed: speeds that are not the same."""

    a: Law
    b: Law
    mean: Floats
    covariance: Floats
    free: Floats
    changed: tuple[str, ...]

    @property
    def freed(self) -> Laws:
        """The same, to draw from as if no speed had been taken as the same."""
        return replace(self, covariance=self.free)

    def draw(self, rng: np.random.Generator, count: int) -> list[tuple[Law, Law]]:
        """`count` pairs that the data could as well have come from."""
        values, vectors = np.linalg.eigh(self.covariance)
        shifts = rng.standard_normal((count, len(values))) * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
        return [_pair(self.mean + shift) for shift in shifts]


def laws(a: Fit, b: Fit) -> Laws:
    """The laws of two fits of one server, the same in all speeds in which these do not differ."""
    mean = np.array([*astuple(a.law), *astuple(b.law)])
    covariance = _covariance(a, b)
    known = [name for name in SPEEDS if len(_rows([name], covariance))]
    same = known.copy()
    while same and _differ(mean, covariance, same):
        same.remove(min(same, key=lambda name: _distance(mean, covariance, [s for s in same if s != name])))
    common, known_together = _constrained(mean, covariance, _rows(same, covariance))
    moved = common - mean
    changed = tuple(name for name in known if name not in same)
    return Laws(*_pair(common), common, known_together, covariance + np.outer(moved, moved), changed)


def apart(a: Fit, b: Fit) -> Laws:
    """The laws as they were fitted."""
    covariance = _covariance(a, b)
    mean = np.array([*astuple(a.law), *astuple(b.law)])
    return Laws(a.law, b.law, mean, covariance, covariance, tuple(SPEEDS))


def of_one_time(fit: Fit) -> Laws:
    """Of a server that served both sides at one time: one law, drawn once."""
    numbers = np.array(astuple(fit.law))
    covariance = np.tile(numbers[:, None] * fit.covariance * numbers, (2, 2))
    return Laws(fit.law, fit.law, np.tile(numbers, 2), covariance, covariance, ())


def _pair(numbers: Floats) -> tuple[Law, Law]:
    a, b = np.split(np.maximum(numbers, 0.0), 2)
    return Law(*a.tolist()), Law(*b.tolist())


def _covariance(a: Fit, b: Fit) -> Floats:
    """Of both fits' numbers. One that a fit has at 0 is known there no better than the other fit knows it."""
    m = len(_NAMES)
    covariance = np.zeros((2 * m, 2 * m))
    for first, fit in ((0, a), (m, b)):
        numbers = np.array(astuple(fit.law))
        covariance[first : first + m, first : first + m] = numbers[:, None] * fit.covariance * numbers
    for at in range(m):
        here, there = covariance[at, at], covariance[at + m, at + m]
        covariance[at, at], covariance[at + m, at + m] = here or there, there or here
    return covariance


def _rows(speeds: Collection[str], covariance: Floats) -> Floats:
    """Constraints (k, 18): each number of these speeds is the same on both sides."""
    m = len(_NAMES)
    rows = []
    for at, name in enumerate(_NAMES):
        if any(name in SPEEDS[speed] for speed in speeds) and covariance[at, at] > 0:
            row = np.zeros(2 * m)
            row[at], row[at + m] = 1.0, -1.0
            rows.append(row)
    return np.array(rows).reshape(-1, 2 * m)


def _differ(mean: Floats, covariance: Floats, speeds: list[str]) -> bool:
    """Whether chance makes two fits differ so much in these in fewer than one in 370 cases (3 sigma).

    Source: Wilson and Hilferty, PNAS 17 (1931), for the chi-squared tail.
    """
    k = len(_rows(speeds, covariance))
    cubed = (_distance(mean, covariance, speeds) / k) ** (1 / 3)
    return bool((cubed - (1 - 2 / (9 * k))) / math.sqrt(2 / (9 * k)) > _ONE_SIDED)


def _distance(mean: Floats, covariance: Floats, speeds: list[str]) -> float:
    """How far apart the sides are in these speeds, squared sigmas."""
    rows = _rows(speeds, covariance)
    if not len(rows):
        return 0.0
    apart = rows @ mean
    return float(apart @ np.linalg.pinv(rows @ covariance @ rows.T) @ apart)


def _constrained(mean: Floats, covariance: Floats, rows: Floats) -> tuple[Floats, Floats]:
    if not len(rows):
        return mean, covariance
    gain = covariance @ rows.T @ np.linalg.pinv(rows @ covariance @ rows.T)
    return mean - gain @ rows @ mean, covariance - gain @ rows @ covariance
