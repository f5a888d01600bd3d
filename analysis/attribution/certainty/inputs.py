"""Did a name's own input change? For a layer its mean time, for a token source its share of the prompt tokens, for the
workload its arrivals and lengths.

A share of a change can land on a name that did nothing: the requests at the quantile are other requests, or the device
is busier. Only what changed itself may be blamed for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from analysis.attribution.certainty.gate import Own
from analysis.attribution.certainty.ratios import Part, compared, sigmas_of
from analysis.attribution.change import blocks
from analysis.attribution.layers import half_told
from analysis.attribution.model import Resampling, Side
from analysis.numbers import ms
from analysis.quantiles import Floats
from cachemodel.layers import TokenSource

WORKLOAD, HITS, REST = "workload", "hits", ("other", "unattributed")
_SERVED = {TokenSource.DEVICE, TokenSource.HOST, TokenSource.REMOTE, TokenSource.CACHED}


def own_changes(a: Side, b: Side, resampling: Resampling) -> dict[str, Own]:
    """By name, how its input changed from A to B, in words and in sigmas of the same resamples.

    Names: the layers both sides tell of, the rest, their token sources, `hits` (all that some tier served) and
    `workload`. What only a fit knows (speeds, capacity) is added by whoever has it. Nothing where a side is empty or a
    name is known on one side only; no sigmas where there are no intervals.
    """
    if not a.n or not b.n:
        return {}
    found = {name: _changed(f"mean {name}", ms, pair, resampling) for name, pair in _times(a, b).items()}
    for source, pair in _shares(a, b).items():
        name = (
            f"{source} tokens" if source in found else source
        )  # as a mechanism is called beside a layer of its name
        found[name] = _changed(name, lambda share: f"{100 * share:.1f} %", pair, resampling)
    found[WORKLOAD] = _workload(a, b, resampling)
    return {name: own for name, own in found.items() if own[0]}


@dataclass(frozen=True, slots=True)
class _Pair:
    """A ratio of sums on both sides: numerators and denominators per request (n,)."""

    a: Part
    b: Part


def _times(a: Side, b: Side) -> dict[str, _Pair]:
    """Mean times of the layers both know, and of what these leave; what one side tells of fewer requests is left."""
    missing = half_told(a, b) if a.layers == b.layers else {}
    both = [name for name in a.layers if name in b.layers and name not in missing]
    pairs = {name: _Pair(_mean(a.time(name)), _mean(b.time(name))) for name in both}
    rest = _Pair(*(_mean(_left(side, missing)) for side in (a, b)))
    return pairs | {name: rest for name in REST if name not in pairs}


def _left(side: Side, missing: Collection[str]) -> Floats:
    """(n,) ms of the totals beside the layers, those of `missing` in it."""
    told = [at for at, name in enumerate(side.layers) if name not in missing]
    left: Floats = side.totals - np.nansum(side.times[told], axis=0)
    return left


def _shares(a: Side, b: Side) -> dict[str, _Pair]:
    """Shares of prompt tokens, of the requests whose tokens are known."""
    pairs = {
        name: _Pair(*(_share(side, {name}) for side in (a, b))) for name in a.sources if name in b.sources
    }
    tiers = set(a.sources) & _SERVED
    return pairs | (
        {HITS: _Pair(_share(a, tiers), _share(b, tiers))} if tiers == set(b.sources) & _SERVED else {}
    )


def _mean(values: Floats) -> Part:
    known = np.isfinite(values)
    return np.where(known, values, 0.0), known.astype(np.float64)


def _share(side: Side, names: set[str]) -> Part:
    rows = [at for at, name in enumerate(side.sources) if name in names]
    tokens = side.tokens[rows].sum(axis=0)
    known = np.isfinite(tokens) & np.isfinite(side.prompt)
    return np.where(known, tokens, 0.0), np.where(known, side.prompt, 0.0)


def _workload(a: Side, b: Side, resampling: Resampling) -> Own:
    """Of arrivals, prompt and completion lengths the one that changed most."""
    lengths = [
        _changed(
            f"mean {what}",
            lambda tokens: f"{tokens:,.0f} tokens",
            _Pair(_mean(of_a), _mean(of_b)),
            resampling,
        )
        for what, of_a, of_b in (
            ("prompt", a.prompt, b.prompt),
            ("completion", a.completion, b.completion),
        )
    ]
    told = [own for own in (_arrivals(a, b, resampling), *lengths) if own[0]]
    return max(told, key=lambda own: -1.0 if own[1] is None else own[1], default=("", None))


def _arrivals(a: Side, b: Side, resampling: Resampling) -> Own:
    """Requests a second, of the windows asked for; thinned samples count for all they stand for."""
    if not (a.end > a.begin and b.end > b.begin):
        return "", None
    every = [side.sampled / (side.end - side.begin) for side in (a, b)]
    values = np.array([side.n * each for side, each in zip((a, b), every, strict=True)])
    drawn = [of.resampled(None)[:, 0] * each for of, each in zip(blocks(resampling), every, strict=True)]
    words = f"arrivals {values[0]:.3g}/s -> {values[1]:.3g}/s"
    return words, sigmas_of(values[1] - values[0], drawn[1] - drawn[0], resampling)


def _changed(what: str, unit: Callable[[float], str], pair: _Pair, resampling: Resampling) -> Own:
    found = compared((pair.a, pair.b), blocks(resampling), resampling)
    if found.a is None or found.b is None:
        return "", None
    return f"{what} {unit(found.a)} -> {unit(found.b)}", found.sigmas
