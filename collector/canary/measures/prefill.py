"""Prefill milliseconds a token: times to first token of prompts that nobody sent before, over their lengths.

The lengths of a round are sent in random order, and slopes taken within a round only, so that a server that gets slower
from round to round does not tilt the line. What a request takes whatever its length is the line's level.
"""

from __future__ import annotations

from collector.canary import robust
from collector.canary.finding import Finding, untold
from collector.canary.measures.base import MS, Measure, Options, because
from collector.canary.prober import Prober

ROUNDS = 5
LENGTHS = (0.125, 0.34, 0.56, 0.78, 1.0)  # of the longest


class PrefillMeasure(Measure):
    name = "prefill"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.rounds: list[list[robust.Point]] = []
        self._streamed = True

    def collect(self, prober: Prober) -> None:
        longest = prober.room(self.options.longest)
        lengths = sorted({max(1, round(longest * share)) for share in LENGTHS})
        prober.ask(prober.write(lengths[-1]))  # what is slow the first time is not what is measured
        for _ in range(ROUNDS):
            self.rounds.append([])
            for length in prober.shuffled(lengths):
                sample = prober.ask(prober.write(length))
                if sample:
                    computed = sample.tokens - (sample.cached or 0)
                    self.rounds[-1].append((computed, sample.ttft_s * MS))
        self._streamed = prober.streamed

    def findings(self, broken_off: str) -> list[Finding]:
        points = [point for group in self.rounds for point in group]
        slope = robust.slope(self.rounds)
        if slope is None:
            why = because("no two prompts of different lengths were answered", broken_off)
            return [untold("prefill.ms_per_token", "ms/{token}", why, len(points))]
        if slope.value <= 0:
            why = "longer prompts were not slower: what a request takes besides drowns the prefill"
            return [
                untold("prefill.ms_per_token", "ms/{token}", why, len(points), low=slope.low, high=slope.high)
            ]
        shortest, longest = min(x for x, _ in points), max(x for x, _ in points)
        whole = "time to first token" if self._streamed else "time of a whole answer of one token"
        words = (
            f"Computing a prompt token takes {slope.value:.3g} ms, between {shortest:,.0f} and {longest:,.0f}"
        )
        words += f" computed tokens ({len(points)} prompts, {whole}){self._bend((shortest + longest) / 2)}."
        inputs = {"rounds": [[[int(x), round(y, 3)] for x, y in group] for group in self.rounds]}
        return [
            Finding(
                "prefill.ms_per_token",
                slope.value,
                "ms/{token}",
                len(points),
                words,
                low=slope.low,
                high=slope.high,
                inputs=inputs,
            ),
            self._fixed(),
        ]

    def _bend(self, middle: float) -> str:
        """What a token takes in short and in long prompts, where that is clearly not the same (attention)."""
        short = robust.slope([point for point in group if point[0] <= middle * 1.01] for group in self.rounds)
        long = robust.slope([point for point in group if point[0] >= middle * 0.99] for group in self.rounds)
        if not short or not long or short.high is None or long.low is None or long.low <= short.high:
            return ""
        return f"; {short.value:.3g} ms below {middle:,.0f} tokens and {long.value:.3g} ms above"

    def _fixed(self) -> Finding:
        """The level of the line through the two shortest lengths, since a token of a long prompt may take longer."""
        name, lines = "prefill.fixed_ms", [sorted(group)[:2] for group in self.rounds]
        levels = [a[1] - a[0] * (b[1] - a[1]) / (b[0] - a[0]) for a, b in filter(_two, lines)]
        level = robust.median(levels) if levels else None
        if level is None or level.value <= 0:
            return untold(name, "ms", "too little to be told beside the prefill", len(levels))
        words = f"Whatever its length, a request takes {level.value:.3g} ms to its first token, the network included."
        return Finding(name, level.value, "ms", len(levels), words, low=level.low, high=level.high)


def _two(line: list[robust.Point]) -> bool:
    return len(line) == 2 and line[0][0] != line[1][0]
