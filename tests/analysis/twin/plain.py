"""The contended server of tests/analysis/attribution/contention.py, made to keep the twin's law to the letter."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np

from analysis.attribution.model import Side
from analysis.quantiles import Floats
from analysis.twin.model import Law, Limits, Workload
from cachemodel.layers import SERVING_LAYERS
from tests.analysis.attribution import contention
from tests.analysis.attribution.contention import World


class Plain(contention._Server):
    """No jitter, no bend, no hiccup: a pass, and a load, take what the law says."""

    def __init__(self, law: Law, limits: Limits) -> None:
        super().__init__(World(pool=limits.kv_tokens or 1 << 60), np.random.default_rng(0))
        self.law, self.seats, self.budget = law, limits.max_num_seqs, limits.max_num_batched_tokens
        self.passes = 0

    def _load_ms(self, tokens: int) -> float:
        return self.law.host_fixed + self.law.host * tokens

    def _takes(
        self, decoding: list[contention._Request], chunks: list[tuple[contention._Request, int]]
    ) -> float:
        self.passes += 1
        step, prefill, attention, decode, context, *_ = astuple(self.law)
        tokens = sum(tokens for _, tokens in chunks)
        behind = sum(tokens * (r.kv - r.left + tokens / 2) for r, tokens in chunks) / 1000
        attended = sum(r.kv for r in decoding) / 1000
        return float(
            step + prefill * tokens + attention * behind + decode * len(decoding) + context * attended
        )


def served(work: Workload, law: Law, limits: Limits) -> tuple[list[contention._Request], int]:
    """The requests when all have ended, and how many passes it took."""
    ready = (work.arrival - work.arrival.min()) * 1e3 + work.before
    found = work.prompt - work.computed
    rows = zip(ready.tolist(), work.prompt, work.completion, found, work.host, strict=True)
    requests = [
        contention._Request(number, at, *(int(value) for value in row))
        for number, (at, *row) in enumerate(rows)
    ]
    server = Plain(law, limits)
    server.serve(requests)
    return requests, server.passes


LAYERS = ("queue", "host", "remote", "prefill", "decode")


def real_side(work: Workload, law: Law, limits: Limits) -> Side:
    """What the requests tell when this server has served them."""
    ended, _ = served(work, law, limits)
    return side_of(
        work, work.before, {layer: np.array([r.spent.get(layer, 0.0) for r in ended]) for layer in LAYERS}
    )


def side_of(work: Workload, before: Floats, layers: dict[str, Floats], name: str = "a") -> Side:
    """What requests tell that spent so long, ms, in each layer."""
    times = {**layers, "frontend": before, "other": work.after}
    unknown = np.full(len(before), np.nan)
    tokens = {"device": work.prompt - work.computed - work.host, "host": work.host, "computed": work.computed}
    return Side(
        name=name,
        arrival=contention.START + work.arrival,
        totals=np.sum(list(times.values()), axis=0),
        layers=tuple(layer.name for layer in SERVING_LAYERS),
        times=np.stack([times.get(layer.name, unknown) for layer in SERVING_LAYERS]),
        prompt=work.prompt,
        completion=work.completion,
        sources=tuple(tokens),
        tokens=np.stack(list(tokens.values())),
        template=np.zeros(len(before), np.int64),
        server=np.zeros(len(before), np.int64),
        servers=("plain",),
        begin=contention.START,
        end=contention.START + float(work.arrival.max()),
    )


def traffic(n: int, seed: int, rate: float, *, host: bool = True) -> Workload:
    """n requests, some of whose prefix is found, on the host in part."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(20, 1500, n).astype(float)
    found = np.where(rng.random(n) < 0.6, np.floor(prompt * rng.random(n)), 0.0)
    computed = np.maximum(prompt - found, 1.0)
    return Workload(
        arrival=np.cumsum(rng.exponential(1 / rate, n)),
        prompt=prompt,
        completion=rng.integers(1, 120, n).astype(float),
        host=np.where(rng.random(n) < 0.3, np.floor((prompt - computed) / 2), 0.0) * host,
        remote=np.zeros(n),
        computed=computed,
        before=rng.exponential(2.0, n),
        after=rng.exponential(1.0, n),
    )
