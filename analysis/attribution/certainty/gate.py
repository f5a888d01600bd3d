"""What may be said of a split: the interval of each share, and whether its name may be blamed.

A name is blamed when its share passes a gate that, by chance, any of the names passes in 1 % of comparisons (max-t:
the largest of all shares in sigmas, over resamples centred at the estimate), and its own input changed by more than 3
sigma. On history where nothing was deployed the gate is tried out; where it turns out too low there, it is raised.

Sources: Romano and Wolf, Econometrica 73 (2005), for the max-t gate; Efron and Tibshirani (1993) for studentising.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.attribution.certainty.student import TWO_SIDED_95, ratio, sigmas, student
from analysis.attribution.model import Placebo, Refused, Resampling, Share, Split, Verdict, View
from analysis.bootstrap import FEWEST_BEYOND, supports
from analysis.quantiles import Floats

FAMILY_WISE = 0.01
LOWEST_GATE = 2.575829
"""Sigmas of 1 % for a single name."""
OWN_SIGMAS = 3.0
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
    split: Split | Refused, own: Mapping[str, Own], resampling: Resampling, placebo: Placebo | None = None
) -> View:
    """The split with intervals of 95 % and verdicts. own: by name, what its input did (inputs.own_changes)."""
    if isinstance(split, Refused):
        return _refused(split)
    found = spread(split, resampling)
    notes = list(split.notes)
    if isinstance(found, str):
        notes.append(f"no intervals and no verdicts: {found}")
        shares = [
            Share(name, value, None, None, *own.get(name, ("", None)), Verdict.UNDECIDED)
            for name, value in zip(split.names, split.values.tolist(), strict=True)
        ]
        return _view(split, shares, notes, None, None)
    gate = max(found.critical, placebo.critical if placebo else 0.0)
    if split.kind in _BLAME:
        notes.append(_gate_words(gate, len(split.names), found.critical, placebo))
    reach = student(TWO_SIDED_95, resampling.degrees) * found.sigma
    shares = [
        Share(
            name,
            value,
            value - half,
            value + half,
            *own.get(name, ("", None)),
            _verdict(score, gate, own.get(name, ("", None))[1], split.kind in _BLAME),
        )
        for name, value, half, score in zip(
            split.names, split.values.tolist(), reach.tolist(), found.scores.tolist(), strict=True
        )
    ]
    times = student(TWO_SIDED_95, resampling.degrees)
    return _view(split, shares, notes, times * found.change, times * found.residual)


def spread(split: Split, resampling: Resampling) -> Spread | str:
    """The sigmas of a split, or why there are none to be had."""
    if reason := _too_few(split, resampling):
        return reason
    replicates = split.replicates[np.isfinite(split.replicates).all(axis=1)]
    if len(replicates) < _FEWEST_ROUNDS:
        return f"{len(replicates)} of {len(split.replicates)} resamples could be split, {_FEWEST_ROUNDS} are needed"
    centred = replicates - replicates.mean(axis=0)
    raw = centred.std(axis=0, ddof=1)
    sigma = resampling.widen * raw
    largest = np.abs(ratio(centred, np.broadcast_to(raw, centred.shape))).max(axis=1, initial=0.0)
    critical = float(np.quantile(largest[np.isfinite(largest)], 1 - FAMILY_WISE))
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


def _verdict(score: float, gate: float, own_sigmas: float | None, may_blame: bool) -> Verdict:
    if score <= TWO_SIDED_95:
        return Verdict.NOISE
    passed = score > gate and own_sigmas is not None and own_sigmas > OWN_SIGMAS
    return Verdict.NAMED if passed and may_blame else Verdict.UNDECIDED


def _gate_words(gate: float, names: int, by_chance: float, placebo: Placebo | None) -> str:
    words = f"a name is blamed from {gate:.1f} sigma on"
    if placebo and placebo.critical > by_chance:
        return f"{words}, which {placebo.pairs} pairs of your own windows without a deploy ask for"
    of = f"any of {names} names passes" if names > 1 else "it passes"
    return f"{words}: by chance {of} in {100 * FAMILY_WISE:g} % of comparisons"


def _sigma(replicates: Floats) -> float:
    known = replicates[np.isfinite(replicates)]
    return float(known.std(ddof=1)) if len(known) > 1 else 0.0


def _view(
    split: Split, shares: list[Share], notes: list[str], change: float | None, rest: float | None
) -> View:
    """change, rest: half the widths of the intervals of the change and of the residual, ms."""
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
        notes=notes,
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
