"""Facts that the requests of both sides tell: means, shares, speeds, and what a load from a slower tier is made of."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.attribution.binned import Blocks
from analysis.attribution.certainty.ratios import Part, compared
from analysis.attribution.change import blocks
from analysis.attribution.model import Resampling, Side
from analysis.diagnosis.model import Fact
from analysis.quantiles import Floats
from analysis.twin.regression import robust
from cachemodel.causes import MissCause
from cachemodel.layers import Tier, TokenSource

_TIMES = ("ttft", "e2e", "queue")
SERVED = (TokenSource.DEVICE, TokenSource.HOST, TokenSource.REMOTE, TokenSource.CACHED)
_SLOWER = (Tier.HOST, Tier.REMOTE)
_CAUSES = (MissCause.EVICTED, MissCause.ELSEWHERE, MissCause.CHANGED)
_FEWEST_LOADS, _MOST_LOADS = 30, 50_000  # to learn from; of more, evenly some
_SAME_SIZE = 0.1  # deviation over mean of loads, below which waiting and transfer cannot be told apart


def of_requests(a: Side, b: Side, drawn: Resampling) -> Mapping[str, Fact]:
    """Ratios of sums over requests, with the sigmas of their change; and what there is of them a second."""
    tops, of = (_ratios(a), _ratios(b)), blocks(drawn)
    found = {
        name: _compared((tops[0][name], tops[1][name]), of, drawn) for name in tops[0] if name in tops[1]
    }
    seconds = [side.end - side.begin for side in (a, b)]
    if min(seconds) > 0:
        sums = {"rate": [float(side.n) for side in (a, b)]}
        sums["throughput"] = [float(np.nansum(side.completion)) for side in (a, b)]
        for name, values in sums.items():
            of_a, of_b = (v * side.sampled / s for v, side, s in zip(values, (a, b), seconds, strict=True))
            if of_a and of_b:
                found[name] = Fact(of_a, of_b, a.n, b.n)
    return {name: fact for name, fact in found.items() if fact.a is not None and fact.b is not None}


def loads(a: Side, b: Side) -> Mapping[str, Fact]:
    """What a load takes whatever its size, and by its size; nothing where there are few or all have one size."""
    laws = [_load_law(side) for side in (a, b)]
    if laws[0] is None or laws[1] is None:
        return {}
    (token_a, fixed_a, size_a, n_a), (token_b, fixed_b, size_b, n_b) = laws[0], laws[1]
    size = (size_a + size_b) / 2
    found = {
        "load_wait": Fact(fixed_a, fixed_b, n_a, n_b),
        "load_transfer": Fact(token_a * size, token_b * size, n_a, n_b),
    }
    waits, transfer = max(fixed_b - fixed_a, 0.0), max(token_b - token_a, 0.0) * size
    if waits + transfer > 0:
        found["load_wait_part"] = Fact(None, waits / (waits + transfer), n_a, n_b)
    return found


def share(side: Side, names: tuple[str, ...]) -> Part:
    """Tokens of these sources, and the prompts they are of (n,); 0 and 0 where they are not known."""
    rows = [at for at, name in enumerate(side.sources) if name in names]
    return _known(side.tokens[rows].sum(axis=0), side.prompt)


def _ratios(side: Side) -> dict[str, Part]:
    """Numerators and denominators (n,) by fact."""
    ones, steps = np.ones(side.n), np.maximum(side.completion - 1, 0)
    decode, e2e = side.time("decode"), side.time("e2e")
    served = [name for name in side.sources if name in SERVED]
    found = {name: _known(side.time(name), ones) for name in _TIMES}
    found["tpot"] = _known(decode, steps)
    found["decode_part"] = _known(decode, e2e)
    # a request holds its prompt and half its answer on average, and counts for as long as it decodes
    found["context"] = _known(decode * (side.prompt + side.completion / 2), decode)
    if served:
        found["hits"] = share(side, tuple(served))
        computed = side.prompt - side.tokens[[side.sources.index(name) for name in served]].sum(axis=0)
        found["prefill_per_token"] = _known(side.time("prefill"), computed)
    for cause in _CAUSES:
        if cause in side.sources:
            found[f"{cause}_share"] = share(side, (cause,))
    tokens, taken = _load(side)
    found["load_time"] = _known(np.where(tokens > 0, taken, 0.0), (tokens > 0).astype(np.float64))
    return found


def _known(top: Floats, bottom: Floats) -> Part:
    known = np.isfinite(top) & np.isfinite(bottom)
    return np.where(known, top, 0.0), np.where(known, bottom, 0.0)


def _compared(parts: tuple[Part, Part], of: tuple[Blocks, Blocks], drawn: Resampling) -> Fact:
    """A ratio of sums on both sides, and how clear its change is."""
    found = compared(parts, of, drawn)
    n_a, n_b = (int((bottom > 0).sum()) for _, bottom in parts)
    return Fact(found.a, found.b, n_a, n_b, found.sigmas)


def _load(side: Side) -> Part:
    """Tokens loaded from slower tiers and the time of it, ms (n,)."""
    tiers = [tier for tier in _SLOWER if tier in side.sources]
    tokens = sum((np.nan_to_num(side.tokens[side.sources.index(t)]) for t in tiers), np.zeros(side.n))
    taken = sum((np.nan_to_num(side.time(tier)) for tier in _SLOWER), np.zeros(side.n))
    return tokens, taken


def _load_law(side: Side) -> tuple[float, float, float, int] | None:
    """ms a token, ms a load, mean tokens and number of loads."""
    tokens, taken = _load(side)
    loaded = (tokens > 0) & (taken > 0)
    n = int(loaded.sum())
    rows = np.flatnonzero(loaded)[:: -(-n // _MOST_LOADS) or 1]
    sizes = tokens[rows]
    if n < _FEWEST_LOADS or sizes.std() < _SAME_SIZE * sizes.mean():
        return None
    token, fixed = robust(np.stack([sizes, np.ones(len(rows))], axis=1), taken[rows]).tolist()
    return token, fixed, float(sizes.mean()), n
