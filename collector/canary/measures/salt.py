"""Does `cache_salt` isolate? A prompt under one salt, again under the same, then under another."""

from __future__ import annotations

from collector.canary.finding import Finding, untold
from collector.canary.measures.base import CALIBRATION, Measure, Options, Reuse, because
from collector.canary.prober import Prober

_NAME = "salt.isolates"


class SaltMeasure(Measure):
    name = "salt"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._reuse = Reuse()
        self._across: list[bool] = []
        self._taken = True

    def collect(self, prober: Prober) -> None:
        self._taken = prober.dialect.salt
        if not self._taken:
            return
        tokens = prober.room(self.options.longest)
        prompts = self._reuse.calibrate(prober, tokens, CALIBRATION)
        for prompt in prompts if self._reuse.works else ():
            if sample := prober.ask(prompt, salt="other"):
                self._across.append(self._reuse.hit(sample))

    def findings(self, broken_off: str) -> list[Finding]:
        if not self._taken:
            return [untold(_NAME, "1", "the server refuses cache_salt: all its callers share one cache")]
        if not self._across:
            return [untold(_NAME, "1", because(self._reuse.why_not, broken_off))]
        shared = sum(self._across)
        count = len(self._across)
        if 0 < shared < count:
            why = f"{shared} of {count} prompts were reused under another salt: they contradict each other"
            return [untold(_NAME, "1", why, count)]
        detail = (
            f"A prompt is not reused under another cache_salt (by {self._reuse.by})."
            if not shared
            else f"cache_salt is taken and does nothing: a prompt is reused under another one (by {self._reuse.by})."
        )
        return [Finding(_NAME, float(not shared), "1", count, detail, inputs={"reused": self._across})]
