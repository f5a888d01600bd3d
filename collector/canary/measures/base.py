"""What the measurements have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from collector.canary.finding import Finding
from collector.canary.prober import Prober, Sample
from collector.canary.prompts import Prompt
from collector.canary.robust import Scale

MS = 1e3
CALIBRATION = 3


@dataclass(frozen=True, slots=True)
class Options:
    """longest: tokens of the longest prompt. device_tokens: how much KV the device holds, None where that is not known.
    waits_s: after which an entry is looked for. repeats: how often a prompt goes to the replicas behind one address."""

    longest: int = 2048
    device_tokens: int | None = None
    waits_s: Sequence[float] = (60.0,)
    repeats: int = 12


class Measure(ABC):
    """One measurement. `collect` asks, and may be broken off at any request; `findings` says what is known by then."""

    name: ClassVar[str]

    def __init__(self, options: Options) -> None:
        self.options = options

    @abstractmethod
    def collect(self, prober: Prober) -> None:
        """Ask the server. Raises Spent and GaveUp."""

    @abstractmethod
    def findings(self, broken_off: str) -> list[Finding]:
        """What was found. broken_off: why `collect` did not come to its end, empty where it did."""


BROKEN_OFF = "broken off: "


def because(reason: str, broken_off: str) -> str:
    """Why there is no figure: that the measurement was broken off goes before what it would have needed."""
    return BROKEN_OFF + broken_off if broken_off else reason


class Reuse:
    """Tells whether prompts of one length were reused: by the server's word, or else by their time to first token."""

    def __init__(self) -> None:
        self.scale: Scale | None = None
        self.base = 0
        """Tokens that are reused of a prompt that nobody sent before: its template's."""
        self._cold: list[Sample] = []
        self._warm: list[Sample] = []

    @property
    def told(self) -> bool:
        """Whether the server says how many tokens were cached."""
        return any(sample.cached is not None for sample in self._warm)

    @property
    def tiered(self) -> bool:
        """Whether it says from which tier."""
        return any(sample.host is not None or sample.remote is not None for sample in self._warm)

    @property
    def works(self) -> bool:
        """Whether a prompt that is sent twice is seen to be reused."""
        if self.told:
            return any((sample.cached or 0) > self.base for sample in self._warm)
        return self.scale is not None and self.scale.clear

    @property
    def varied(self) -> tuple[int, int, int] | None:
        """A length of which prompts that were sent again were reused to different lengths: tokens, least and most. A
        miss is none of them: other entries and other replicas make those."""
        hits: dict[int, set[int]] = {}
        for sample in self._warm:
            if sample.cached is not None and sample.cached > self.base:
                hits.setdefault(sample.tokens, set()).add(sample.cached)
        return next(((n, min(told), max(told)) for n, told in hits.items() if len(told) > 1), None)

    @property
    def why_not(self) -> str:
        """Where `works` is false."""
        if not self._warm:
            return "no prompt could be sent twice"
        if self.told:
            return "nothing was reused when the same prompt was sent again"
        return "the server does not tell cached tokens, and a prompt sent again was not clearly faster"

    @property
    def by(self) -> str:
        return "usage" if self.told else "time to first token"

    def calibrate(self, prober: Prober, tokens: int, times: int = CALIBRATION) -> list[Prompt]:
        """Send prompts of a length twice; they are held then."""
        prompts = [prober.write(tokens) for _ in range(times)]
        for prompt in prompts:
            self.learn(prober.ask(prompt), prober.ask(prompt))
        return prompts

    def learn(self, cold: Sample | None, warm: Sample | None) -> None:
        """Take in a prompt that was sent for the first and for the second time."""
        if cold is None or warm is None:
            return
        self._cold.append(cold)
        self._warm.append(warm)
        self.scale = Scale.of([s.ttft_s for s in self._cold], [s.ttft_s for s in self._warm])
        self.base = max(sample.cached or 0 for sample in self._cold)

    def share(self, sample: Sample) -> float:
        """How much of what can be reused of it was: 0 to 1, about so where only its time tells."""
        if self.told and sample.cached is not None:
            most = max(warm.cached or 0 for warm in self._warm) - self.base
            return min(1.0, max(0.0, (sample.cached - self.base) / most)) if most > 0 else 0.0
        return min(1.0, max(0.0, 1 - self.scale.place(sample.ttft_s))) if self.scale else 0.0

    def hit(self, sample: Sample) -> bool:
        return self.share(sample) > 0.5
