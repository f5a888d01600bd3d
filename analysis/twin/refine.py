"""A law made exact by the twin itself: changed until its replay has the means that really were.

The method of simulated moments: Gauss-Newton, its slopes seen by replays with one number changed. A weak prior keeps
where they are those that the data say nothing of.

Source: McFadden, Econometrica 57 (1989), simulated moments and their covariance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass

import numpy as np

from analysis.quantiles import Floats
from analysis.twin.model import Law, Limits, Replay, Workload
from analysis.twin.moments import moments
from analysis.twin.simulate import THREADS, replay_all

_ROUNDS = 10
_GLANCE = 2
_PRIOR = (0.5, 3.0)  # sd of a number about the first law's, as a part of it: the least, and the most,
_PRIOR_OF_ALL = 0.1  # where this is what it changes some mean by
_NUDGES = (0.1, 0.6)  # of a number, to see what it changes: the least, and the most,
_SEEN = 0.04  # where this is what it changes some mean by; replays being rough, less is not seen
_SPREAD = 1.8  # how much more fits to like sides vary than their moments tell: measured (test_laws.py)
_LEAST = 0.3  # of a number is left in a round
_SHORTER = (1.0, 0.6, 0.3, 0.1)  # parts of a step, tried together
_ENOUGH = 2e-3  # of the loss: less is no progress


@dataclass(frozen=True)
class Refined:
    """covariance: (9, 9) as in Fit."""

    law: Law
    covariance: Floats


def refine(work: Workload, real: Replay, first: Law, limits: Limits, threads: int = THREADS) -> Refined:
    """The law near `first` whose replay of `work` has the means of `real`, and how sure its numbers are."""
    search = _Search(work, real, first, limits, threads)
    for _ in range(_ROUNDS):
        if not search.improve():
            break
    return search.result()


def misfit(work: Workload, real: Replay, first: Law, limits: Limits, threads: int = THREADS) -> float:
    """The loss after a round or two: how far limits are from what really was."""
    search = _Search(work, real, first, limits, threads)
    for _ in range(_GLANCE):
        search.improve()
    return search.loss()


class _Search:
    """theta: the law's numbers that are not 0, as multiples of the first law's (p,): of these a pass's time, and so
    nearly every mean, is a linear function. missed: what the replay of theta misses, each request's part of each mean
    (n, k). sd: of the prior, about 1 (p,): half a number, or more where it is of little weight in all means."""

    def __init__(self, work: Workload, real: Replay, first: Law, limits: Limits, threads: int) -> None:
        self._work, self._limits, self._threads = work, limits, threads
        self._start = np.array(astuple(first))
        self._free = np.flatnonzero(self._start > 0)
        self._goal = moments(work, real)
        self._target = self._goal.of(real)
        self._theta = np.ones(len(self._free))
        self._missed = self._target - self._see([self._theta], self._goal.of)[0]
        self._nudge = np.full(len(self._free), _NUDGES[1])
        weighs = np.abs(self._slope() / np.maximum(self._goal.scale, 1e-9)[:, None]).max(axis=0, initial=1e-9)
        self._sd = np.clip(_PRIOR_OF_ALL / weighs, *_PRIOR)
        self._nudge = np.clip(_SEEN / weighs, *_NUDGES)

    def improve(self) -> bool:
        """One round; whether it was of use."""
        weight, slope = 1 / self._noise().diagonal(), self._slope()
        gain = slope.T @ (weight * self._missed.mean(axis=0)) - (self._theta - 1) / self._sd**2
        step = self._inverse(slope, weight) @ gain
        tried = [np.maximum(self._theta + part * step, _LEAST * self._theta) for part in _SHORTER]
        seen = self._see(tried, self._goal.of)
        missed = [self._target - sent for sent in seen]
        losses = [self._penalised(*pair, weight) for pair in zip(tried, missed, strict=True)]
        best, before = int(np.argmin(losses)), self._penalised(self._theta, self._missed, weight)
        if losses[best] >= before:
            return False
        self._theta, self._missed = tried[best], missed[best]
        return before - losses[best] > _ENOUGH * before

    def result(self) -> Refined:
        noise = self._noise()
        weight, slope = 1 / noise.diagonal(), self._slope()
        inverse = self._inverse(slope, weight)
        taken = inverse @ (slope.T * weight)
        # of the data, through what they move; and of the prior, where they move nothing
        absolute = _SPREAD * taken @ noise @ taken.T + inverse @ (inverse / self._sd[:, None] ** 2)
        covariance = np.zeros((len(self._start), len(self._start)))
        covariance[np.ix_(self._free, self._free)] = absolute / np.outer(self._theta, self._theta)
        return Refined(self._law(self._theta), covariance)

    def loss(self) -> float:
        """Squares of what is missed, in the variances of the real means."""
        weight = 1 / self._goal.noise(self._target).diagonal()
        return float(weight @ self._missed.mean(axis=0) ** 2)

    def _law(self, theta: Floats) -> Law:
        values = self._start.copy()
        values[self._free] *= theta
        return Law(*values.tolist())

    def _see(self, thetas: list[Floats], of: Callable[[Replay], Floats]) -> list[Floats]:
        return replay_all([(self._work, self._law(t), self._limits) for t in thetas], of, self._threads)

    def _slope(self) -> Floats:
        """(k, p): how the means move with each number."""
        nudges = np.diag(self._nudge * self._theta)
        thetas = [self._theta + nudge for nudge in (*nudges, *-nudges)]
        means = np.array(self._see(thetas, lambda sent: self._goal.of(sent).mean(axis=0)))
        up, down = np.split(means, 2)
        return np.asarray((up - down).T / (2 * nudges.diagonal()))

    def _noise(self) -> Floats:
        return self._goal.noise(self._missed)

    def _penalised(self, theta: Floats, missed: Floats, weight: Floats) -> float:
        kept = ((theta - 1) / self._sd) ** 2
        return float(weight @ missed.mean(axis=0) ** 2 + kept.sum())

    def _inverse(self, slope: Floats, weight: Floats) -> Floats:
        information = slope.T @ (slope * weight[:, None]) + np.diag(1 / self._sd**2)
        return np.asarray(np.linalg.inv(information))
