"""What lets a measurement come to its end that the budget of `hitmap canary` broke off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from collector.canary import Budget, Options, rehearse
from collector.canary.budget import Part

_PLENTY = 10**12
_SHORTEST = 64  # tokens; --longest takes no fewer
_HOSTED = 1024  # hosted APIs reuse nothing of shorter prompts
_SPARE_S = 1  # the last request needs some time for its answer
_OPEN = "tiers"  # goes as far as the budget lets it, so that no rehearsal says how much is enough


@dataclass(frozen=True, slots=True)
class Remedy:
    """Options with which a run of these measurements would have come to its end, as far as rehearsals tell."""

    measures: Sequence[str]
    options: Options
    budget: Budget

    def of(self, spent: Part, broken: Sequence[str]) -> str:
        """What to give, where these measurements broke off for want of this part of the budget."""
        if all(name == _OPEN for name in broken):
            return f"a larger --max-{spent}, with which {_OPEN} fills more of the device"
        shorter = self._shorter() if spent == "tokens" else ""
        more = f", and more for {_OPEN}" if _OPEN in broken else ""
        return " or ".join(filter(None, (shorter, self._larger(spent)))) + more

    def _larger(self, spent: Part) -> str:
        plenty = replace(self.budget, requests=_PLENTY, tokens=_PLENTY, seconds=_PLENTY)
        whole = rehearse(self._closed, self.options, plenty)
        need = {"requests": whole.requests, "tokens": whole.tokens, "seconds": whole.seconds}[spent]
        need += _SPARE_S if spent == "seconds" else 0
        if need <= getattr(self.budget, spent):  # this server makes it dearer than a rehearsal knows
            return f"a larger --max-{spent}"
        if spent == "seconds":
            return f"--max-seconds {_up(need)} (the server's own time comes on top) or a higher --rate"
        return f"--max-{spent} {_up(need)}"

    def _shorter(self) -> str:
        """The longest prompts, by halves, with which all of it has room."""
        longest = self.options.longest // 2
        while longest >= _SHORTEST:
            report = rehearse(self._closed, replace(self.options, longest=longest), self.budget)
            if not any(course.stopped for course in report.courses):
                mind = "" if longest >= _HOSTED else f"; hosted APIs reuse nothing below {_HOSTED:,}"
                return f"--longest {longest} (about {report.tokens:,} tokens in all{mind})"
            longest //= 2
        return ""

    @property
    def _closed(self) -> list[str]:
        return [name for name in self.measures if name != _OPEN]


def _up(need: float) -> int:
    """Rounded up to two digits."""
    digit = int(10 ** max(0, math.ceil(math.log10(max(1.0, need))) - 2))
    return math.ceil(need / digit) * digit
