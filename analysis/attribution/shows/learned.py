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
from analysis.attribution.shows.alike import Sample, told_apart
from analysis.attribution.shows.laws import Law, Lengths, Score, gate, law, lengths, merged, score
from analysis.attribution.shows.strata import Groups, Sources, Told, fit, groups, parts, told
from analysis.attribution.shows.transport import Lots, Ranks, lots, ranked
from analysis.quantiles import Floats

MOST_FITTED = 2**16  # requests of a side that laws are fitted to
_STEP = 0.01  # of a prompt


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
    apart: Apart


@dataclass(frozen=True)
class Apart:
    """Which mechanisms the sides can be told apart by: the workload, each source, each layer's time."""

    workload: bool
    sources: tuple[bool, ...]
    layers: tuple[bool, ...]


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
    drawn_a, drawn_b, degrees = lots(a), lots(b), resampling.degrees
    of_a, of_b = blocks(resampling)
    with ThreadPoolExecutor(2) as pool:
        some_a = _Some(sources, told_a, terms_a, drawn_a, of_a)
        some_b = _Some(sources, told_b, terms_b, drawn_b, of_b)
        signed = [negative(x, y) for x, y in zip(times_a, times_b, strict=True)]
        scores = list(pool.map(partial(_score, some_a, some_b, grouped.count), times_a, times_b, signed))
        length, missed = _lengths(some_a, some_b, grouped.count), _missed(some_a, some_b, grouped.count)
        laws = list(pool.map(partial(_laws, some_a, some_b, degrees), times_a, times_b, signed, scores))
        common = Common(
            groups=grouped,
            sources=sources,
            lengths=length,
            missed=missed,
            layers=names,
            signed=tuple(signed),
            scores=tuple(scores),
            apart=Apart(
                workload=_workload_apart(some_a, some_b, degrees, grouped.count, length),
                sources=_sources_apart(some_a, some_b, degrees, sources, missed),
                layers=tuple(of.apart for of in laws),
            ),
        )
        laws_a, laws_b = [of.a for of in laws], [of.b for of in laws]
        learned_a = pool.submit(_side, common, some_a, told_a, terms_a, times_a, laws_a, of_a, drawn_a)
        learned_b = pool.submit(_side, common, some_b, told_b, terms_b, times_b, laws_b, of_b, drawn_b)
        return common, learned_a.result(), learned_b.result()


class _Some:
    """Requests of one side, at most MOST_FITTED, from which laws and strata are learned."""

    def __init__(self, sources: Sources, told: Told, terms: Floats, drawn: Lots, blocks: Blocks) -> None:
        self.rows = np.sort(drawn.order[:MOST_FITTED])
        self.blocks = blocks.subset(self.rows)
        self.told, self.terms = told.subset(self.rows), terms[:, self.rows]
        self.group, self.key = self.told.group, _key(sources, self.told)

    def law(self, score: Score, times: Floats, signed: bool) -> Law:
        """Of a layer, by the requests that passed it."""
        here = passed(times[self.rows], signed)
        told = self.terms[:, here], times[self.rows][here], self.group[here]
        return law(told, score.law)

    def off(self, law: Law, times: Floats, signed: bool, score: Score) -> Sample:
        """How far times are off a law, within the strata of the layer."""
        off = _off(law, times[self.rows], signed, self.terms, self.group)
        return Sample(off, score(self.terms, self.group), self.blocks)


def _off(law: Law, times: Floats, signed: bool, terms: Floats, group: Ints) -> Floats:
    return np.where(passed(times, signed), law.off(times, terms, group), -np.inf)


def _key(sources: Sources, told: Told) -> Floats:
    """What requests are ranked by for where their tokens came from: a loaded token is nearer to a hit than to a
    miss."""
    return np.asarray(sources.missed(told) + 0.1 * told.shares[list(sources.loaded)].sum(axis=0))


