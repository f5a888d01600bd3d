"""Do the intervals of "what caused it" hold what a server really would have done?

    python -m benchmarks.caused [--seeds 20] [--requests 1100] [--case changed]

The contention generator serves other traffic before and after one change (tests/analysis/attribution/trials.py).
"holds": how many 95 % intervals of the traffic and of the change hold its truth, with binomial bounds of that share.
"""

from __future__ import annotations

import argparse

import numpy as np

from analysis.attribution.certainty.placebo import binomial
from tests.analysis.attribution.trials import TRIED, Tried, tried

FIGURES = (("ttft", 0.95), ("e2e", 0.5), ("e2e", 0.95))


def shown(what: str, found: list[Tried]) -> None:
    if not found:
        return
    truth, value = (np.array([getattr(one, name) for one in found]) for name in ("truth", "value"))
    held = sum(one.holds for one in found)
    low, high = binomial(held, len(found))
    error = value - truth
    sure = error.std() / len(found) ** 0.5
    print(
        f"{what:<36} truth {truth.mean():9,.1f} ms  error {error.mean():+7.1f} +- {sure:5.1f}"
        f"  holds {held} of {len(found)}: {held / len(found):.1%} ({low:.1%} to {high:.1%})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--requests", type=int, default=1100)
    parser.add_argument("--case", choices=TRIED, default=None)
    options = parser.parse_args()
    everything: list[Tried] = []
    refused = 0
    for cause in [options.case] if options.case else TRIED:
        for metric, q in FIGURES:
            runs = [list(tried(cause, metric, q, options.requests, seed)) for seed in range(options.seeds)]
            refused += sum(not run for run in runs)
            found = [one for run in runs for one in run]
            for name in dict.fromkeys(one.cause for one in found):
                shown(f"{cause}, P{100 * q:g} {metric}: {name}", [one for one in found if one.cause == name])
            everything += found
    shown("all", everything)
    print(f"no twin: {refused}")


if __name__ == "__main__":
    main()
