"""What may be said of a split: the interval of each share, and whether its name may be blamed.

A name is blamed when its share passes a gate that, by chance, any of the names passes in 1 % of comparisons (max-t:
the largest of all shares in sigmas, over resamples centred at the estimate), and its own input changed by more than 3
sigma. On history where nothing was deployed the gate is tried out; where it turns out too low there, it is raised.

With enough requests any difference passes, and no two windows are the same: what is past the gate must also be large
enough to matter (`least`), else it is slight.

Sources: Romano and Wolf, Econometrica 73 (2005), for the max-t gate; Efron and Tibshirani (1993) for studentising.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.attribution.certainty.student import TWO_SIDED_95, ratio, sigmas, student
from analysis.attribution.model import Placebo, Refused, Resampling, Share, Side, Split, Verdict, View
from analysis.bootstrap import FEWEST_BEYOND, supports
from analysis.numbers import digits, quantile_name
from analysis.quantiles import Floats, hd_quantile

FAMILY_WISE = 0.01
LOWEST_GATE = 2.575829
"""Sigmas of 1 % for a single name."""
OWN_SIGMAS = 3.0
LEAST_OF_CHANGE, LEAST_OF_LEVEL = 0.05, 0.01
"""A smaller share is slight. Of what moved: a replay counts as right within a tenth of each figure (analysis.twin), so
half of that says more about the model than about the servers. Of the quantile itself: two samples of the same 20,000
requests a side can differ by as much where nothing changed (docs/limits.md)."""
_ROUNDING = 1e-9  # of the change: what resamples of constants differ by
_FEWEST_ROUNDS = 50  # whose spread is known within a tenth
_BLAME = ("shows", "caused")  # a composition and the linear rule describe, they blame nobody

Own = tuple[str, float | None]
"""How much a name's own input changed, in words, and in sigmas of that change; None where it is not known."""


@dataclass(frozen=True, slots=True)
class Spread:
    """sigma: of each share (m,), ms; scores: shares in sigmas, (m,); change, residual: their sigmas, ms; critical: the
    score that any name passes by chance in 1 % of comparisons."""

    sigma: Floats
    scores: Floats
    change: float
    residual: float
    critical: float


def judge(
    split: Split | Refused,
    own: Mapping[str, Own],
    resampling: Resampling,
    placebo: Placebo | None = None,
    level: float = 0.0,
) -> View:
    """The split with intervals of 95 % and verdicts. own: by name, what its input did (inputs.own_changes); level: of
    the quantile whose change it is, ms (`level_of`)."""
    if isinstance(split, Refused):
        return _refused(split)
    found = spread(split, resampling)
    if isinstance(found, str):
        nothing = [(None, None, Verdict.UNDECIDED, None)] * len(split.names)
        return _view(split, _shares(split, own, nothing), [f"no intervals and no verdicts: {found}"])
    times = student(TWO_SIDED_95, resampling.degrees)
    reach, scores = (times * found.sigma).tolist(), found.scores.tolist()
    gate = max(found.critical, placebo.critical if placebo else 0.0)
    smallest, blames = least(split, level), split.kind in _BLAME
    told = []
    for name, value, half, score in zip(split.names, split.values.tolist(), reach, scores, strict=True):
        passed = blames and score > gate and (_own(own, name)[1] or 0.0) > OWN_SIGMAS
        told.append((value - half, value + half, _verdict(score, passed, abs(value) >= smallest), score))
    whole = times * found.change, times * found.residual
    if not blames:
        return _view(split, _shares(split, own, told), [], whole)
    words = _gate_words(gate, smallest, split, found.critical, placebo)
    return _view(split, _shares(split, own, told), [words], whole, smallest, gate)


def level_of(q: float | None, *sides: Side) -> float:
    """The q-quantile (None: the mean) of sides that have requests, ms; the largest of them."""
    return max(float(side.totals.mean()) if q is None else hd_quantile(side.totals, q) for side in sides)


def least(split: Split, level: float) -> float:
    """The smallest share that is large enough to be named, ms. Where shares cancel, what moved is the largest of them,
    not what is left of it."""
    moved = max(abs(split.change), float(np.abs(split.values).max(initial=0.0)))
    return max(LEAST_OF_CHANGE * moved, LEAST_OF_LEVEL * level)