def _score(a: _Some, b: _Some, groups: int, times_a: Floats, times_b: Floats, signed: bool) -> Score:
    """Of a layer. Its strata stay apart: what they are off by makes up for the errors of the law, which resamples do
    not see."""
    known = [
        (of.terms, np.nan_to_num(times[of.rows]), of.group) for of, times in ((a, times_a), (b, times_b))
    ]
    ways = [passed(times[of.rows], signed) for of, times in ((a, times_a), (b, times_b))]
    return score(known[0], known[1], groups, gate(known[0][0], known[1][0], *ways))


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


@dataclass(frozen=True)
class _Laws:
    """Of a layer: whether the sides differ, and the law of each."""

    apart: bool
    a: Law
    b: Law


def _laws(
    a: _Some, b: _Some, degrees: float, times_a: Floats, times_b: Floats, signed: bool, score: Score
) -> _Laws:
    """One law where the sides do not differ: two would differ by their errors, which resamples do not see."""
    samples = a.off(score.law, times_a, signed, score), b.off(score.law, times_b, signed, score)
    if not told_apart([(*samples, score.count)], degrees):
        return _Laws(False, score.law, score.law)
    return _Laws(True, a.law(score, times_a, signed), b.law(score, times_b, signed))


def _workload_apart(a: _Some, b: _Some, degrees: float, groups: int, lengths: Lengths) -> bool:
    """By how many are in each group, by their prompts there, by their completions given both."""

    def samples(of: _Some) -> tuple[Sample, Sample, Sample]:
        told, one = of.told, np.zeros_like(of.group)
        return (
            Sample(told.group.astype(np.float64), one, of.blocks),
            Sample(told.prompt, told.group, of.blocks),
            Sample(told.completion, lengths(told.group, told.prompt), of.blocks),
        )

    return told_apart(list(zip(samples(a), samples(b), (1, groups, lengths.count), strict=True)), degrees)


def _sources_apart(a: _Some, b: _Some, degrees: float, sources: Sources, missed: Score) -> tuple[bool, ...]:
    """Each by its part of what the sources before it left."""
    if sources.home is None:
        return ()
    (parts_a, left_a), (parts_b, left_b) = (parts(of.told.shares, sources.home) for of in (a, b))

    def sample(of: _Some, part: Floats, left: Floats) -> Sample:
        rows = np.flatnonzero(left > 0)
        return Sample(part[rows], missed(of.terms[:2], of.group)[rows], of.blocks.subset(rows))

    return tuple(
        told_apart(
            [(sample(a, parts_a[i], left_a[i]), sample(b, parts_b[i], left_b[i]), missed.count)], degrees
        )
        for i in range(len(parts_a))
    )


def _side(
    common: Common,
    some: _Some,
    told: Told,
    terms: Floats,
    times: list[Floats],
    laws: list[Law],
    blocks: Blocks,
    drawn: Lots,
) -> Learned:
    group, lengths, missed = told.group, common.lengths, common.missed

    def layer(i: int, times: Floats, law: Law, score: Score, signed: bool) -> Layer:
        off = _off(law, times, signed, terms, group)
        ranks = ranked(off, score(terms, group), score.count, drawn, 4 + i)
        return Layer(np.where(passed(times, signed), times, 0.0), law, ranks, off[ranks.order], signed)

    line = missed.law.line
    if any(common.apart.sources):
        line = fit(some.terms[:2], some.key, some.group, line)
    # Off its line, too: what depends on the length has no rank among requests of other lengths. Nor has what is less
    # than a step: it is blocks and rounding, which go with the length.
    key = np.round((_key(common.sources, told) - line(terms[:2], group)) / _STEP)
    return Learned(
        told=told,
        blocks=blocks,
        lots=drawn,
        terms=terms,
        prompt=ranked(told.prompt, group, common.groups.count, drawn, 1),
        completion=ranked(told.completion, lengths(group, told.prompt), lengths.count, drawn, 2),
        missed=ranked(key, missed(terms[:2], group), missed.count, drawn, 3),
        layers=tuple(map(layer, range(len(times)), times, laws, common.scores, common.signed)),
    )
