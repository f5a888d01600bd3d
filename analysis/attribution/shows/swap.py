"""One side's requests, with some mechanisms as they are on the other side.

The chain is workload -> where the prompt's tokens came from, given it -> each layer's time, given both. Each step keeps
a request's rank among its likes and takes the value of that rank from the other side; the next steps see the new value.
Dependence between layers that tokens do not explain stays that of the side whose requests they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from analysis.attribution.binned import Resampled, resampled
from analysis.attribution.model import Ints
from analysis.attribution.shows.learned import Common, Learned
from analysis.attribution.shows.strata import Told, breaking, parts
from analysis.attribution.shows.transport import KNOTS, Ranks, knot_weights
from analysis.quantiles import Floats

MOST_WATCHED = 2**15  # requests on which the effect of moved ranks is measured


@dataclass(frozen=True)
class Coalition:
    """What is taken from the other side: the workload; sources, by index; layers, by index."""

    workload: bool
    sources: frozenset[int]
    layers: frozenset[int]


@dataclass(frozen=True)
class _Given:
    """What the layers are given: requests as they are `told`, their terms (d, n), how often each counts (n,) (None: all
    alike), and whether any of it is not as it was."""

    told: Told
    terms: Floats
    weights: Floats | None
    changed: bool


@dataclass(frozen=True)
class _Link:
    """A value that some requests took from `target` at their rank among their own: what the total would be with the
    value at the knot below and above that rank, less what it is, ms."""

    own: Ranks
    side: Learned
    target: Ranks
    stratum: Ints
    below: Floats
    above: Floats


class Swap:
    """Requests of `own` (n,) with mechanisms of `other`: estimates of the q-quantile (None: the mean)."""

    def __init__(self, common: Common, own: Learned, other: Learned, q: float | None) -> None:
        self.common, self.own, self.other, self.q = common, own, other, q
        self._key: tuple[bool, frozenset[int]] = (False, frozenset())
        self._as_was = self._now = _Given(own.told, own.terms, None, False)
        self._times: dict[tuple[int, bool], Floats] = {}
        self._shifts: dict[int, Floats] = {}

    def __call__(self, coalition: Coalition) -> Floats:
        """The estimate and its replicates, (1 + r,). Fastest where coalitions with one workload and the same sources
        follow each other."""
        given = self._given(coalition)
        total = np.zeros(self.own.n)
        for i in range(len(self.own.layers)):
            total += self._time(given, i, i in coalition.layers)
        estimate = resampled(total, self.q, self.own.blocks, given.weights)
        replicates = estimate.replicates
        if len(replicates) and (given.changed or coalition.layers):
            replicates = replicates + self._by_ranks(coalition, given, total, estimate)
            if given.weights is not None:
                replicates += self._by_weights(given.weights, total, estimate)
        return np.concatenate([[estimate.value], replicates])

    # The chain

    def _given(self, coalition: Coalition) -> _Given:
        key = (coalition.workload, coalition.sources)
        if key != self._key:
            self._key, self._times = key, {}
            self._now = self._as_was
            if coalition.workload or coalition.sources:
                workload = self._workload() if coalition.workload else self.own.told
                rank = self.own.missed.rank
                told = self._sourced(coalition, workload, workload.shares, rank, rank)
                weights = self._weights if coalition.workload else None
                self._now = _Given(told, self.common.sources.terms(told), weights, True)
        return self._now

    @cached_property
    def _weights(self) -> Floats | None:
        """How much more often each group comes on the other side, for each request."""
        if self.common.groups.count == 1:
            return None
        own, other = self._group_sizes
        return np.asarray(np.divide(other, own, out=np.ones_like(own), where=own > 0)[self.own.told.group])

    @property
    def _group_sizes(self) -> tuple[Floats, Floats]:
        own, other = (
            np.bincount(s.told.group, minlength=self.common.groups.count) / s.n
            for s in (self.own, self.other)
        )
        return own, other

    def _workload(self) -> Told:
        told, other = self.own.told, self.other
        prompt = other.told.prompt[other.prompt.row(told.group, self.own.prompt.rank)]
        stratum = self.common.lengths(told.group, prompt)
        completion = other.told.completion[other.completion.row(stratum, self.own.completion.rank)]
        return replace(told, prompt=prompt, completion=completion)

    def _sourced(
        self, coalition: Coalition, workload: Told, shares: Floats, own: Floats, theirs: Floats
    ) -> Told:
        """Requests with that workload whose tokens came from where they do for requests of their rank (by what was
        computed): `own` and `theirs`, rank in the distribution of either side. shares: as they were."""
        home = self.common.sources.home
        if home is None or not (coalition.workload or coalition.sources):
            return workload
        stratum = self._missed_stratum(workload)
        if coalition.workload:
            shares = self.own.told.shares[:, self.own.missed.row(stratum, own)]
        if coalition.sources:
            donor = self.other.told.shares[:, self.other.missed.row(stratum, theirs)]
            shares = _mixed(shares, donor, coalition.sources, home)
        return replace(workload, shares=shares)

    def _missed_stratum(self, workload: Told) -> Ints:
        return self.common.missed(np.stack([workload.prompt, workload.completion]), workload.group)

    def _time(self, given: _Given, i: int, swapped: bool) -> Floats:
        own = self.own.layers[i]
        if not swapped and not given.changed:
            return own.times
        if (i, swapped) not in self._times:
            stratum = self.common.scores[i](given.terms, given.told.group)
            self._times[i, swapped] = self._at(
                i, swapped, stratum, own.ranks.rank, given.terms, given.told.group
            )
        return self._times[i, swapped]

    def _at(self, i: int, swapped: bool, stratum: Ints, rank: Floats, terms: Floats, group: Ints) -> Floats:
        """The time of a layer. A side that has nobody in a stratum says nothing of it: there it is as on the other."""
        here, there = (self.other, self.own) if swapped else (self.own, self.other)
        time = here.layers[i].at(stratum, rank, terms, group)
        lacks = np.flatnonzero(here.layers[i].ranks.size[stratum] == 0)
        if len(lacks):
            time[lacks] = there.layers[i].at(stratum[lacks], rank[lacks], terms[:, lacks], group[lacks])
        return time

    # What a resample changes besides how often a request is in it, to first order

    @cached_property
    def _watched(self) -> Ints:
        return np.sort(self.own.lots.order[:MOST_WATCHED])

    def _by_ranks(self, coalition: Coalition, given: _Given, total: Floats, estimate: Resampled) -> Floats:
        """It moves the ranks within each side, and with them what a request becomes: (r,) ms."""
        rows = self._watched
        weight = np.ones(len(rows)) if given.weights is None else given.weights[rows]
        weight = weight / weight.sum()
        moved = np.zeros(len(self.own.blocks.counts))
        for link in self._links(coalition, given, rows):
            effect = weight * estimate.moved(total[rows] + link.below, link.above - link.below)
            rank, knot = link.own.rank[rows], link.own.knot[rows]
            for sign, ranks, side, stratum in (
                (1, link.own, self.own, link.own.stratum[rows]),
                (-1, link.target, link.side, link.stratum),
            ):
                at_knots = knot_weights(len(ranks.size), stratum, knot, rank, effect)
                moved += sign * (self._shift(ranks, side) @ at_knots)
        return moved

    def _shift(self, ranks: Ranks, side: Learned) -> Floats:
        if id(ranks) not in self._shifts:
            self._shifts[id(ranks)] = ranks.shift(side.blocks)
        return self._shifts[id(ranks)]

    def _links(self, coalition: Coalition, given: _Given, rows: Ints) -> Iterator[_Link]:
        terms, told = given.terms[:, rows], given.told.subset(rows)
        for i, own in enumerate(self.own.layers):
            swapped = i in coalition.layers
            if swapped or given.changed:
                side = self.other if swapped else self.own
                stratum, was = self.common.scores[i](terms, told.group), self._time(given, i, swapped)[rows]
                ends = _around(own.ranks.knot[rows])
                below, above = (self._at(i, swapped, stratum, end, terms, told.group) - was for end in ends)
                yield _Link(own.ranks, side, side.layers[i].ranks, stratum, below, above)
        now = self._risen(coalition, terms)
        for own_ranks, side, target, stratum, at in self._chain_links(coalition, told, rows):
            ends = _around(own_ranks.knot[rows])
            below, above = (self._risen(coalition, self.common.sources.terms(at(end))) - now for end in ends)
            yield _Link(own_ranks, side, target, stratum, below, above)

    def _risen(self, coalition: Coalition, terms: Floats) -> Floats:
        """What the layers' laws say of terms (d, n), but for their levels: (n,) ms."""
        sides = (self.other if i in coalition.layers else self.own for i in range(len(self.own.layers)))
        risen = np.zeros(terms.shape[1])
        for i, side in enumerate(sides):
            risen += side.layers[i].law.line.rise(terms)
        return risen

    def _chain_links(
        self, coalition: Coalition, told: Told, rows: Ints
    ) -> Iterator[tuple[Ranks, Learned, Ranks, Ints, Callable[[Floats], Told]]]:
        """What comes before the layers: ranks, whose value they took, from which ranks and strata, and the requests
        with the values of other ranks."""
        own, other = self.own, self.other
        if coalition.workload:
            prompts, completions = other.told.prompt, other.told.completion
            yield (
                own.prompt,
                other,
                other.prompt,
                told.group,
                lambda u: replace(told, prompt=prompts[other.prompt.row(told.group, u)]),
            )
            lengths = self.common.lengths(told.group, told.prompt)
            yield (
                own.completion,
                other,
                other.completion,
                lengths,
                lambda u: replace(told, completion=completions[other.completion.row(lengths, u)]),
            )
        if self.common.sources.home is not None:
            stratum, rank = self._missed_stratum(told), own.missed.rank[rows]
            was = own.told.shares[:, rows]
            if coalition.workload:
                yield (
                    own.missed,
                    own,
                    own.missed,
                    stratum,
                    lambda u: self._sourced(coalition, told, was, u, rank),
                )
            if coalition.sources:
                yield (
                    own.missed,
                    other,
                    other.missed,
                    stratum,
                    lambda u: self._sourced(coalition, told, was, rank, u),
                )

    def _by_weights(self, weights: Floats, total: Floats, estimate: Resampled) -> Floats:
        """It changes how often each group comes: (r,) ms."""
        count = self.common.groups.count
        log_ratio = np.zeros((len(self.own.blocks.counts), count))
        for side, sign, size in zip((self.own, self.other), (-1, 1), self._group_sizes, strict=True):
            rows = side.blocks.resampled(None, side.told.group, count)
            share = rows / rows.sum(axis=1, keepdims=True)
            log_ratio += sign * np.log(np.maximum(share, 1e-12) / np.maximum(size, 1e-12))
        effect = estimate.moved(np.full_like(total, estimate.value), total - estimate.value)
        weighted = weights / weights.sum()
        by_group = np.bincount(self.own.told.group, weighted * (effect - weighted @ effect), minlength=count)
        return np.asarray(log_ratio @ by_group)


def _around(knot: NDArray[np.int8]) -> tuple[Floats, Floats]:
    """Ranks of knots and of the next ones."""
    return KNOTS[knot], KNOTS[knot + 1]


def _mixed(shares: Floats, theirs: Floats, chosen: frozenset[int], home: int) -> Floats:
    """Shares (s, n) of which some sources are theirs: each takes its part (strata.parts) of what those before it left
    now, so that more lost to one leaves less for the next to lose. A part of little says little of more: where a side
    had less than half as much left, the rest is as on the other."""
    mixed, left = np.empty_like(shares), np.ones(shares.shape[1])
    sides = parts(shares, home), parts(theirs, home)
    for i in breaking(len(shares), home):
        (part, had), (beyond, other) = (
            (part[i], had[i]) for part, had in (sides[::-1] if i in chosen else sides)
        )
        known = np.minimum(2 * had, left)
        mixed[i] = part * known + np.where(other > 0, beyond, part) * (left - known)
        left = left - mixed[i]
    mixed[home] = left
    return mixed
