"""What to know of a split by swapping: what one side alone has, what is not told, what goes together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.attribution.certainty.gate import LEAST_OF_LEVEL, OWN_SIGMAS, level_of
from analysis.attribution.certainty.student import sigmas
from analysis.attribution.layers import half_told
from analysis.attribution.model import Resampling, Side, Split
from analysis.attribution.shows.learned import Common, Learned
from analysis.composition import UNATTRIBUTED
from analysis.numbers import digits, quantile_name
from analysis.quantiles import Floats

_SHARE = 0.01  # of a side's requests, from which on a caveat is one
_CORRELATION = 0.1
_SIGMAS = 4.0
_MOST = 0.5  # of a change


def caveats(a: Side, b: Side, common: Common, of_a: Learned, of_b: Learned) -> tuple[str, ...]:
    """A sentence each."""
    return (
        *_alone(a, b, common),
        *_beyond(a, b, of_a, of_b),
        *_untold(a, b),
        *_half_told(a, b),
        *_layers_of_one(a, b),
        *_dependence(common, of_a, of_b),
    )


def left_over(found: Split, a: Side, b: Side, resampling: Resampling) -> tuple[str, ...]:
    """Why more than half of a change has no name: what is taken as unchanged, and what few requests have in common by
    chance, has none, and far out in the tail that can be more than what did change."""
    sigma = resampling.widen * float(found.change_replicates.std()) if len(found.change_replicates) else 0.0
    if resampling.refused or not sigma > 0 or abs(found.residual) <= _MOST * abs(found.change):
        return ()
    if abs(found.residual) < LEAST_OF_LEVEL * level_of(found.q, a, b):
        return ()
    what = (
        f"{digits(found.residual, '+')} ms are not explained, of a change of {digits(found.change, '+')} ms; two"
        f" samples of the same traffic differ by {digits(sigma)} ms (one sigma) at {quantile_name(found.q)}"
    )
    if found.q is not None:
        far = min(found.q, 1 - found.q)
        beyond = [f"{int(round(side.n * far, 6)):,} of {side.name}'s {side.n:,}" for side in (a, b)]
        what += f", beyond which {' and '.join(beyond)} requests lie"
    if sigmas(np.abs(found.residual) / sigma, resampling.degrees) <= OWN_SIGMAS:
        return (f"{what}: so it can be chance, of which more requests leave less",)
    return (f"{what}: so it is more than chance, such as layers that go together in another way",)


def _alone(a: Side, b: Side, common: Common) -> Iterator[str]:
    for share, side, other in zip(common.groups.alone, (a, b), (b, a), strict=True):
        if share >= _SHARE:
            yield (
                f"{share:.0%} of {side.name}'s {side.n:,} requests have a template or server that {other.name} has"
                " not: their times are compared with those of other requests of their length"
            )


def _beyond(a: Side, b: Side, of_a: Learned, of_b: Learned) -> Iterator[str]:
    """Open ends: what is learned of lengths is drawn on beyond the last one seen."""
    for side, here, there in ((a, of_a, of_b), (b, of_b, of_a)):
        other = b if side is a else a
        for name in ("prompt", "completion"):
            mine, theirs = getattr(here.told, name), getattr(there.told, name)
            share = float(((mine > theirs.max()) | (mine < theirs.min())).mean())
            if share >= _SHARE:
                yield (
                    f"{share:.0%} of {side.name}'s {side.n:,} requests have a {name} longer or shorter than any in"
                    f" {other.name}: their times there are extrapolated"
                )


def _untold(a: Side, b: Side) -> Iterator[str]:
    """Gaps. What neither side ever tells is none: there are no tokens where no model is."""
    for side in (a, b):
        asked = [("how long their prompt is", side.prompt), ("how long their completion is", side.completion)]
        if side.sources:
            asked.append(("where their prompt's tokens came from", side.tokens.sum(axis=0)))
        if not any(np.isfinite(known.prompt).any() for known in (a, b)):
            continue
        for what, values in asked:
            missing = float(np.isnan(values).mean())
            if missing >= _SHARE:
                yield f"{missing:.0%} of {side.name}'s {side.n:,} requests do not tell {what}: taken as the others'"


def _half_told(a: Side, b: Side) -> Iterator[str]:
    for name, (of_a, of_b) in half_told(a, b).items():
        yield (
            f"{name} is told by {of_a:.1%} of {a.name}'s requests and {of_b:.1%} of {b.name}'s: it is counted in"
            f" {UNATTRIBUTED} on both sides, where its time is when it is not told"
        )


def _layers_of_one(a: Side, b: Side) -> Iterator[str]:
    counted = half_told(a, b)
    for i, name in enumerate(a.layers):
        if name in counted:
            continue
        told = [bool(np.isfinite(side.times[i]).any()) for side in (a, b)]
        if told[0] != told[1]:
            lacks, has = (a, b) if told[1] else (b, a)
            yield (
                f"{lacks.name} does not tell {name} apart, {has.name} does: its time is in another layer or in"
                f" {UNATTRIBUTED} there, and the shares of these cannot be told from its own"
            )


def _dependence(common: Common, of_a: Learned, of_b: Learned) -> Iterator[str]:
    """Layers that go together more in one side than tokens explain: swapping one leaves this as it was."""
    if len(common.layers) < 2 or min(of_a.n, of_b.n) < 3:
        return
    before, after = (_correlations(of) for of in (of_a, of_b))
    different = np.triu(np.abs(after - before), 1)
    noise = _SIGMAS * np.sqrt(1 / of_a.n + 1 / of_b.n)
    i, j = np.unravel_index(int(different.argmax()), different.shape)
    if different[i, j] > max(_CORRELATION, noise):
        yield (
            f"{common.layers[i]} and {common.layers[j]} go together more or less than they did (rank correlation"
            f" {before[i, j]:.2f} -> {after[i, j]:.2f}): what that does to the quantile is in the residual"
        )


def _correlations(of: Learned) -> Floats:
    return np.corrcoef(np.stack([layer.ranks.rank for layer in of.layers]))
