"""What is learned of two sides before anything is swapped: their common strata, and the laws and ranks of each."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from analysis.attribution.binned import Blocks
from analysis.attribution.change import blocks
from analysis.attribution.layers import layers, negative, passed
from analysis.attribution.model import Ints, Resampling, Side
from analysis.attribution.shows.laws import Law, Lengths, Score, law, lengths, merged, score
from analysis.attribution.shows.strata import Groups, Sources, Told, groups, told
from analysis.attribution.shows.transport import Lots, Ranks, lots, ranked
from analysis.quantiles import Floats

MOST_FITTED = 2**17  # requests of a side that laws are fitted to


@dataclass(frozen=True)
class Common:
    """What both sides share. layers: names, the rest last where there is any. signed: layers whose times can be
    negative; in the others, 0 is a layer that was not passed."""

    groups: Groups
    sources: Sources
    lengths: Lengths
    missed: Score
    layers: tuple[str, ...]
    signed: tuple[bool, ...]
    scores: tuple[Score, ...]


@dataclass(frozen=True)
class Layer:
    """One layer of one side. times: ms (n,), 0 where it was not passed; law: of those that passed; ranks: by how far
    they are off it, those that did not pass lowest; off: that, in the order of the ranks, -inf for these."""

    times: Floats
    law: Law
    ranks: Ranks
    off: Floats
    signed: bool

    def at(self, stratum: Ints, rank: Floats, terms: Floats, group: Ints) -> Floats:
        """The time, ms (n,), of a request of that stratum at that rank."""
        off = self.off[self.ranks.place(stratum, rank)]
        time = self.law.at(off, terms, group)
        if not self.signed:
            return np.maximum(time, 0.0, out=time)
        time[np.isneginf(off)] = 0.0
        return time


@dataclass(frozen=True)
class Learned:
    """One side. prompt, completion, missed: ranks of these within their strata; terms: see strata.Sources (d, n)."""

    told: Told
    blocks: Blocks
    lots: Lots
    terms: Floats
    prompt: Ranks
    completion: Ranks
    missed: Ranks
    layers: tuple[Layer, ...]

    @property
    def n(self) -> int:
        return len(self.told.group)


def learn(a: Side, b: Side, resampling: Resampling) -> tuple[Common, Learned, Learned]:
    """Both sides, which have the same layers and sources and at least one request each."""
    grouped, sources = groups(a, b), Sources.of(a.sources)
    told_a, told_b = told(a, b, grouped.a), told(b, a, grouped.b)
    terms_a, terms_b = sources.terms(told_a), sources.terms(told_b)
    names, times_a, times_b = layers(a, b)
    drawn_a, drawn_b = lots(a), lots(b)
    with ThreadPoolExecutor(2) as pool:
        some_a = _Some(sources, told_a, terms_a, drawn_a)
        some_b = _Some(sources, told_b, terms_b, drawn_b)
        signed = [negative(x, y) for x, y in zip(times_a, times_b, strict=True)]
        gates = [sources.gate(a.sources, name) for name in names]
        scores = pool.map(partial(_score, some_a, some_b, grouped.count), times_a, times_b, gates)
        common = Common(
            groups=grouped,
            sources=sources,
            lengths=_lengths(some_a, some_b, grouped.count),
            missed=_missed(some_a, some_b, grouped.count),
            layers=names,
            signed=tuple(signed),
            scores=tuple(scores),
        )
        of_a, of_b = blocks(resampling)
        learned_a = pool.submit(_side, common, some_a, told_a, terms_a, times_a, of_a, drawn_a)
        learned_b = pool.submit(_side, common, some_b, told_b, terms_b, times_b, of_b, drawn_b)
        return common, learned_a.result(), learned_b.result()


class _Some:
    """Requests of one side, at most MOST_FITTED, from which laws and strata are learned."""

    def __init__(self, sources: Sources, told: Told, terms: Floats, drawn: Lots) -> None:
        self.rows = np.sort(drawn.order[:MOST_FITTED])
        self.told, self.terms = told.subset(self.rows), terms[:, self.rows]
        self.group, self.key = self.told.group, _key(sources, self.told)

    def law(self, score: Score, times: Floats, signed: bool) -> Law:
        """Of a layer, by the requests that passed it."""
        here = passed(times[self.rows], signed)
        told = self.terms[:, here], times[self.rows][here], self.group[here]
        return law(told, len(score.law.line.levels), score.law)


def _off(law: Law, times: Floats, signed: bool, terms: Floats, group: Ints) -> Floats:
    return np.where(passed(times, signed), law.off(times, terms, group), -np.inf)


def _key(sources: Sources, told: Told) -> Floats:
    """What requests are ranked by for where their tokens came from: a loaded token is nearer to a hit than to a
    miss."""
    return np.asarray(sources.missed(told) + 0.1 * told.shares[list(sources.loaded)].sum(axis=0))


def _score(a: _Some, b: _Some, groups: int, times_a: Floats, times_b: Floats, gate: int | None) -> Score:
    """Of a layer. Its strata stay apart: what they are off by makes up for the errors of the law, which resamples do
    not see."""
    (x, of_a), (y, of_b) = ((np.nan_to_num(times[of.rows]), of) for of, times in ((a, times_a), (b, times_b)))
    return score((of_a.terms, x, of_a.group), (of_b.terms, y, of_b.group), groups, gate)


def _missed(a: _Some, b: _Some, groups: int) -> Score:
    """By prompt and completion."""
    known = [(of.terms[:2], of.key, of.group) for of in (a, b)]
    found = score(known[0], known[1], groups)
    values = [(of.key, found.fine(of.terms[:2], of.group)) for of in (a, b)]
    return replace(found, number=merged(values[0], values[1], len(found.number)))


def _lengths(a: _Some, b: _Some, groups: int) -> Lengths:
    """By group and prompt, for the completion."""
    found = lengths((a.group, a.told.prompt), (b.group, b.told.prompt), groups)
    values = [(of.told.completion, found.fine(of.group, of.told.prompt)) for of in (a, b)]
    return replace(found, number=merged(values[0], values[1], len(found.number), by_value=True))


def _side(
    common: Common, some: _Some, told: Told, terms: Floats, times: list[Floats], blocks: Blocks, drawn: Lots
) -> Learned:
    group, lengths, missed = told.group, common.lengths, common.missed

    def layer(i: int, times: Floats, score: Score, signed: bool) -> Layer:
        law = some.law(score, times, signed)
        off = _off(law, times, signed, terms, group)
        ranks = ranked(off, score(terms, group), score.count, drawn, 4 + i)
        return Layer(np.where(passed(times, signed), times, 0.0), law, ranks, off[ranks.order], signed)

    return Learned(
        told=told,
        blocks=blocks,
        lots=drawn,
        terms=terms,
        prompt=ranked(told.prompt, group, common.groups.count, drawn, 1),
        completion=ranked(told.completion, lengths(group, told.prompt), lengths.count, drawn, 2),
        missed=ranked(_key(common.sources, told), missed(terms[:2], group), missed.count, drawn, 3),
        layers=tuple(map(layer, range(len(times)), times, common.scores, common.signed)),
    )
