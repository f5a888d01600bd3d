"""How long an entry lives: prompts that are sent once, and again after a wait each. Looking keeps an entry alive, so
each is looked for once only."""

from __future__ import annotations

from collector.canary.finding import Finding, untold
from collector.canary.measures.base import Measure, Options, Reuse, because
from collector.canary.prober import Prober

_NAME = "entry.lifetime_s"


class LifetimeMeasure(Measure):
    name = "lifetime"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._reuse = Reuse()
        self._found: list[tuple[float, bool]] = []

    def collect(self, prober: Prober) -> None:
        tokens = prober.room(self.options.longest)
        self._reuse.calibrate(prober, tokens)
        if not self._reuse.works:
            return
        clock = prober.ledger.clock
        placed = []
        for wait_s in sorted(self.options.waits_s):
            prompt = prober.write(tokens)
            if prober.ask(prompt):
                placed.append((clock.now(), wait_s, prompt))
        for began, wait_s, prompt in placed:
            prober.ledger.wait(began + wait_s - clock.now())
            waited_s = clock.now() - began
            if sample := prober.ask(prompt):
                self._found.append((waited_s, self._reuse.hit(sample)))

    def findings(self, broken_off: str) -> list[Finding]:
        count = len(self._found)
        if not count:
            return [untold(_NAME, "s", because(self._reuse.why_not, broken_off))]
        lost = [waited for waited, hit in self._found if not hit]
        first_lost = min(lost, default=None)
        lived = [waited for waited, hit in self._found if hit and (first_lost is None or waited < first_lost)]
        low, by = max(lived, default=0.0), self._reuse.by
        odd = any(hit and first_lost is not None and waited > first_lost for waited, hit in self._found)
        inputs = {"waited_s": [[round(waited, 3), hit] for waited, hit in self._found]}
        if first_lost is None:
            why = f"An entry was still there after {low:.0f} s, the longest wait (by {by})."
            return [untold(_NAME, "s", why, count, low=low, inputs=inputs)]
        detail = f"An entry is gone after between {low:.0f} and {first_lost:.0f} s (by {by})"
        detail += (
            "; some lived longer, so that it is want of room and not age that ends them." if odd else "."
        )
        return [
            Finding(
                _NAME, (low + first_lost) / 2, "s", count, detail, low=low, high=first_lost, inputs=inputs
            )
        ]
