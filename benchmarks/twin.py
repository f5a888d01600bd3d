"""Seconds that the scheduler twin takes: 64 coalitions of six causes over 100,000 requests, and a fit.

    python -m benchmarks.twin [--requests 100000] [--rounds 3]

A: a server at about 60 % of what it can do, 80 % of its prompts found. B: more arrivals, fewer hits, a slower pass, a
slower tier and half the pool. Every coalition is replayed on its own and its P99 taken, on two threads; compiling (once
a machine, then cached) is measured apart. The fit is to the first 50,000 requests of A, as the twin itself served them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import astuple, replace
from typing import TypeVar

import numpy as np

from analysis.attribution.model import Side
from analysis.quantiles import hd_quantile
from analysis.twin.fit import fit
from analysis.twin.model import Law, Limits, Replay, Told, Workload
from analysis.twin.simulate import replay, replay_all
from cachemodel.layers import SERVING_LAYERS

LAW_A = Law(6.0, 0.05, 0.002, 0.2, 0.01, host=0.003, host_fixed=1.0)
LAW_B = replace(LAW_A, step=7.5, prefill=0.06, decode=0.25, host=0.012)
LIMITS_A, LIMITS_B = Limits(64, 2048, 200_000), Limits(64, 2048, 100_000)
CAUSES = 6
T = TypeVar("T")


def traffic(n: int, rate: float, hits: float) -> Workload:
    """The same draws for every rate (requests a second) and share of prompts whose prefix is found."""
    rng = np.random.default_rng(7)
    gap, found, tier = rng.exponential(1.0, n), rng.random(n), rng.random(n)
    prompt = np.clip(np.exp(rng.normal(7.1, 0.6, n)), 80, 6000).round()
    prefix = np.where(found < hits, np.floor(0.85 * prompt), 0.0)
    nothing = np.zeros(n)
    return Workload(
        arrival=np.cumsum(gap) / rate,
        prompt=prompt,
        completion=np.clip(rng.geometric(1 / 90, n), 2, 600).astype(float),
        host=np.where(tier < 0.3, np.floor(0.6 * prefix), 0.0),
        remote=nothing,
        computed=prompt - prefix,
        before=rng.lognormal(0.8, 0.4, n),
        after=nothing,
    )


def coalition(bits: int, n: int) -> tuple[Workload, Law, Limits]:
    """B's arrivals, hits, prefill, decode, tier and pool where their bit is 1, A's elsewhere."""
    arrivals, hits, prefill, decode, tier, pool = (bool(bits >> i & 1) for i in range(CAUSES))
    law = replace(LAW_A, prefill=LAW_B.prefill) if prefill else LAW_A
    law = replace(law, step=LAW_B.step, decode=LAW_B.decode) if decode else law
    law = replace(law, host=LAW_B.host) if tier else law
    return traffic(n, 12.0 if arrivals else 9.0, 0.6 if hits else 0.8), law, LIMITS_B if pool else LIMITS_A


def side(work: Workload, real: Replay) -> Side:
    """What a store would have of these requests."""
    n = len(work.arrival)
    times = {"frontend": work.before, "queue": real.queue, "host": real.host, "prefill": real.prefill}
    times |= {"decode": real.decode, "other": work.after}
    unknown = np.full(n, np.nan)
    return Side(
        name="a",
        arrival=work.arrival,
        totals=real.e2e,
        layers=tuple(layer.name for layer in SERVING_LAYERS),
        times=np.stack([times.get(layer.name, unknown) for layer in SERVING_LAYERS]),
        prompt=work.prompt,
        completion=work.completion,
        sources=("device", "host", "computed"),
        tokens=np.stack([work.prompt - work.host - work.computed, work.host, work.computed]),
        template=np.zeros(n, np.int64),
        server=np.zeros(n, np.int64),
        servers=("bench",),
        begin=float(work.arrival[0]),
        end=float(work.arrival[-1]),
    )


def timed(what: Callable[[], T], rounds: int) -> tuple[T, list[tuple[float, float]]]:
    """The last result, and of each round its seconds by the clock and of CPU time, all threads together."""
    taken: list[tuple[float, float]] = []
    for _ in range(rounds):
        began, used = time.perf_counter(), time.process_time()
        result = what()
        taken.append((time.perf_counter() - began, time.process_time() - used))
    return result, taken


def shown(what: str, taken: list[tuple[float, float]]) -> None:
    clock, used = (sorted(column) for column in zip(*taken, strict=True))
    spread = f"{clock[0]:.1f} to {clock[-1]:.1f}, CPU {used[0]:.1f} to {used[-1]:.1f}"
    print(f"{what:<52} {statistics.median(clock):6.1f} s   ({spread})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    n, rounds = options.requests, options.rounds
    _, first = timed(lambda: replay(*coalition(0, 100)), 1)
    shown("first replay: compiled, or read from the cache", first)
    cases = [coalition(bits, n) for bits in range(1 << CAUSES)]
    _, one = timed(lambda: replay(*cases[0]), rounds)
    shown(f"one replay of {n:,} requests", one)
    p99, taken = timed(lambda: replay_all(cases, lambda sent: hd_quantile(sent.ttft, 0.99)), rounds)
    shown(f"{len(cases)} coalitions, two threads, with their P99", taken)
    print(f"  P99 of time to first token: A {p99[0]:,.0f} ms, B {p99[-1]:,.0f} ms")
    real = side(cases[0][0], replay(*cases[0]))
    told = Told(LIMITS_A.max_num_seqs, LIMITS_A.max_num_batched_tokens, LIMITS_A.kv_tokens)
    few = real.subset(np.arange(min(n, 50_000)))
    found, taken = timed(lambda: fit(few, told), rounds)
    shown(f"a fit to {few.n:,} requests", taken)
    off = [a / b - 1 for a, b in zip(astuple(found.law), astuple(LAW_A), strict=True) if b]
    print("  its numbers are off by", ", ".join(f"{value:+.1%}" for value in off))


if __name__ == "__main__":
    main()
