"""Did the servers themselves change? Of the causes that only a twin knows, in words and in sigmas: speeds, capacity,
time outside the scheduler, and what was evicted or moved to a lower tier."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, fields, replace

import numpy as np

from analysis.attribution.binned import Blocks
from analysis.attribution.caused.causes import CAPACITY, OTHER, Half, Pair
from analysis.attribution.caused.sticks import OF_TIERS
from analysis.attribution.caused.twinned import Twinned
from analysis.attribution.caused.twins import Twins
from analysis.attribution.certainty.gate import Own
from analysis.attribution.certainty.ratios import Part, compared
from analysis.attribution.certainty.student import MOST_SIGMAS, ratio, sigmas
from analysis.attribution.model import Resampling
from analysis.attribution.tokens import CAUSES
from analysis.numbers import ms
from analysis.quantiles import Floats
from analysis.twin.model import Law
from cachemodel.causes import MissCause
from cachemodel.layers import Tier

_EVICTED = str(MissCause.EVICTED)
_LAW = tuple(field.name for field in fields(Law))


def server_inputs(both: Twins, resampling: Resampling) -> dict[str, Own]:
    """By cause; of several servers what changed most."""
    found: dict[str, Own] = {}
    for server in both.servers:
        for name, own in _of_one(server, both, resampling):
            if name not in found or (own[1] or 0.0) > (found[name][1] or 0.0):
                found[name] = own
    return found


def _of_one(server: Twinned, both: Twins, resampling: Resampling) -> Iterable[tuple[str, Own]]:
    pair, name = server.pair, f"{server.pair.a.side.servers[0]}: " if len(both.servers) > 1 else ""
    for cause, what, weights in _works(pair):
        words, changed = _speed(server, weights)
        yield cause, (f"{name}{what} {words}", changed)
    if told := _limits(pair):
        yield CAPACITY, (f"{name}{told}", MOST_SIGMAS)
    halves, blocks = (pair.a, pair.b), replace(both, servers=(server,)).blocks(resampling)
    ones = [np.ones(half.side.n) for half in halves]
    times = [half.workload.before + half.workload.after + half.beyond for half in halves]
    outside = list(zip(times, ones, strict=True))
    yield OTHER, _ratio(f"{name}time outside the scheduler", ms, outside, blocks, resampling)
    if not pair.another_room and _EVICTED in pair.a.side.sources:
        lost = [(_tokens(half, (_EVICTED, *OF_TIERS)), _sent_before(half)) for half in halves]
        yield (
            _EVICTED,
            _ratio(
                f"{name}of what was sent before, evicted or on a lower tier",
                _percent,
                lost,
                blocks,
                resampling,
            ),
        )


def _works(pair: Pair) -> Iterable[tuple[str, str, Law]]:
    """Of each speed what it does, and how much of each of the law's numbers goes into that on average."""
    halves = (pair.a, pair.b)
    prompt = _average([half.side.prompt.mean() for half in halves])
    answer = _average([half.side.completion.mean() for half in halves])
    busy = _average([_decoding(half) for half in halves])
    loaded = {
        tier: _average([_per_load(getattr(half.workload, tier)) for half in halves])
        for tier in (str(Tier.HOST), str(Tier.REMOTE))
    }
    nothing = dict.fromkeys(_LAW, 0.0)
    yield "prefill speed", "a prompt token", Law(**nothing | {"prefill": 1.0, "attention": prompt / 2000})
    context = busy * (prompt + answer / 2) / 1000
    one_pass = nothing | {"step": 1.0, "decode": busy, "context": context}
    yield "decode speed", f"a decode pass of {busy:.0f}", Law(**one_pass)
    for tier, tokens in loaded.items():
        if not tokens:
            continue
        load = nothing | {tier: tokens, f"{tier}_fixed": 1.0}
        yield "tier speed", f"a load of {tokens:,.0f} tokens from {tier}", Law(**load)


def _speed(server: Twinned, weights: Law) -> Own:
    """From A to B, by the laws that were fitted and how well each is known."""
    parts = [np.array(astuple(fit.law)) * np.array(astuple(weights)) for fit in server.fits]
    values = [float(part.sum()) for part in parts]
    if not all(values):
        return "not known on both sides", None
    spread = sum(
        float(part @ fit.covariance @ part) / value**2
        for part, fit, value in zip(parts, server.fits, values, strict=True)
    )
    changed = ratio(np.array(math.log(values[1] / values[0])), np.array(math.sqrt(spread)))
    return f"{_fine(values[0])} -> {_fine(values[1])}", float(sigmas(changed, math.inf))


def _limits(pair: Pair) -> str:
    words = {
        "kv_tokens": "room for {} tokens",
        "max_num_seqs": "{} requests at once",
        "max_num_batched_tokens": "{} tokens a pass",
    }
    changed = [
        (text, getattr(pair.a.limits, name), getattr(pair.b.limits, name)) for name, text in words.items()
    ]
    told = [f"{text.format(f'{a:,} -> {b:,}')}" for text, a, b in changed if a != b]
    return "; ".join(told) or ("room on lower tiers" if pair.another_room else "")


def _ratio(
    what: str,
    unit: Callable[[float], str],
    halves: Sequence[Part],
    blocks: Sequence[Blocks],
    resampling: Resampling,
) -> Own:
    """How a ratio of sums changed. halves: of A and of B numerators and denominators (n,)."""
    found = compared(halves, blocks, resampling)
    if found.a is None or found.b is None:
        return "", None
    return f"{what} {unit(found.a)} -> {unit(found.b)}", found.sigmas


def _tokens(half: Half, names: Sequence[str]) -> Floats:
    side = half.side
    rows = [at for at, name in enumerate(side.sources) if name in names]
    return np.asarray(side.tokens[rows].sum(axis=0))


def _sent_before(half: Half) -> Floats:
    """Prompt tokens that a cache which forgets nothing would have served."""
    return half.side.prompt - _tokens(half, CAUSES[CAUSES.index(_EVICTED) + 1 :])


def _decoding(half: Half) -> float:
    """How many requests decode at a time, by Little's law."""
    side = half.side
    seconds = max(float(side.arrival[-1] - side.arrival[0]), 1e-3)
    return max(1.0, float(np.nansum(side.time("decode"))) / 1000 / seconds)


def _per_load(tokens: Floats) -> float:
    return float(tokens[tokens > 0].mean()) if (tokens > 0).any() else math.nan


def _average(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else 0.0


def _fine(value: float) -> str:
    """A short time, with digits enough to see a change."""
    return f"{value:.3g} ms" if value < 10 else ms(value)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
