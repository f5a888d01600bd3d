"""Where a change shows: which mechanisms of the requests' times have to change for the quantile to move as it did.

Mechanisms: the workload (template, server, lengths), each source that prompt tokens come from, each layer's time given
both. The quantile with any of them as in B and the rest as in A is estimated twice, from A's requests and from B's
(swap.py); the shares are Shapley's over the mean of both. What dependence between layers and thin strata leave over is
the residual. Model-free and cheap, but blind to one thing: where one device serves all, a lost hit makes everybody
wait, and that shows in the layers of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from analysis.attribution.change import refusal, split
from analysis.attribution.model import Refused, Resampling, Side, Split
from analysis.attribution.shapley import exact as all_subsets
from analysis.attribution.shapley import screened
from analysis.attribution.shows.caveats import caveats
from analysis.attribution.shows.learned import Common, learn
from analysis.attribution.shows.swap import Coalition, Swap
from analysis.quantiles import Floats
from cachemodel.layers import TokenSource

WORKLOAD, HITS = "workload", "hits"


def shows(
    a: Side, b: Side, q: float | None, resampling: Resampling, *, exact: bool = False
) -> Split | Refused:
    """The change of the q-quantile (None: the mean) split over the mechanisms, ms. exact: by all subsets of them,
    without screening. Raises ValueError where these are too many."""
    reason = refusal(a, b)
    if reason:
        return Refused("shows", reason)
    common, of_a, of_b = learn(a, b, resampling)
    mechanisms = _mechanisms(common, a, b)
    mixture = _Mixture(mechanisms, Swap(common, of_a, of_b, q), Swap(common, of_b, of_a, q))
    m = len(mechanisms)
    shares, kept = (all_subsets(mixture.play, m), range(m)) if exact else screened(mixture.play, m)
    return split(
        a, b, q, resampling,
        kind="shows",
        names=tuple(mechanism.name for mechanism in mechanisms),
        shares=shares,
        provenance="derived",
        method=_method([mechanisms[i].name for i in kept], m),
        notes=caveats(a, b, common, of_a, of_b),
    )  # fmt: skip


def _method(kept: list[str], m: int) -> str:
    words = "mechanisms swapped between the sides, their shares by Shapley"
    if len(kept) == m:
        return f"{words} over all subsets"
    return (
        f"{words} over all subsets of {', '.join(kept)}, the others one by one"
        if kept
        else f"{words}, one by one"
    )


@dataclass(frozen=True)
class _Mechanism:
    """A name, and what it swaps: the workload, or a source or a layer by index."""

    name: str
    workload: bool = False
    source: int | None = None
    layer: int | None = None


def _mechanisms(common: Common, a: Side, b: Side) -> list[_Mechanism]:
    found = [_Mechanism(WORKLOAD, workload=True)]
    for i, name in enumerate(a.sources):
        if i != common.sources.home and any(np.nan_to_num(side.tokens[i]).any() for side in (a, b)):
            said = HITS if name == TokenSource.COMPUTED else name
            found.append(_Mechanism(f"{said} tokens" if said in common.layers else said, source=i))
    return found + [_Mechanism(name, layer=i) for i, name in enumerate(common.layers)]


class _Mixture:
    """The quantile with some mechanisms as in B, the rest as in A."""

    def __init__(self, mechanisms: list[_Mechanism], from_a: Swap, from_b: Swap) -> None:
        self.mechanisms, self.from_a, self.from_b = mechanisms, from_a, from_b
        self.full = (1 << len(mechanisms)) - 1
        self.known: dict[int, Floats] = {}

    def play(self, masks: Sequence[int]) -> Floats:
        """(k, 1 + r) ms: with the mechanisms in each of k masks as in B."""
        new = [mask for mask in dict.fromkeys(masks) if mask not in self.known]
        with ThreadPoolExecutor(2) as pool:
            rest = [self.full ^ mask for mask in new]
            halves = pool.map(self._one_side, (self.from_a, self.from_b), (new, rest))
            for mask, x, y in zip(new, *halves, strict=True):
                self.known[mask] = (x + y) / 2
        return np.stack([self.known[mask] for mask in masks])

    def _one_side(self, swap: Swap, masks: list[int]) -> list[Floats]:
        """In an order in which what the layers are given rarely changes."""
        coalitions = [self._coalition(mask) for mask in masks]
        order = sorted(
            range(len(masks)), key=lambda i: (coalitions[i].workload, sorted(coalitions[i].sources))
        )
        values = {i: swap(coalitions[i]) for i in order}
        return [values[i] for i in range(len(masks))]

    def _coalition(self, mask: int) -> Coalition:
        chosen = [mechanism for i, mechanism in enumerate(self.mechanisms) if mask >> i & 1]
        return Coalition(
            workload=any(mechanism.workload for mechanism in chosen),
            sources=frozenset(m.source for m in chosen if m.source is not None),
            layers=frozenset(m.layer for m in chosen if m.layer is not None),
        )
