"""Where a change shows: errors against known shares, beside DoWhy's on the same data; time and memory at a million.

    python -m benchmarks.attribution accuracy [SEEDS] [N]     200 seeds of 20,000 + 20,000 requests, P99
    python -m benchmarks.attribution speed [N]                a million + a million requests, 200 rounds
    python -m benchmarks.attribution dowhy [SEEDS] [--dowhy-python PATH]

Traffic and truth are those of tests/analysis/attribution/generators.py. The error of a seed is the largest over its
shares. DoWhy (gcm.distribution_change, 20,000 samples) runs in a Python that has it, since it pins an older numpy; its
"total" node counts as a share, whose truth is 0. Both test each mechanism first and do not swap those that do not
differ significantly. Errors are told of the shares that did change, and of all.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analysis.attribution.certainty.placebo import binomial
from analysis.attribution.model import Side, Split
from analysis.attribution.shows.split import shows
from tests.analysis.attribution.generators import AS_WAS, CASES, LAYERS, resampled, side, truth

Q, N = 0.99, 20_000
DOWHY = Path(__file__).with_name("attribution_dowhy.py")


def pair(case: str, seed: int, n: int) -> tuple[Side, Side]:
    return side(AS_WAS, n, [seed, 1]), side(CASES[case], n, [seed, 2], "B")


def known(case: str) -> dict[str, float]:
    """True shares, ms, good to 0.1: the mean of ten draws of a million."""
    draws = [truth(AS_WAS, CASES[case], Q, 1_000_000, seed) for seed in range(10)]
    return {name: float(np.mean([one[name] for one in draws])) for name in draws[0]}


def accuracy(seeds: int, n: int) -> None:
    print(
        f"P{Q * 100:.0f} of {n:,} + {n:,} requests, {seeds} seeds, 200 rounds; errors of a seed: its worst share, ms"
    )
    print(
        f"{'case':22}{'true':>8}{'changed':>9}{'all':>7}{'max':>7}{'covered':>9}{'changed':>9}"
        f"{'unchanged: worst bias':>24}{'residual':>10}"
    )
    covered: list[NDArray[np.bool_]] = []
    for case in CASES:
        true = known(case)
        errors, inside, residuals = [], [], []
        for seed in range(seeds):
            a, b = pair(case, seed, n)
            split = shows(a, b, Q, resampled(a, b, seed=seed))
            assert isinstance(split, Split)
            shares = np.array([true[name] for name in split.names])
            low, high = np.quantile(split.replicates, [0.025, 0.975], axis=0)
            errors.append(split.values - shares)
            inside.append((low <= shares) & (shares <= high))
            residuals.append(split.residual)
        covered += inside
        worst, bias = np.abs(errors).max(axis=1), np.mean(errors, axis=0)
        changed = np.abs(errors)[:, shares != 0].max(axis=1, initial=0.0)
        still = [i for i, name in enumerate(split.names) if not true[name]]
        at = max(still, key=lambda i: abs(bias[i]))
        error = np.std(errors, axis=0)[at] / math.sqrt(seeds)
        print(
            f"{case:22}{sum(true.values()):8.1f}{changed.mean():9.2f}{worst.mean():7.2f}{worst.max():7.2f}"
            f"{np.mean(inside):9.1%}{_rate(np.array(inside)[:, shares != 0])}"
            f"{split.names[at]:>10} {bias[at]:+.2f} +- {error:.2f}{np.mean(residuals):+10.2f}",
            flush=True,
        )
    found, of = int(np.sum(covered)), np.size(covered)
    low, high = binomial(found, of)
    print(f"covered in all: {found:,} of {of:,} intervals, {found / of:.1%} ({low:.1%} to {high:.1%})")


def _rate(inside: NDArray[np.bool_]) -> str:
    return f"{inside.mean():9.1%}" if inside.size else f"{'':9}"


def speed(n: int) -> None:
    a, b = pair("hits, decode, queue", 1, n)
    drawn = resampled(a, b)
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    split = shows(a, b, Q, drawn)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    assert isinstance(split, Split)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"{n:,} + {n:,} requests, {len(split.names)} mechanisms, {len(split.replicates)} rounds of 500 blocks:"
        f" {wall:.1f} s, {cpu:.1f} CPU-seconds; peak {after.ru_maxrss / 2**20:.2f} GiB with the requests"
        f" ({before.ru_maxrss / 2**20:.2f} before)"
    )
    print(split.method)
    for name, value, spread in zip(split.names, split.values, split.replicates.std(axis=0), strict=True):
        print(f"  {name:10}{value:8.2f} +- {spread:.2f} ms")


def dowhy(seeds: int, python: str | None) -> None:
    python = python or (sys.executable if importlib.util.find_spec("dowhy") else None)
    if python is None:
        sys.exit(
            "no DoWhy in this Python: pip install dowhy into another one and pass it as --dowhy-python PATH"
        )
    for case in [case for case in CASES if case != "nothing"]:
        true = known(case)
        for seed in range(seeds):
            a, b = pair(case, seed, N)
            began = time.perf_counter()
            split = shows(a, b, Q, resampled(a, b, seed=seed))
            ours_s = time.perf_counter() - began
            assert isinstance(split, Split)
            ours = dict(zip(split.names, split.values, strict=True))
            found = _dowhy(a, b, seed, python)
            shares = found["shares"]
            theirs = {layer: shares[layer] for layer in (*LAYERS, "total")}
            theirs |= {"workload": shares["prompt"] + shares["completion"], "hits": shares["computed"]}
            told = []
            for name, of, seconds in (("hitmap", ours, ours_s), ("DoWhy", theirs, found["seconds"])):
                errors = {key: abs(value - true.get(key, 0.0)) for key, value in of.items()}
                changed = [errors[key] for key, share in true.items() if share] or [0.0]
                told.append(
                    f"{name} {max(changed):5.2f} / {max(errors.values()):5.2f} ms in {seconds:6.1f} s"
                )
            print(f"{case:22} seed {seed}, worst changed / of all: {', '.join(told)}", flush=True)


def _dowhy(a: Side, b: Side, seed: int, python: str) -> dict:
    columns = {}
    for letter, one in (("a", a), ("b", b)):
        made = dict(zip(one.layers, one.times, strict=True)) | {
            "prompt": one.prompt,
            "completion": one.completion,
        }
        made |= {"computed": one.tokens[1], "total": one.totals}
        columns |= {f"{letter}_{name}": values for name, values in made.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, q=Q, seed=seed, **columns)
        done = subprocess.run([python, str(DOWHY), str(path)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["accuracy", "speed", "dowhy"])
    parser.add_argument("numbers", type=int, nargs="*")
    parser.add_argument("--dowhy-python")
    asked = parser.parse_args()
    first, second, *_ = [*asked.numbers, None, None]
    if asked.what == "accuracy":
        accuracy(first or 200, second or N)
    elif asked.what == "speed":
        speed(first or 1_000_000)
    else:
        dowhy(first or 3, asked.dowhy_python)


if __name__ == "__main__":
    main()
