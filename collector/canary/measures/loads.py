"""What loads from one tier took, and what is found of them: as measured, and as a line over their tokens.

The line is what a model of the server can use. It is not the whole truth where room has to be made for what is loaded:
what a long load pushes out may have to be pushed further, which a short one is spared. So what was measured is told by
length as well, and where the line is not like it, that is said.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from collector.canary import robust
from collector.canary.finding import Finding, untold
from collector.canary.measures.base import because

LOWER = "lower"
MS_NAME, FIXED_NAME = "tier.load_ms_per_token", "tier.load_fixed_ms"
_OFF = 0.2
"""Of what was measured, how far the line may lie from it."""


@dataclass(slots=True)
class Loads:
    """Loads from one tier: (tokens, ms), by round of lengths. told: whether the server says which tier it was."""

    by_round: dict[int, list[robust.Point]] = field(default_factory=dict)
    told: bool = True

    @property
    def rounds(self) -> list[list[robust.Point]]:
        return list(self.by_round.values())

    @property
    def points(self) -> list[robust.Point]:
        return [point for group in self.rounds for point in group]

    def by_tokens(self) -> dict[float, float]:
        """Milliseconds in the median of the loads of each length, ascending."""
        told: dict[float, list[float]] = {}
        for tokens, ms in sorted(self.points):
            told.setdefault(tokens, []).append(ms)
        return {tokens: statistics.median(all_ms) for tokens, all_ms in told.items()}

    def findings(self, tier: str, broken_off: str) -> list[Finding]:
        """Of at least one load."""
        points = self.points
        slope = robust.slope(self.rounds)
        if slope is None:
            why = because("prompts of one length only came from there", broken_off)
            return [untold(MS_NAME, "ms/{token}", why, len(points), subject=tier)]
        fixed = robust.median([y - slope.value * x for x, y in points])
        shortest, longest = min(x for x, _ in points), max(x for x, _ in points)
        inputs = {"rounds": [[[int(x), round(y, 3)] for x, y in group] for group in self.rounds]}
        where = {LOWER: "a tier below the device"}.get(tier, f"the {tier} tier")
        how = "" if self.told else ", told by its time to first token alone"
        words = f"Loading a token from {where} takes {slope.value:.3g} ms"
        words += f" ({len(points)} prompts of {shortest:,.0f} to {longest:,.0f} tokens{how})."
        whole = f"Beside that a load from {where} takes {fixed.value:.3g} ms. "
        whole += self._measured(slope.value, fixed.value)
        count = len(points)
        return [
            Finding(
                MS_NAME, slope.value, "ms/{token}", count, words, tier,
                inputs=inputs, low=slope.low, high=slope.high,
            ),
            Finding(FIXED_NAME, fixed.value, "ms", count, whole, tier, low=fixed.low, high=fixed.high),
        ]  # fmt: skip

    def _measured(self, by: float, fixed: float) -> str:
        """The times by length, of many lengths some, and whether the line is like them."""
        whole = self.by_tokens()
        lengths = list(whole)
        some = dict.fromkeys((lengths[0], lengths[len(lengths) // 2], lengths[-1]))
        words = ", ".join(f"{whole[tokens]:.3g} ms for {tokens:,.0f} tokens" for tokens in some)
        off = any(abs(fixed + by * tokens - whole[tokens]) > _OFF * abs(whole[tokens]) for tokens in some)
        return f"In all it took {words}{': no straight line, as where room has to be made for it' if off else ''}."
