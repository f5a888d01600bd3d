"""Who is blamed when nothing happened, and who when something did: the gate under a load that remembers minutes.

    python -m benchmarks.nulls [--runs 500]

Latency layers share an autoregressive load (tests/analysis/attribution/loads.py); both windows are alike, or decode is
slower in B by some sigmas of its own share. Nulls are tried with "where it shows" as a report makes it, and with the
cheap split of that file, which takes nothing as unchanged: there it is the error bars and the gate that are tried.
"placebo": a history of 24 windows without a change, taken through the placebo test as a user's is; its rate must agree
with that of the runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.attribution.certainty.gate import judge, level_of
from analysis.attribution.certainty.inputs import own_changes
from analysis.attribution.certainty.placebo import binomial, placebo
from analysis.attribution.certainty.resampling import resampling
from analysis.attribution.model import Refused, Resampling, Side, Split, Verdict, View
from analysis.attribution.shows.split import shows
from tests.analysis.attribution.loads import by_layer, under_load

N = 1000
HOUR = 3600.0
PILOTS = 40


@dataclass(frozen=True, slots=True)
class Case:
    """memory_s: of the load; hours: of a window; q: quantile, None for the mean; sigmas: how much slower decode is in
    B, in standard deviations of its share between windows that are alike; shows: whether the split is a report's."""

    memory_s: float
    hours: float
    q: float | None
    sigmas: float = 0.0
    shows: bool = False

    def split(self, a: Side, b: Side, drawn: Resampling) -> Split | Refused:
        """The change taken apart."""
        return shows(a, b, self.q, drawn) if self.shows else by_layer(a, b, drawn, self.q)


@dataclass(frozen=True, slots=True)
class Found:
    """named: runs in which any name was blamed; decode, others: in which decode, or anything else, was; covered: of
    intervals of shares and change that should hold the truth; degrees: the median."""

    runs: int
    named: int
    decode: int
    others: int
    covered: float
    degrees: float


def run(case: Case, runs: int, seed: int) -> Found:
    """A case, tried on fresh traffic each time."""
    rng = np.random.default_rng(seed)
    slower = case.sigmas * _sigma(case, rng) if case.sigmas else 0.0
    blamed: list[set[str]] = []
    covered, degrees = [], []
    for _ in range(runs):
        a, b = _windows(case, rng, slower)
        drawn = resampling(a, b, rng)
        view = judge(case.split(a, b, drawn), own_changes(a, b, drawn), drawn, level=level_of(case.q, a, b))
        blamed.append({share.name for share in view.shares if share.verdict == Verdict.NAMED})
        covered += _covered(view, slower if case.q is None else None if slower else 0.0)
        degrees.append(drawn.degrees)
    return Found(
        runs=runs,
        named=sum(map(bool, blamed)),
        decode=sum("decode" in names for names in blamed),
        others=sum(bool(names - {"decode"}) for names in blamed),
        covered=float(np.mean(covered)) if covered else float("nan"),
        degrees=float(np.median(degrees)),
    )


def _windows(case: Case, rng: np.random.Generator, slower: float = 0.0) -> tuple[Side, Side]:
    length = case.hours * HOUR
    a = under_load(N, length, case.memory_s, rng)
    return a, under_load(N, length, case.memory_s, rng, begin=length + HOUR, decode=slower)


def _sigma(case: Case, rng: np.random.Generator) -> float:
    """Of the share of decode between windows that are alike, ms."""
    shares = []
    for _ in range(PILOTS):
        a, b = _windows(case, rng)
        shares.append(by_layer(a, b, resampling(a, b, rng, rounds=2), case.q).values[2])
    return float(np.std(shares))


def _covered(view: View, decode: float | None) -> list[bool]:
    """Whether the intervals hold the truth; none are looked at where it is not known (None)."""
    if decode is None:
        return []
    ends = [(s.low, s.high, decode if s.name == "decode" else 0.0) for s in view.shares]
    ends.append((view.change_low, view.change_high, decode))
    return [low <= truth <= high for low, high, truth in ends if low is not None and high is not None]


def fleet(case: Case, days: int, seed: int) -> tuple[int, int]:
    """Pairs tried and pairs blamed by the placebo test, over some histories of 24 windows each."""
    rng = np.random.default_rng(seed)

    length = case.hours * HOUR
    told = [
        placebo(under_load(24 * N, 24 * length, case.memory_s, rng), length, case.split, rng, work=10**9)
        for _ in range(days)
    ]
    return sum(one.pairs for one in told), sum(one.blamed for one in told)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=500)
    runs = parser.parse_args(arguments).runs
    print(f"{N} requests a window, {runs} runs a case; blamed in nothing: 2 % are allowed")
    print("memory  window  of      blamed              95 % interval  covered  degrees  placebo")
    cases = [(m, h, q, s) for s in (True, False) for m in (0, 300, 600) for h in (1, 2) for q in (None, 0.95)]
    for memory, hours, q, real in cases:
        case = Case(memory, hours, q, shows=real)
        found = run(case, runs, seed=1)
        low, high = binomial(found.named, runs)
        pairs, wrong = fleet(case, max(1, runs // 60), seed=2)
        print(
            f"{memory / 60:3.0f} min  {hours:3.0f} h   {'mean' if q is None else f'P{100 * q:g}':4}"
            f"  {found.named:4} = {found.named / runs:6.2%}  {low:7.2%} - {high:6.2%}"
            f"  {found.covered:9.1%}  {found.degrees:7.1f}  {wrong} of {pairs}  {'shows' if real else 'layers'}",
            flush=True,
        )
    print("\ndecode slower in B, windows of 2 h: runs in which it is blamed, and in which anything else is")
    for memory, q, sigmas in [(m, q, s) for m in (0, 300) for q in (None, 0.95) for s in (3, 4, 6)]:
        found = run(Case(memory, 2, q, sigmas), max(20, runs // 5), seed=3)
        print(
            f"{memory / 60:3.0f} min  {'mean' if q is None else f'P{100 * q:g}':4} {sigmas} sigma:"
            f" decode {found.decode / found.runs:4.0%}, others {found.others / found.runs:4.1%}, n = {found.runs}",
            flush=True,
        )


if __name__ == "__main__":
    main()
