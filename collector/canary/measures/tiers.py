"""How long it takes to load KV from each tier below the device, and how much pushes an entry down.

Prompts are sent, then fillers that nobody asks for again push them out of the device, and lastly they are asked for
once more: the first time they come from the tier they went to, then from the device. The difference of both times to
first token is the load, with what has to leave the device for it; prompts of three lengths tell what of it is by token
and what is not.

How far to push is found by doubling: markers are sent after the prompts, and one of them is looked for after each
doubling. It was sent later than the prompts, so where it is gone from the device they are too; looking keeps it alive,
so each marker is looked for once, the one placed last first. A second lot of prompts waits for the tier below the next.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field

from collector.canary import robust
from collector.canary.finding import Finding, untold
from collector.canary.measures.base import MS, Measure, Options, Reuse, because
from collector.canary.prober import Prober, Sample
from collector.canary.prompts import Prompt

LENGTHS = (0.25, 0.5, 1.0)  # of the longest
ROUNDS = 4
WARM = 3  # looks at a prompt that is on the device again: they cost little, and steady the difference
LOTS = 2  # tiers below the device
MARKERS = 12
FIRST_FILL = 4  # longest prompts
FURTHER = 3  # doublings past the first lower tier after which there is taken to be no other
DEVICE, LOWER, GONE = "device", "lower", "gone"
_CLEARLY = 0.25  # of the way between held and computed, for servers that do not tell tiers
_MS_NAME, _FIXED_NAME, _REACH_NAME = "tier.load_ms_per_token", "tier.load_fixed_ms", "tier.device_tokens"


@dataclass(slots=True)
class Loads:
    """Loads from one tier: (tokens, ms), by round of lengths."""

    rounds: list[list[robust.Point]] = field(default_factory=list)
    told: bool = True

    @property
    def points(self) -> list[robust.Point]:
        return [point for group in self.rounds for point in group]


class TiersMeasure(Measure):
    name = "tiers"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._reuse = Reuse()
        self._loads: dict[str, Loads] = {}
        self._still_at, self._gone_at, self._end = 0, 0, ""
        self._sent = 0
        self._tiered = False

    def collect(self, prober: Prober) -> None:
        longest = prober.room(self.options.longest)
        self._reuse.calibrate(prober, longest)
        if not self._reuse.works:
            return
        self._tiered = self._reuse.tiered
        lots = [
            self._place(prober, longest) for _ in range(LOTS)
        ]  # the last one placed leaves the device last
        markers = self._mark(prober, longest)
        known = self.options.device_tokens
        goal = self._sent + (FIRST_FILL * longest if known is None else round(1.25 * known))
        tier = DEVICE
        further = FURTHER
        while lots and markers and further:
            while self._sent < goal:
                self._first(prober, prober.write(longest))
            marker, placed = markers.pop()
            distance = self._sent - placed
            goal = self._sent + distance
            sample = prober.ask(marker)
            found = self._where(sample) if sample else tier
            if found == DEVICE:
                self._still_at = distance
            elif tier == DEVICE and not self._gone_at:
                self._gone_at = distance
            if found == GONE:
                self._end = GONE
                break
            if found != tier:
                tier = found
                self._load(prober, lots.pop())
            elif tier != DEVICE:
                further -= 1

    def _mark(self, prober: Prober, longest: int) -> list[tuple[Prompt, int]]:
        """Markers, and what was sent when each was placed. As many as doublings that the budget has room for; short
        where the server tells tiers, since then their time does not have to."""
        left = prober.ledger.budget.tokens - prober.ledger.tokens
        doublings = max(1, math.ceil(math.log2(max(2.0, left / (FIRST_FILL * longest)))))
        length = max(1, longest // 4) if self._tiered else longest
        markers = []
        for _ in range(min(MARKERS, doublings + 1)):
            prompt = prober.write(length)
            if self._first(prober, prompt):
                markers.append((prompt, self._sent))
        return markers

    def _place(self, prober: Prober, longest: int) -> list[list[Prompt]]:
        """A lot of prompts, by round."""
        lot = []
        for _ in range(ROUNDS):
            lot.append([prober.write(max(1, round(longest * share))) for share in LENGTHS])
            for prompt in lot[-1]:
                self._first(prober, prompt)
        return lot

    def _first(self, prober: Prober, prompt: Prompt) -> Sample | None:
        sample = prober.ask(prompt)
        self._sent += prompt.tokens
        return sample

    def _where(self, sample: Sample) -> str:
        """Where a prompt came from: device, host, remote, or lower for one of the latter, not told which."""
        if sample.host is not None or sample.remote is not None:
            host, remote = sample.host or 0, sample.remote or 0
            if host or remote:
                return "host" if host >= remote else "remote"
            return DEVICE if sample.cached else GONE
        place = self._reuse.scale.place(sample.ttft_s) if self._reuse.scale else 0.0
        if self._reuse.told:
            if not self._reuse.hit(sample):
                return GONE
            return LOWER if self._reuse.scale and self._reuse.scale.clear and place > _CLEARLY else DEVICE
        return DEVICE if place < _CLEARLY else LOWER if place < 1 - _CLEARLY else GONE

    def _load(self, prober: Prober, lot: list[list[Prompt]]) -> None:
        """Ask for a lot again. The last one placed is the last one to have left: it goes first."""
        for prompts in lot:
            begun: set[str] = set()
            for prompt in prompts:
                load = self._first(prober, prompt)
                warm = [again for _ in range(WARM) if (again := prober.ask(prompt))]
                if load is None or not warm:
                    continue
                tier, tokens = self._loaded(load, warm[-1])
                if not tokens:
                    continue
                loads = self._loads.setdefault(tier, Loads())
                if tier not in begun:
                    loads.rounds.append([])
                    begun.add(tier)
                from_device_s = statistics.median(again.ttft_s for again in warm)
                loads.told = loads.told and load.host is not None
                loads.rounds[-1].append((tokens, (load.ttft_s - from_device_s) * MS))

    def _loaded(self, load: Sample, warm: Sample) -> tuple[str, int]:
        """The tier, and tokens that came from it alone; no tokens where it was another, or several."""
        host, remote = load.host, load.remote
        if host is not None or remote is not None:
            if bool(host) == bool(remote):
                return GONE, 0
            return ("host", host) if host else ("remote", remote or 0)
        cached = load.cached if load.cached is not None else load.tokens
        same = load.cached == warm.cached
        return (LOWER, cached) if same else (GONE, 0)

    def findings(self, broken_off: str) -> list[Finding]:
        found = [self._reach(broken_off)]
        for tier, loads in sorted(self._loads.items()):
            found += _loads_of(tier, loads, broken_off)
        if not self._loads:
            found.append(untold(_MS_NAME, "ms/{token}", because(self._why_no_loads(), broken_off)))
        return found

    def _why_no_loads(self) -> str:
        if not self._reuse.works:
            return self._reuse.why_not
        if self._end == GONE:
            return "no tier below the device: what it gives up is computed again"
        return f"after {self._sent:,} further tokens prompts still come from the device"

    def _reach(self, broken_off: str) -> Finding:
        unit, low, high = "{token}", float(self._still_at), float(self._gone_at)
        if not self._gone_at:
            words = f"An entry is still on the device after {self._still_at:,} further tokens."
            why = words if self._still_at else because(self._why_no_loads(), broken_off)
            return untold(_REACH_NAME, unit, why, low=low or None)
        words = f"An entry leaves the device after between {low:,.0f} and {high:,.0f} further tokens, others' included."
        return Finding(_REACH_NAME, (low + high) / 2, unit, 1, words, low=low, high=high)


def _loads_of(tier: str, loads: Loads, broken_off: str) -> list[Finding]:
    points = loads.points
    slope = robust.slope(loads.rounds)
    if slope is None:
        why = because("prompts of one length only came from there", broken_off)
        return [untold(_MS_NAME, "ms/{token}", why, len(points), subject=tier)]
    level = robust.median([y - slope.value * x for x, y in points])
    fixed = level.value
    shortest, longest = min(x for x, _ in points), max(x for x, _ in points)
    inputs = {"rounds": [[[int(x), round(y, 3)] for x, y in group] for group in loads.rounds]}
    where = {LOWER: "a tier below the device"}.get(tier, f"the {tier} tier")
    how = "" if loads.told else ", told by its time to first token alone"
    words = f"Loading a token from {where} takes {slope.value:.3g} ms"
    words += f" ({len(points)} prompts of {shortest:,.0f} to {longest:,.0f} tokens{how})."
    middle = (shortest + longest) / 2
    whole = f"Beside that a load from {where} takes {fixed:.3g} ms: "
    whole += f"{fixed + slope.value * middle:.3g} ms in all for {middle:,.0f} tokens."
    return [
        Finding(
            _MS_NAME,
            slope.value,
            "ms/{token}",
            len(points),
            words,
            subject=tier,
            low=slope.low,
            high=slope.high,
            inputs=inputs,
        ),
        Finding(_FIXED_NAME, fixed, "ms", len(points), whole, subject=tier, low=level.low, high=level.high),
    ]
