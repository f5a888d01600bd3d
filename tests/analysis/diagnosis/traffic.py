"""Traffic in which one thing at a time goes wrong, as sides: what each rule is to see, made from numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.attribution.certainty.gate import judge, level_of
from analysis.attribution.certainty.inputs import own_changes
from analysis.attribution.certainty.resampling import resampling
from analysis.attribution.model import Resampling, Side, View
from analysis.attribution.shows.split import shows
from analysis.quantiles import Floats
from cachemodel.layers import SERVING_LAYERS

START = 1_800_000_000.0
SOURCES = ("device", "host", "elsewhere", "evicted", "changed", "cold")
_SEED = 7


@dataclass(frozen=True)
class Traffic:
    """n requests in `seconds`. weights: of the servers; spread: over how many of them a template goes; queues: mean ms
    by server. evicted, elsewhere, changed, cold: shares of the prompt; host: share loaded. prefill: ms a computed
    token, decode: ms a generated one; load_fixed, load_token: ms of a load. burst: prompts this many times as long and
    all new arrive in one twentieth of the window, and `flushed` of the next prompts is evicted. turns: templates take
    turns."""

    n: int = 800
    seconds: float = 800.0
    weights: tuple[float, ...] = (1.0,)
    spread: int = 1
    queues: tuple[float, ...] = (20.0,)
    host: float = 0.0
    elsewhere: float = 0.0
    evicted: float = 0.02
    changed: float = 0.0
    cold: float = 0.1
    hits: float | None = None
    prefill: float = 0.1
    decode: float = 3.0
    prompt: float = 700.0
    load_fixed: float = 4.0
    load_token: float = 0.02
    burst: float = 0.0
    flushed: float = 0.0
    templates: int = 8
    turns: bool = False


def side(world: Traffic, seed: int, name: str = "a", begin: float = START) -> Side:
    """A window of that traffic; the seed is of its draws."""
    rng = np.random.default_rng([_SEED, seed])
    n = world.n
    arrival = np.sort(rng.uniform(0, world.seconds, n))
    prompt = np.ceil(world.prompt * rng.lognormal(0, 0.3, n))
    part = (arrival / world.seconds * 20).astype(int)
    evicted, cold = np.full(n, world.evicted), np.full(n, world.cold)
    if world.burst:
        prompt[part == 8] = np.ceil(prompt[part == 8] * world.burst)
        cold[part == 8] = 0.95
        evicted[part == 8] = 0.0
        evicted[(part > 8) & (part < 13)] = world.flushed
    template = np.arange(n) % world.templates if world.turns else rng.integers(0, world.templates, n)
    if not world.turns and world.hits is not None:  # each comes back at once, a few times
        template = np.arange(n) // 4 % world.templates
    server = _servers(world, template, rng)
    parts = _parts(world, template, np.stack([evicted, cold]), rng)
    tokens = np.round(prompt * parts)
    tokens[0] += prompt - tokens.sum(axis=0)
    completion = rng.geometric(1 / 40, n) + 4.0
    host, computed = tokens[1], prompt - tokens[0] - tokens[1]
    times = {
        "queue": np.asarray(world.queues)[server % len(world.queues)] * rng.exponential(1, n),
        "prefill": 3 + world.prefill * computed * rng.lognormal(0, 0.1, n),
        "host": np.where(host > 0, world.load_fixed + world.load_token * host, 0.0)
        * rng.lognormal(0, 0.1, n),
        "decode": world.decode * (completion - 1) * rng.lognormal(0, 0.1, n),
        "frontend": rng.exponential(2, n),
    }
    return _side(name, begin, world.seconds, arrival, prompt, completion, tokens, template, server, times)


def drawn(a: Side, b: Side) -> Resampling:
    """Resamples of both sides, the same each time."""
    return resampling(a, b, np.random.default_rng(1), 100)


def shown(a: Side, b: Side, q: float | None = None) -> View:
    """Where the change shows, judged as a report does."""
    of_both = drawn(a, b)
    level = level_of(q, a, b)
    return judge(shows(a, b, q, of_both), own_changes(a, b, of_both), of_both, level=level)


def _servers(world: Traffic, template: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Of each template's servers one by their weights; a template's are those that follow its number."""
    count = len(world.weights)
    if world.spread == 1 and len(set(world.weights)) == 1:
        return template % count
    if world.spread == 1:
        return rng.choice(count, len(template), p=np.asarray(world.weights) / sum(world.weights))
    return (template + rng.integers(0, world.spread, len(template))) % count


def _parts(world: Traffic, template: np.ndarray, given: Floats, rng: np.random.Generator) -> Floats:
    """Shares of each prompt by source (6, n)."""
    evicted, cold = given
    n = len(template)
    if world.hits is not None:  # a slot: served if the last request was of the same template
        same = np.concatenate([[False], template[1:] == template[:-1]])
        evicted = np.where(same, 0.02, 0.98 - cold)
    parts = np.zeros((len(SOURCES), n))
    parts[1:4] = np.stack([np.full(n, world.host), np.full(n, world.elsewhere), evicted])
    parts[4], parts[5] = world.changed, cold
    return np.clip(parts * rng.uniform(0.7, 1.3, (len(SOURCES), n)), 0.0, 0.97)


def _side(
    name: str,
    begin: float,
    seconds: float,
    arrival: Floats,
    prompt: Floats,
    completion: Floats,
    tokens: Floats,
    template: np.ndarray,
    server: np.ndarray,
    times: dict[str, Floats],
) -> Side:
    n = len(arrival)
    layers = tuple(layer.name for layer in SERVING_LAYERS)
    e2e = sum(times.values(), np.zeros(n))
    return Side(
        name=name,
        arrival=begin + arrival,
        totals=e2e,
        layers=layers,
        times=np.stack([times.get(layer, np.full(n, np.nan)) for layer in layers]),
        prompt=prompt,
        completion=completion,
        sources=SOURCES,
        tokens=tokens,
        template=template.astype(np.int64),
        server=server.astype(np.int64),
        servers=tuple(f"s{at}" for at in range(int(server.max()) + 1)),
        begin=begin,
        end=begin + seconds,
        beside={"ttft": e2e - times["decode"], "e2e": e2e},
    )
