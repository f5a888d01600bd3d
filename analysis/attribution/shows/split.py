"""Where a change shows: which mechanisms of the requests' times have to change for the quantile to move as it did.

Mechanisms: the workload (template, server, lengths), each source that prompt tokens come from, each layer's time given
both. The quantile with any of them as in B and the rest as in A is estimated twice, from A's requests and from B's
(swap.py); the shares are Shapley's over the mean of both. A mechanism that the sides cannot be told apart by
(alike.py), and whose share alone is within its noise, is not swapped: its share is 0, with an interval as wide as what
it would have been and its noise. What such mechanisms, dependence between layers and thin strata leave over is the
residual. Model-free and cheap, but blind to one thing: where one device serves all, a lost hit makes everybody wait,
and that shows in the layers of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from analysis.attribution.certainty.gate import LOWEST_GATE
from analysis.attribution.certainty.student import ratio, sigmas
from analysis.attribution.change import refusal, split
from analysis.attribution.model import Refused, Resampling, Side, Split
from analysis.attribution.shapley import exact as all_subsets
from analysis.attribution.shapley import screened
from analysis.attribution.shows.caveats import caveats, left_over
from analysis.attribution.shows.learned import Common, learn
from analysis.attribution.shows.misfit import misfits, taken_in
from analysis.attribution.shows.swap import Coalition, Swap
from analysis.quantiles import Floats
from cachemodel.layers import TokenSource

WORKLOAD, HITS = "workload", "hits"


def shows(
    a: Side, b: Side, q: float | None, resampling: Resampling, *, exact: bool = False
) -> Split | Refused:
    """The change of the q-quantile (None: the mean) split over the mechanisms, ms. exact: by all subsets of
    those that differ, without screening. Raises ValueError where these are too many."""
    reason = refusal(a, b)
    if reason:
        return Refused("shows", reason)
    common, of_a, of_b = learn(a, b, resampling)
    mechanisms = _mechanisms(common, a, b)
    names = tuple(mechanism.name for mechanism in mechanisms)
    swaps = Swap(common, of_a, of_b, q), Swap(common, of_b, of_a, q)
    found = {i: _still(one, *swaps, resampling) for i, one in enumerate(mechanisms) if not one.apart}
    still = {i: alone for i, alone in found.items() if alone is not None}
    players = [i for i in range(len(mechanisms)) if i not in still]
    play, m = _Mixture([mechanisms[i] for i in players], *swaps).play, len(players)
    played, kept = (all_subsets(play, m), range(m)) if exact else screened(play, m)
    shares = np.zeros((len(played), len(mechanisms)))
    shares[:, players] = played
    result = split(
        a, b, q, resampling,
        kind="shows",
        names=names,
        shares=shares,
        provenance="derived",
        method=_method([names[players[i]] for i in kept], m, [names[i] for i in still]),
        notes=caveats(a, b, common, of_a, of_b),
    )  # fmt: skip
    for i, alone in still.items():
        result.replicates[:, i] = alone
    result = replace(result, notes=(*result.notes, *left_over(result, a, b, resampling)))
    return _with_misfits(result, mechanisms, misfits(common, of_a, of_b, q))


def _with_misfits(found: Split, mechanisms: list[_Mechanism], of_layers: Floats) -> Split:
    """With what the laws of the layers get wrong in the intervals: a share that is no larger is no news."""
    errors = np.array([0.0 if one.layer is None else of_layers[one.layer] for one in mechanisms])
    given = np.array([float(one.layer is None) for one in mechanisms])
    return replace(found, replicates=taken_in(found.replicates, found.values, found.change, errors, given))


def _still(mechanism: _Mechanism, from_a: Swap, from_b: Swap, resampling: Resampling) -> Floats | None:
    """Replicates (r,) of a share of 0, of a mechanism that does not differ; None where its share says that it does.

    They vary by the noise of the share that it has alone, and by that share: so the interval about 0 holds what the
    interval about the share would.
    """
    values = _Mixture([mechanism], from_a, from_b).play((0, 1))
    share = values[1] - values[0]
    noise = share[1:] - share[1:].mean()
    sigma = float(noise.std())
    of_noise = sigmas(ratio(share[:1], np.array([resampling.widen * sigma])), resampling.degrees)
    if of_noise[0] > LOWEST_GATE:  # from where on it could be blamed
        return None
    return np.asarray(noise * math.hypot(1.0, share[0] / sigma) if sigma else noise)


def _method(kept: list[str], players: int, still: list[str]) -> str:
    words = "mechanisms swapped between the sides, their shares by Shapley"
    if len(kept) == players:
        words += " over all subsets"
    elif kept:
        words += f" over all subsets of {', '.join(kept)}, the others one by one"
    else:
        words += ", one by one"
    if not still:
        return words
    return (
        f"{words}; {', '.join(still)}: no more different than in two samples of the same traffic, so taken as unchanged"
        " (what such samples differ by is in the residual)"
    )


@dataclass(frozen=True)
class _Mechanism:
    """A name, whether the sides can be told apart by it, and what it swaps: the workload, or a source or a layer by
    index."""

    name: str
    apart: bool
    workload: bool = False
    source: int | None = None
    layer: int | None = None


def _mechanisms(common: Common, a: Side, b: Side) -> list[_Mechanism]:
    apart = common.apart
    found = [_Mechanism(WORKLOAD, apart.workload, workload=True)]
    for i, name in enumerate(a.sources):
        if i != common.sources.home and any(np.nan_to_num(side.tokens[i]).any() for side in (a, b)):
            said = HITS if name == TokenSource.COMPUTED else name
            name = f"{said} tokens" if said in common.layers else said
            found.append(_Mechanism(name, apart.sources[i], source=i))
    return found + [_Mechanism(name, apart.layers[i], layer=i) for i, name in enumerate(common.layers)]


class _Mixture:
    """The quantile with some of the mechanisms as in B, the rest of them as in A, and those that are not among them as
    on the side whose requests they are."""

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
