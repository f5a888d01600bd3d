"""Requests a second that a replay through each rule takes, and the most memory it had.

    python -m benchmarks.prefix_replay [--requests 50000] [--tokens 380]

Seeded prompts: one of 40 templates of two thirds of a prompt's tokens, then what is new; one in three goes on with an
earlier prompt. Each rule runs in a process of its own, once to compile and three times on the clock: the median and
the slowest. Memory is the process's peak less what it had with the prompts made and the code loaded.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import time

import numpy as np

from analysis.prefix_replay.model import Ragged, Requests
from analysis.prefix_replay.replay import replay
from analysis.prefix_replay.rules import ANTHROPIC, BlockRule, ProviderRule, RadixRule, Rule, SlotRule

TEMPLATES, VOCABULARY = 40, 128_000


def prompts(n: int, tokens: int, seed: int = 7) -> Requests:
    """n prompts with about so many tokens on average, sent one millisecond apart, each done a quarter second later."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(tokens // 2, tokens * 3 // 2, n)
    offsets = np.append(0, np.cumsum(lengths))
    values = rng.integers(0, VOCABULARY, offsets[-1], np.uint32)
    templates = rng.integers(0, VOCABULARY, (TEMPLATES, tokens), np.uint32)
    shared = np.minimum(lengths, tokens * 2 // 3)
    of = rng.integers(0, TEMPLATES, n)
    for row, begin in enumerate(offsets[:-1].tolist()):  # by row: what is made here must not be the peak
        values[begin : begin + shared[row]] = templates[of[row], : shared[row]]
        if row and rng.random() < 1 / 3:
            earlier = rng.integers(0, row)
            same = min(lengths[row], lengths[earlier])
            values[begin : begin + same] = values[offsets[earlier] : offsets[earlier] + same]
    sent = np.arange(n) / 1000
    marks = Ragged(shared, np.arange(n + 1))
    return Requests(values, offsets, sent=sent, first_token=sent + 0.05, done=sent + 0.25, breakpoints=marks)


RULES: dict[str, Rule] = {
    "vLLM, blocks of 16": BlockRule(),
    "vLLM, 20,000 blocks": BlockRule(capacity=20_000),
    "SGLang, pages of 1": RadixRule(),
    "SGLang, 320,000 tokens": RadixRule(capacity=320_000),
    "llama.cpp, 4 slots": SlotRule(host_tokens=0),
    "llama.cpp, and host memory": SlotRule(host_tokens=16_384),
    "automatic, 128 from 256": ProviderRule(minimum=256),
    "breakpoints": ProviderRule(minimum=128, explicit=ANTHROPIC.explicit),
}


def measure(name: str, n: int, tokens: int) -> None:
    """Print the line of one rule."""
    rule = RULES[name]
    replay(prompts(50, tokens), rule)
    requests = prompts(n, tokens)
    before = _peak_mb()
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        out = replay(requests, rule)
        seconds.append(time.perf_counter() - began)
    share = out.served.sum() / len(requests.tokens)
    middle, slowest = statistics.median(seconds), max(seconds)
    print(
        f"{name:28} {n / middle:10,.0f} requests/s (slowest {n / slowest:,.0f}) {_peak_mb() - before:6.0f} MB more "
        f"({_peak_mb():.0f} in all), {share:.1%} of {len(requests.tokens) / 1e6:.1f} M tokens served",
        flush=True,
    )


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--tokens", type=int, default=380)
    asked = parser.parse_args()
    for name in RULES:
        process = multiprocessing.get_context("spawn").Process(
            target=measure, args=(name, asked.requests, asked.tokens)
        )
        process.start()
        process.join()


if __name__ == "__main__":
    main()