def spread(split: Split, resampling: Resampling) -> Spread | str:
    """The sigmas of a split, or why there are none to be had."""
    if reason := _too_few(split, resampling):
        return reason
    replicates = split.replicates[np.isfinite(split.replicates).all(axis=1)]
    if len(replicates) < _FEWEST_ROUNDS:
        return f"{len(replicates)} of {len(split.replicates)} resamples could be split, {_FEWEST_ROUNDS} are needed"
    centred = replicates - replicates.mean(axis=0)
    raw = centred.std(axis=0, ddof=1)
    rounding = _ROUNDING * max(abs(split.change), float(np.abs(split.values).max(initial=0.0)))
    raw, centred = np.where(raw <= rounding, 0.0, raw), np.where(raw <= rounding, 0.0, centred)
    sigma = resampling.widen * raw
    largest = np.abs(ratio(centred, np.broadcast_to(raw, centred.shape))).max(axis=1, initial=0.0)
    critical = float(np.quantile(largest, 1 - FAMILY_WISE))
    return Spread(
        sigma=sigma,
        scores=sigmas(ratio(split.values, sigma), resampling.degrees),
        change=resampling.widen * _sigma(split.change_replicates),
        residual=resampling.widen * _sigma(split.residual_replicates),
        critical=max(critical, LOWEST_GATE),
    )


def _too_few(split: Split, resampling: Resampling) -> str:
    if resampling.refused:
        return resampling.refused
    n = min(len(resampling.block_a), len(resampling.block_b))
    if split.q is not None and not supports(n, split.q):
        needed = int(np.ceil(round((FEWEST_BEYOND + 1e-6) / min(split.q, 1 - split.q), 6)))
        return f"{n:,} requests are too few for P{100 * split.q:g}; about {needed:,} a side are needed"
    return "" if len(split.replicates) else "the method gives none"


def _own(own: Mapping[str, Own], name: str) -> Own:
    return own.get(name, ("", None))


def _verdict(score: float, passed: bool, matters: bool) -> Verdict:
    if score <= TWO_SIDED_95:
        return Verdict.NOISE
    if not passed:
        return Verdict.UNDECIDED
    return Verdict.NAMED if matters else Verdict.SLIGHT


def _gate_words(gate: float, smallest: float, split: Split, by_chance: float, placebo: Placebo | None) -> str:
    of = f"any of {len(split.names)} names passes" if len(split.names) > 1 else "it passes"
    why = f"by chance {of} in {100 * FAMILY_WISE:g} % of comparisons"
    if placebo and placebo.critical > by_chance:
        why = f"{placebo.pairs} pairs of your own windows without a deploy ask for that"
    of_level = f"{100 * LEAST_OF_LEVEL:g} % of {quantile_name(split.q)}"
    return (
        f"a name is blamed from {gate:.1f} sigma on ({why}) and from {digits(smallest)} ms on"
        f" ({100 * LEAST_OF_CHANGE:g} % of what moved and {of_level}; past the gate and smaller is slight)"
    )


def _sigma(replicates: Floats) -> float:
    known = replicates[np.isfinite(replicates)]
    return float(known.std(ddof=1)) if len(known) > 1 else 0.0


_Judged = tuple[float | None, float | None, Verdict, float | None]
"""The interval of a share, what may be said of it, and its sigmas."""


def _shares(split: Split, own: Mapping[str, Own], told: Sequence[_Judged]) -> list[Share]:
    return [
        Share(name, value, low, high, *_own(own, name), verdict, score)
        for name, value, (low, high, verdict, score) in zip(
            split.names, split.values.tolist(), told, strict=True
        )
    ]


def _view(
    split: Split,
    shares: list[Share],
    notes: list[str],
    halves: tuple[float, float] | None = None,
    smallest: float | None = None,
    gate: float | None = None,
) -> View:
    """halves: half the widths of the intervals of the change and of the residual, ms."""
    change, rest = halves or (None, None)
    return View(
        kind=split.kind,
        shares=shares,
        change=split.change,
        change_low=None if change is None else split.change - change,
        change_high=None if change is None else split.change + change,
        residual=split.residual,
        residual_low=None if rest is None else split.residual - rest,
        residual_high=None if rest is None else split.residual + rest,
        provenance=split.provenance,
        method=split.method,
        notes=[*split.notes, *notes],
        least=smallest,
        gate=gate,
    )


def _refused(split: Refused) -> View:
    nothing = float("nan")
    return View(
        kind=split.kind,
        shares=[],
        change=nothing,
        change_low=None,
        change_high=None,
        residual=nothing,
        residual_low=None,
        residual_high=None,
        provenance="derived",
        method="",
        refused=split.reason,
    )
