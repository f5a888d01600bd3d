"""What is learned of two sides before anything is swapped: their common strata, and the laws and ranks of each."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from analysis.attribution.binned import Blocks
from analysis.attribution.change import blocks
from analysis.attribution.layers import layers, negative, passed
from analysis.attribution.model import Ints, Resampling, Side
from analysis.attribution.strata import Groups, Line, Sources, Told, edges, fit, groups, told
from analysis.attribution.transport import Lots, Ranks, lots, ranked
from analysis.quantiles import Floats

_LENGTHS = 5
MOST_FITTED = 2**17  # requests of a side that laws are fitted to


@dataclass(frozen=True)
class Score:
    """Strata of requests by what a law expects of them. spread: slopes of how far they are off it; gate: a term;
    requests without it are in a stratum of their own, the first."""

    line: Line
    edges: Floats
    spread: Floats
    gate: int | None = None

    @property
    def count(self) -> int:
        return len(self.edges) + 1 + (self.gate is not None)

    def __call__(self, terms: Floats, group: Ints) -> Ints:
        stratum = np.searchsorted(self.edges, self.line(terms, group), side="right")
        return stratum if self.gate is None else np.where(terms[self.gate] > 0, stratum + 1, 0)


@dataclass(frozen=True)
class Lengths:
    """Strata by group and length of the prompt; edges: of each group."""

    edges: tuple[Floats, ...]

    @property
    def count(self) -> int:
        return sum(len(e) + 1 for e in self.edges)

    def __call__(self, group: Ints, prompt: Floats) -> Ints:
        stratum = np.zeros(len(group), dtype=np.int64)
        first = 0
        for g, edge in enumerate(self.edges):
            here = np.flatnonzero(group == g)
            stratum[here] = first + np.searchsorted(edge, prompt[here], side="right")
            first += len(edge) + 1
        return stratum


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
class Spread:
    """How far times are off their law, ms; never less than a fifth of `mean`, where it must be guessed."""

    line: Line
    mean: float

    def __call__(self, terms: Floats, group: Ints) -> Floats:
        return np.maximum(self.line(terms, group), 0.2 * self.mean or 1.0)


@dataclass(frozen=True)
class Layer:
    """One layer of one side. times: ms (n,), 0 where it was not passed; line: the law of those that passed; spread: how
    far they are off it, since noise grows with the time; ranks: by how many spreads they are off, those that did not
    pass lowest; left: that, in the order of the ranks, -inf for these."""

    times: Floats
    line: Line
    spread: Spread
    ranks: Ranks
    left: Floats
    signed: bool

    def at(self, stratum: Ints, rank: Floats, terms: Floats, group: Ints) -> Floats:
        """The time, ms (n,), of a request of that stratum at that rank."""
        left = self.left[self.ranks.place(stratum, rank)]
        time = self.spread(terms, group)
        time *= left
        time += self.line(terms, group)
        if not self.signed:
            return np.maximum(time, 0.0, out=time)
        time[np.isneginf(left)] = 0.0
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
    grouped = groups(a, b)
    sources = Sources.of(a.sources)
    told_a, told_b = told(a, b, grouped.a), told(b, a, grouped.b)
    terms = sources.terms(told_a), sources.terms(told_b)
    names, times_a, times_b = layers(a, b)
    drawn = lots(a), lots(b)
    some = [np.sort(of.order[:MOST_FITTED]) for of in drawn]
    at = [grouped.a[some[0]], grouped.b[some[1]]]
    known = [of[:, rows] for of, rows in zip(terms, some, strict=True)]
    missed = [sources.missed(of.subset(rows)) for of, rows in zip((told_a, told_b), some, strict=True)]

    def score(terms: list[Floats], values: list[Floats], gate: int | None) -> Score:
        return _score(grouped.count, list(zip(terms, values, at, strict=True)), gate)

    common = Common(
        groups=grouped,
        sources=sources,
        lengths=_lengths(told_a, told_b, grouped.count),
        missed=score([of[:2] for of in known], missed, None),
        layers=names,
        signed=tuple(negative(x, y) for x, y in zip(times_a, times_b, strict=True)),
        scores=tuple(
            score(
                known, [np.nan_to_num(x[some[0]]), np.nan_to_num(y[some[1]])], sources.gate(a.sources, name)
            )
            for name, x, y in zip(names, times_a, times_b, strict=True)
        ),
    )
    of_a, of_b = blocks(resampling)
    with ThreadPoolExecutor(2) as pool:
        learned_a = pool.submit(_side, common, told_a, terms[0], times_a, of_a, drawn[0])
        learned_b = pool.submit(_side, common, told_b, terms[1], times_b, of_b, drawn[1])
        return common, learned_a.result(), learned_b.result()


def _score(count: int, sides: list[tuple[Floats, Floats, Ints]], gate: int | None) -> Score:
    """Strata of both sides, each told as terms (d, n), values and groups (n,), by what is expected of the values.
    Slopes are those within each side: between them, a change would lend its name to whatever else changed."""
    if gate is not None:
        inside = [np.flatnonzero(terms[gate] > 0) for terms, _, _ in sides]
        sides = [(x[:, rows], y[rows], g[rows]) for (x, y, g), rows in zip(sides, inside, strict=True)]
    (x_a, y_a, g_a), (x_b, y_b, g_b) = sides
    both = np.concatenate([g_a, g_b + count])
    x, y = np.concatenate([x_a, x_b], axis=1), np.concatenate([y_a, y_b])
    line = fit(x, y, both, 2 * count)
    spread = fit(x, np.abs(y - line(x, both)), both, 2 * count).slopes
    line = Line(line.slopes, line.levels.reshape(2, -1).mean(axis=0))
    alike = edges(line(x_a, g_a), line(x_b, g_b)) if len(y_a) and len(y_b) else np.empty(0)
    return Score(line, alike, spread, gate)


def _lengths(a: Told, b: Told, count: int) -> Lengths:
    picked: Iterable[tuple[Floats, Floats]] = (
        (a.prompt[a.group == g], b.prompt[b.group == g]) for g in range(count)
    )
    return Lengths(tuple(edges(x, y, _LENGTHS) if len(x) and len(y) else np.empty(0) for x, y in picked))


def _side(
    common: Common, told: Told, terms: Floats, times: list[Floats], blocks: Blocks, drawn: Lots
) -> Learned:
    group, missed = told.group, common.sources.missed(told)
    loaded = told.shares[list(common.sources.loaded)].sum(axis=0)
    return Learned(
        told=told,
        blocks=blocks,
        lots=drawn,
        terms=terms,
        prompt=ranked(told.prompt, group, common.groups.count, drawn, 1),
        completion=ranked(
            told.completion, common.lengths(group, told.prompt), common.lengths.count, drawn, 2
        ),
        # a loaded token is nearer to a hit than to a miss
        missed=ranked(missed + 0.1 * loaded, common.missed(terms[:2], group), common.missed.count, drawn, 3),
        layers=tuple(
            _layer(t, score, signed, terms, group, drawn, 4 + i)
            for i, (t, score, signed) in enumerate(zip(times, common.scores, common.signed, strict=True))
        ),
    )


def _layer(
    times: Floats, score: Score, signed: bool, terms: Floats, group: Ints, drawn: Lots, salt: int
) -> Layer:
    here = passed(times, signed)
    some = drawn.order[:MOST_FITTED]
    some = np.sort(some[here[some]])
    x, y, g, groups = terms[:, some], times[some], group[some], len(score.line.levels)
    line = fit(x, y, g, groups, score.line.slopes)
    off = np.abs(y - line(x, g))
    spread = Spread(fit(x, off, g, groups, score.spread), float(off.mean()) if len(off) else 0.0)
    left = np.where(here, (times - line(terms, group)) / spread(terms, group), -np.inf)
    ranks = ranked(left, score(terms, group), score.count, drawn, salt)
    return Layer(np.where(here, times, 0.0), line, spread, ranks, left[ranks.order], signed)
