"""How often does the report blame somebody when nothing happened? The same split over pairs of the user's own windows.

Pairs are disjoint, so that their number is a number of independent trials as far as the load forgets from one to the
next, and the interval of the rate is binomial.

Sources: Abadie, Diamond and Hainmueller (2010) for placebo tests; Vovk, Gammerman and Shafer (2005) for the quantile of
a few trials; Clopper and Pearson, Biometrika 26 (1934), for the interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from analysis.attribution.certainty.gate import FAMILY_WISE, LOWEST_GATE, judge, least, level_of, spread
from analysis.attribution.certainty.inputs import own_changes
from analysis.attribution.certainty.resampling import resampling
from analysis.attribution.model import Placebo, Refused, Resampling, Side, Split, Verdict
from analysis.numbers import duration
from analysis.quantiles import beta_cdf

Splitting = Callable[[Side, Side, Resampling], Split | Refused]
Spans = Sequence[tuple[float, float]]
"""Stretches of time in which nothing was deployed: begin and end in seconds, disjoint."""

MOST_PAIRS = 100
MOST_WORK, A_PAIR = 500_000, 3_000
_BISECTIONS = 50


def placebo(
    history: Side,
    length_s: float,
    split: Splitting,
    rng: np.random.Generator,
    *,
    spans: Spans | None = None,
    distance_s: float = 0.0,
    pairs: int = MOST_PAIRS,
    rounds: int = 200,
    work: int = MOST_WORK,
) -> Placebo:
    """Split the change between windows of `history` in which nothing was deployed.

    length_s: of a window; distance_s: from the begin of one to the begin of the other, where history allows, at least a
    length. spans: None for all of the history. At most `pairs` pairs are tried, drawn at random, and after the first no
    more than `work` allows: requests, of which every pair is A_PAIR more. Not the clock decides, so that the same
    question has the same answer.
    """
    spans = [(history.begin, history.end)] if spans is None else spans
    places = _places(spans, length_s, distance_s) or _places(spans, length_s, length_s)
    if not length_s > 0 or not places:
        return _none(length_s, _too_short(spans, length_s))
    blamed, left = 0, work
    largest: list[float] = []
    for at in rng.permutation(len(places))[:pairs]:
        a, b = (_window(history, begin, length_s) for begin in places[at])
        left -= a.n + b.n + A_PAIR
        if largest and left < 0:
            break
        tried = _try(a, b, split, rng, rounds)
        if tried is not None:
            blamed += tried[0]
            largest.append(tried[1])
    if not largest:
        return _none(length_s, "no pair of windows of your history has enough requests for an interval")
    low, high = binomial(blamed, len(largest))
    return Placebo(
        pairs=len(largest),
        blamed=blamed,
        rate=blamed / len(largest),
        low=low,
        high=high,
        critical=max(LOWEST_GATE, _critical(largest)),
        window_s=length_s,
        why=_few(len(largest), spans, length_s),
    )


def binomial(hits: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The Clopper-Pearson interval of a rate of which `hits` were seen in `trials`."""
    outside = (1 - level) / 2
    low = _beta_quantile(outside, hits, trials - hits + 1) if hits else 0.0
    high = _beta_quantile(1 - outside, hits + 1, trials - hits) if hits < trials else 1.0
    return low, high


def _try(
    a: Side, b: Side, split: Splitting, rng: np.random.Generator, rounds: int
) -> tuple[bool, float] | None:
    """Whether a name is blamed for the change from one window to the other, and the largest share in sigmas of those
    that are large enough to be: what is slight says nothing about the gate, however clear."""
    if not a.n or not b.n:
        return None
    drawn = resampling(a, b, rng, rounds, paired=False)
    found = None if drawn.refused else split(a, b, drawn)
    if found is None or isinstance(found, Refused):
        return None
    spreads = spread(found, drawn)
    if isinstance(spreads, str):
        return None
    height = level_of(found.q, a, b)
    view = judge(found, own_changes(a, b, drawn), drawn, level=height)
    matter = np.abs(found.values) >= least(found, height)
    blamed = any(share.verdict == Verdict.NAMED for share in view.shares)
    return blamed, float(spreads.scores[matter].max(initial=0.0))


def _places(spans: Spans, length: float, distance: float) -> list[tuple[float, float]]:
    """Begins of disjoint pairs of windows, each pair within one span: tiles of one length, each taken once."""
    apart = max(1, round(distance / length)) if length > 0 else 1
    found = []
    for begin, end in spans:
        tiles = math.floor((end - begin) / length + 1e-9) if length > 0 else 0
        # Groups of 2 * apart tiles: the first half each paired with its fellow in the second.
        firsts = [at for at in range(tiles - apart) if at % (2 * apart) < apart]
        found += [(begin + at * length, begin + (at + apart) * length) for at in firsts]
    return found


def _window(history: Side, begin: float, length: float) -> Side:
    rows = (history.arrival >= begin) & (history.arrival < begin + length)
    return replace(history.subset(rows), begin=begin, end=begin + length)


def _critical(largest: Sequence[float]) -> float:
    """The score that a further trial exceeds in 1 % of cases; of fewer than 99 trials the largest seen."""
    rank = min(len(largest), math.ceil((1 - FAMILY_WISE) * (len(largest) + 1)))
    return sorted(largest)[rank - 1]


def _beta_quantile(p: float, a: float, b: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if beta_cdf(np.array([middle]), a, b)[0] < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _few(pairs: int, spans: Spans, length: float) -> str:
    needed = math.ceil(1 / FAMILY_WISE) - 1
    if pairs >= needed:
        return ""
    return (
        f"{pairs} pairs of windows of {duration(length)} bound the rate loosely; "
        f"{needed} take {duration(2 * needed * length)} without a deploy, there are {duration(_total(spans))}"
    )


def _too_short(spans: Spans, length: float) -> str:
    return (
        f"a pair of windows of {duration(length)} takes {duration(2 * length)} without a deploy; "
        f"the longest stretch is {duration(max((end - begin for begin, end in spans), default=0.0))}"
    )


def _none(length: float, why: str) -> Placebo:
    return Placebo(0, 0, None, None, None, LOWEST_GATE, length, why)


def _total(spans: Spans) -> float:
    return sum(end - begin for begin, end in spans)
