"""Traffic whose true shares are known: workload -> hits -> layers, each drawn independently given the ones before.

The truth is Shapley on the generator itself: the quantile of every mixture of two worlds, by brute force at large n
with the same random numbers in all of them. No request delays another one here (contention.py has that).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from analysis.attribution.model import NOT_TOLD, Resampling, Side
from analysis.attribution.shapley import shapley
from analysis.quantiles import Floats

LAYERS = ("queue", "prefill", "decode", "other")
MECHANISMS = ("workload", "hits", *LAYERS)
WINDOW_S = 3600.0


@dataclass(frozen=True)
class World:
    """One field a mechanism. workload: factor on all lengths; hits: mean share of the prompt that is served; queue:
    mean wait, ms; prefill: ms per computed token; decode: ms on top of each generation; other: mean, ms."""

    workload: float = 1.0
    hits: float = 0.8
    queue: float = 8.0
    prefill: float = 0.04
    decode: float = 0.0
    other: float = 1.0


AS_WAS = World()
CASES = {
    "nothing": AS_WAS,
    "hit rate 0.8 -> 0.4": replace(AS_WAS, hits=0.4),
    "decode + 30 ms": replace(AS_WAS, decode=30.0),
    "queue 8 -> 20 ms": replace(AS_WAS, queue=20.0),
    "workload 20 % longer": replace(AS_WAS, workload=1.2),
    "hits, decode, queue": replace(AS_WAS, hits=0.4, decode=30.0, queue=20.0),
}


@dataclass(frozen=True)
class Noise:
    """The random numbers of n requests; a world makes them requests."""

    template: np.ndarray
    prompt: Floats
    completion: Floats
    hit: Floats
    layers: Floats

    @classmethod
    def draw(cls, n: int, rng: np.random.Generator) -> Noise:
        return cls(
            template=rng.integers(0, 3, n),
            prompt=rng.standard_normal(n),
            completion=rng.standard_normal(n),
            hit=rng.standard_normal(n),
            layers=np.stack([rng.exponential(size=n), *rng.standard_normal((3, n))]),
        )


def requests(world: World, noise: Noise) -> dict[str, Floats]:
    """The requests of a world: prompt, completion, hits (tokens) and the layers, each (n,)."""
    lengths = np.array([500.0, 900.0, 1500.0])[noise.template] * world.workload
    prompt = np.ceil(lengths * np.exp(0.3 * noise.prompt - 0.045))
    completion = np.ceil(50.0 * world.workload * np.exp(0.3 * noise.completion - 0.045))
    served = 1 / (1 + np.exp(-(np.log(world.hits / (1 - world.hits)) + noise.hit)))
    hits = np.floor(prompt * served)
    return {
        "prompt": prompt,
        "completion": completion,
        "hits": hits,
        "queue": world.queue * noise.layers[0],
        "prefill": 4.0 + world.prefill * (prompt - hits) * np.exp(0.1 * noise.layers[1]),
        "decode": 2.0 * completion * np.exp(0.1 * noise.layers[2]) + world.decode,
        "other": world.other + noise.layers[3],
    }


def side(world: World, n: int, seed: int | list[int], name: str = "A") -> Side:
    """A window of n requests of this world."""
    rng = np.random.default_rng(seed)
    noise = Noise.draw(n, rng)
    made = requests(world, noise)
    times = np.stack([made[layer] for layer in LAYERS])
    return Side(
        name=name,
        arrival=np.sort(rng.uniform(0, WINDOW_S, n)),
        totals=times.sum(axis=0),
        layers=LAYERS,
        times=times,
        prompt=made["prompt"],
        completion=made["completion"],
        sources=("cached", "computed"),
        tokens=np.stack([made["hits"], made["prompt"] - made["hits"]]),
        template=noise.template.astype(np.int64),
        server=np.full(n, NOT_TOLD, dtype=np.int64),
        servers=(),
        begin=0.0,
        end=WINDOW_S,
    )


def truth(a: World, b: World, q: float | None, n: int = 400_000, seed: int = 1) -> dict[str, float]:
    """The share of every mechanism in the change of the q-quantile from world a to world b, ms."""
    changed = [f.name for f in fields(World) if getattr(a, f.name) != getattr(b, f.name)]
    noise = Noise.draw(n, np.random.default_rng(seed))
    values = []
    for coalition in range(1 << len(changed)):
        of_b = {name: getattr(b, name) for i, name in enumerate(changed) if coalition >> i & 1}
        made = requests(replace(a, **of_b), noise)
        total = sum(made[layer] for layer in LAYERS)
        values.append(total.mean() if q is None else np.quantile(total, q))
    shares = dict.fromkeys(MECHANISMS, 0.0)
    return shares | dict(zip(changed, shapley(np.array(values)).tolist(), strict=True))


def resampled(a: Side, b: Side, rounds: int = 200, blocks: int = 500, seed: int = 0) -> Resampling:
    """Independent requests need no blocks; up to `blocks` of them keep the arithmetic small."""
    rng = np.random.default_rng(seed)

    def one(n: int) -> tuple[np.ndarray, Floats]:
        of = np.arange(n) * min(n, blocks) // max(n, 1)
        k = min(n, blocks)
        return of, rng.multinomial(k, np.full(k, 1 / k), size=rounds).astype(np.float64) if k else np.zeros(
            (0, 0)
        )

    (block_a, counts_a), (block_b, counts_b) = one(a.n), one(b.n)
    return Resampling(block_a, block_b, counts_a, counts_b, False, 0.0, float(a.n), float(b.n))


def plain(
    times: dict[str, Floats],
    name: str = "A",
    *,
    totals: Floats | None = None,
    prompt: Floats | None = None,
    completion: Floats | None = None,
    tokens: dict[str, Floats] | None = None,
    template: np.ndarray | None = None,
    server: np.ndarray | None = None,
    servers: tuple[str, ...] = (),
) -> Side:
    """Requests of which only so much is known."""
    stacked = np.stack(list(times.values())).astype(np.float64)
    n = stacked.shape[1]
    unknown, nobody = np.full(n, np.nan), np.full(n, NOT_TOLD, dtype=np.int64)
    return Side(
        name=name,
        arrival=np.arange(n, dtype=np.float64),
        totals=np.nansum(stacked, axis=0) if totals is None else totals,
        layers=tuple(times),
        times=stacked,
        prompt=unknown if prompt is None else prompt,
        completion=unknown if completion is None else completion,
        sources=tuple(tokens or ()),
        tokens=np.stack(list(tokens.values())) if tokens else np.zeros((0, n)),
        template=nobody if template is None else template,
        server=nobody if server is None else server,
        servers=servers,
        begin=0.0,
        end=float(n),
    )
