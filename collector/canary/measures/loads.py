"""What loads from one tier took, and what is found of them: as measured, and as a line over their tokens.

The line is what a model of the server can use. It is not the whole truth where room has to be made for what is loaded:
what a long load pushes out may have to be pushed further, which a short one is spared. So what was measured is a
finding of its own, of the longest prompts with the others in its words; where the line is not like it, that is said.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from collector.canary import robust
from collector.canary.finding import Finding, untold
from collector.canary.measures.base import because

LOWER = "lower"
WHOLE_NAME, MS_NAME, FIXED_NAME = "tier.load_ms", "tier.load_ms_per_token", "tier.load_fixed_ms"
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

    def by_tokens(self) -> dict[float, robust.Estimate]:
        """Milliseconds of the loads of each length, ascending."""
        told: dict[float, list[float]] = {}
        for tokens, ms in sorted(self.points):
            told.setdefault(tokens, []).append(ms)
        return {tokens: robust.median(all_ms) for tokens, all_ms in told.items()}

    def findings(self, tier: str, broken_off: str) -> list[Finding]:
        """Of at least one load."""
        points, whole = self.points, self.by_tokens()
        where = {LOWER: "a tier below the device"}.get(tier, f"the {tier} tier")
        how = "" if self.told else ", told by its time to first token alone"
        inputs = {"rounds": [[[int(x), round(y, 3)] for x, y in group] for group in self.rounds]}
        *_, (longest, of_longest) = whole.items()
        words = f"Loads from {where} take {_some(whole)}{how}."
        count = sum(tokens == longest for tokens, _ in points)
        found = [_finding(WHOLE_NAME, of_longest, "ms", count, words, tier, inputs=inputs)]
        slope = robust.slope(self.rounds)
        if slope is None:
            why = because("prompts of one length only came from there", broken_off)
            return [*found, untold(MS_NAME, "ms/{token}", why, len(points), subject=tier)]
        fixed = robust.median([y - slope.value * x for x, y in points])
        off = any(
            abs(fixed.value + slope.value * tokens - ms.value) > _OFF * abs(ms.value)
            for tokens, ms in whole.items()
        )
        words = f"A straight line through {len(points)} loads takes {slope.value:.3g} ms a token."
        words += (
            " They are not on it, as where room has to be made for them: it is a rough figure." if off else ""
        )
        beside = f"Beside that a load from {where} takes {fixed.value:.3g} ms."
        return [
            *found,
            _finding(MS_NAME, slope, "ms/{token}", len(points), words, tier),
            _finding(FIXED_NAME, fixed, "ms", len(points), beside, tier),
        ]


def _finding(
    name: str, told: robust.Estimate, unit: str, count: int, words: str, tier: str, **more: Any
) -> Finding:
    return Finding(name, told.value, unit, count, words, tier, low=told.low, high=told.high, **more)


def _some(whole: dict[float, robust.Estimate]) -> str:
    """The times by length, of many lengths some."""
    lengths = list(whole)
    some = dict.fromkeys((lengths[0], lengths[len(lengths) // 2], lengths[-1]))
    return ", ".join(f"{whole[tokens].value:.3g} ms for {tokens:,.0f} tokens" for tokens in some)
