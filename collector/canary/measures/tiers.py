"""How long it takes to load KV from each tier below the device, and how much pushes an entry down.

Prompts are sent, then fillers that nobody asks for again push them out of the device, and lastly they are asked for
once more: the first time they come from the tier they went to, then from the device. The difference of both times to
first token is the load, with what has to leave the device for it; prompts of three lengths tell what of it is by token
and what is not.

How far to push is found by doubling: markers are sent after the prompts, and one of them is looked for after each
doubling. It was sent later than the prompts, so where it is gone from the device they are too; looking keeps it alive,
so each marker is looked for once, the one placed last first. A second lot of prompts waits for the tier below the next.

A doubling can step over a tier that holds no more than the device, or find it when the prompts have left it as well.
Then markers are placed at even distances in between and looked for in one go, and prompts are pushed just so far.
"""

from __future__ import annotations

import math
import statistics

from collector.canary import robust
from collector.canary.finding import Finding, untold
from collector.canary.measures.base import MS, Measure, Options, Reuse, because
from collector.canary.measures.loads import LOWER, MS_NAME, Loads
from collector.canary.prober import Prober, Sample
from collector.canary.prompts import Prompt

LENGTHS = (0.25, 0.5, 1.0)  # of the longest
ROUNDS = 4
WARM = 3  # looks at a prompt that is on the device again: they cost little, and steady the difference
LOTS = 2  # tiers below the device
MARKERS = 12
LOOKS = 8  # in between two doublings
CLOSE = 0.2  # of its upper bound, how far the bounds of what the device holds may lie apart
FIRST_FILL = 4  # longest prompts
FURTHER = 3  # doublings past the first lower tier after which there is taken to be no other
DEVICE, GONE = "device", "gone"
_CLEARLY = 0.25  # of the way between held and computed, for servers that do not tell tiers
_REACH_NAME = "tier.device_tokens"


class TiersMeasure(Measure):
    name = "tiers"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._reuse = Reuse()
        self._loads: dict[str, Loads] = {}
        self._seen: list[tuple[int, str]] = []
        """Where markers were found, by how many tokens were sent after them."""
        self._still_at, self._gone_at, self._end = 0, 0, ""
        self._sent = self._round = 0
        self._longest, self._marker, self._lost = 1, 1, 0

    def collect(self, prober: Prober) -> None:
        longest = self._longest = prober.room(self.options.longest)
        prompts = self._reuse.calibrate(prober, longest)
        if not self._reuse.works:
            return
        held = prober.ask(prompts[-1])
        self._lost = held.tokens - held.cached if held and held.cached else 0
        # Short markers are cheaper; where the server does not tell tiers, their time has to.
        self._marker = self._length(LENGTHS[0]) if self._reuse.tiered else longest
        lots = [self._place(prober) for _ in range(LOTS)]  # the last one placed leaves the device last
        markers = self._mark(prober)
        known = self.options.device_tokens
        goal = self._sent + (FIRST_FILL * longest if known is None else round(1.25 * known))
        tier = DEVICE
        further = FURTHER
        while lots and markers and further:
            while self._sent < goal:
                self._send(prober, prober.write(longest))
            marker, placed = markers.pop()
            goal = 2 * self._sent - placed
            found = self._find(prober, marker, placed) or tier
            if found == GONE:
                self._end = GONE
                break
            if found != tier:
                tier = found
                self._load(prober, lots.pop())
                self._narrow(prober)
            elif tier != DEVICE:
                further -= 1
        self._narrow(prober)

    def _length(self, share: float) -> int:
        """Tokens of a prompt of which this share of what can be reused of the longest one can be: the units of the
        server's cache, and a last one that it drops, would hide a tier from a prompt that is no longer than they."""
        return max(1, self._lost + round((self._longest - self._lost) * share))

    def _mark(self, prober: Prober) -> list[tuple[Prompt, int]]:
        """Markers, and what was sent when each was placed. As many as doublings that the budget has room for."""
        left = prober.ledger.budget.tokens - prober.ledger.tokens
        doublings = max(1, math.ceil(math.log2(max(2.0, left / (FIRST_FILL * self._longest)))))
        markers = []
        for _ in range(min(MARKERS, doublings + 1)):
            prompt = prober.write(self._marker)
            if self._send(prober, prompt):
                markers.append((prompt, self._sent))
        return markers

    def _lot(self, prober: Prober) -> list[list[Prompt]]:
        """Prompts, by round."""
        return [[prober.write(self._length(share)) for share in LENGTHS] for _ in range(ROUNDS)]

    def _place(self, prober: Prober) -> list[list[Prompt]]:
        """A lot of prompts, sent."""
        lot = self._lot(prober)
        for prompts in lot:
            for prompt in prompts:
                self._send(prober, prompt)
        return lot

    def _send(self, prober: Prober, prompt: Prompt) -> Sample | None:
        """Send a prompt that was not sent before."""
        sample = prober.ask(prompt)
        self._sent += prompt.tokens
        return sample

    def _push(self, prober: Prober, tokens: int) -> None:
        """Send fillers of so many tokens; a rest of less than a marker is left out."""
        while tokens >= self._marker:
            filler = prober.write(min(tokens, self._longest))
            self._send(prober, filler)
            tokens -= filler.tokens

    def _find(self, prober: Prober, marker: Prompt, placed: int) -> str:
        """Where a marker is now, which is remembered; empty where it could not be asked for."""
        sample = prober.ask(marker)
        if sample is None:
            return ""
        found = self._where(sample)
        self._seen.append((self._sent - placed, found))
        gone = [distance for distance, tier in self._seen if tier != DEVICE]
        self._gone_at = min(gone, default=0)
        held = [d for d, tier in self._seen if tier == DEVICE and (not gone or d < self._gone_at)]
        self._still_at = max(held, default=0)
        return found

    def _narrow(self, prober: Prober) -> None:
        """Look between the last place on the device and the first one off it, where a tier was stepped over or the
        bounds lie far apart; then time the tiers that could not be."""
        apart = self._gone_at - self._still_at
        lacking = self._end == GONE or self._untimed()
        if self._gone_at and (lacking or apart > CLOSE * self._gone_at) and self._affords(prober):
            self._look_between(prober, self._still_at, self._gone_at)
        for tier in self._untimed():
            self._load_within(prober, tier)

    def _affords(self, prober: Prober) -> bool:
        """Whether the budget has room to look once more, with some to spare."""
        ledger = prober.ledger
        tokens = 1.25 * self._gone_at + 2 * LOOKS * self._marker
        requests = tokens / self._longest + 4 * LOOKS
        left = ledger.budget.requests - ledger.requests
        return ledger.budget.tokens - ledger.tokens >= tokens and left >= requests

    def _look_between(self, prober: Prober, low: int, high: int) -> None:
        """Markers at even distances, looked for from the last placed: what stands behind it does not move by that."""
        count = min(LOOKS, (high - low) // self._marker)
        if not count:
            return
        step = (high - low) // count
        markers = []
        for _ in range(count):
            prompt = prober.write(self._marker)
            if self._send(prober, prompt):
                markers.append((prompt, self._sent))
            self._push(prober, step - self._marker)
        self._push(prober, low)
        for marker, placed in reversed(markers):
            self._find(prober, marker, placed)

    def _untimed(self) -> list[str]:
        """Tiers that were seen and from which no load could be timed. Twice, where only time tells them."""
        least = 1 if self._reuse.tiered else 2
        seen = [tier for _, tier in self._seen if tier not in (DEVICE, GONE)]
        return [t for t in dict.fromkeys(seen) if seen.count(t) >= least and not self._timed(t)]

    def _timed(self, tier: str) -> bool:
        return tier in self._loads and robust.slope(self._loads[tier].rounds) is not None

    def _where(self, sample: Sample) -> str:
        """Where a prompt came from: device, host, remote, or lower for one of the latter, not told which. Any part that
        came from a tier shows that there is one."""
        if sample.host is not None or sample.remote is not None:
            host, remote = sample.host or 0, sample.remote or 0
            if host or remote:
                return "host" if host >= remote else "remote"
            return DEVICE if (sample.cached or 0) > self._reuse.base else GONE
        place = self._reuse.scale.place(sample.ttft_s) if self._reuse.scale else 0.0
        if self._reuse.told:
            if not self._reuse.hit(sample):
                return GONE
            place -= 1 - self._reuse.share(sample)  # the rest had to be computed
            return LOWER if self._reuse.scale and self._reuse.scale.clear and place > _CLEARLY else DEVICE
        return DEVICE if place < _CLEARLY else LOWER if place < 1 - _CLEARLY else GONE

    def _load(self, prober: Prober, lot: list[list[Prompt]]) -> None:
        """Ask for a lot again, in the order in which it was placed and leaves."""
        for prompts in lot:
            self._round += 1
            for prompt in prompts:
                self._time(prober, prompt, self._round)

    def _load_within(self, prober: Prober, tier: str) -> None:
        """Push prompts down to where a tier was seen, so many at once as it has room for, and ask for them again, the
        last one placed first."""
        seen = [distance for distance, where in self._seen if where == tier]
        low, high = min(seen), max(seen) + self._marker
        waiting = []
        for prompts in self._lot(prober):
            self._round += 1
            waiting += [(prompt, self._round) for prompt in prompts]
        while waiting:
            group = [waiting.pop(0)]
            tokens = group[0][0].tokens
            while waiting and tokens + waiting[0][0].tokens <= high - low:
                group.append(waiting.pop(0))
                tokens += group[-1][0].tokens
            for prompt, _ in group:
                self._send(prober, prompt)
            self._push(prober, max(self._marker, (low + high - tokens) // 2))
            for prompt, number in reversed(group):
                self._time(prober, prompt, number)

    def _time(self, prober: Prober, prompt: Prompt, number: int) -> None:
        """Ask for a prompt that was pushed down, and again now that it is on the device. number: of its round."""
        load = prober.ask(prompt)
        warm = [again for _ in range(WARM) if (again := prober.ask(prompt))]
        if load is None or not warm:
            return
        tier, tokens = self._loaded(load, warm[-1])
        if not tokens:
            return
        from_device_s = statistics.median(again.ttft_s for again in warm)
        loads = self._loads.setdefault(tier, Loads())
        loads.told = loads.told and load.host is not None
        point = (float(tokens), (load.ttft_s - from_device_s) * MS)
        loads.by_round.setdefault(number, []).append(point)

    def _loaded(self, load: Sample, warm: Sample) -> tuple[str, int]:
        """The tier, and tokens that came from it alone; no tokens where it was another, or several, or where a part
        had to be computed, whose time is not the load's."""
        if load.cached != warm.cached:
            return GONE, 0
        host, remote = load.host, load.remote
        if host is not None or remote is not None:
            if bool(host) == bool(remote):
                return GONE, 0
            return ("host", host) if host else ("remote", remote or 0)
        return LOWER, load.cached if load.cached is not None else load.tokens

    def findings(self, broken_off: str) -> list[Finding]:
        found = [self._reach(broken_off)]
        for tier, loads in sorted(self._loads.items()):
            found += loads.findings(tier, broken_off)
        if not self._loads:
            found.append(untold(MS_NAME, "ms/{token}", because(self._why_no_loads(), broken_off)))
        return found

    def _why_no_loads(self) -> str:
        if not self._reuse.works:
            return self._reuse.why_not
        if tiers := self._untimed():
            return f"prompts came from {' and '.join(tiers)}, too few of them whole for a time"
        if self._end == GONE:
            why = "no tier below the device: what it gives up is computed again"
            apart = self._gone_at - self._still_at
            return f"{why} (one of fewer than {apart:,} tokens would not have been seen)"
        return f"after {self._sent:,} further tokens prompts still come from the device"

    def _reach(self, broken_off: str) -> Finding:
        unit, low, high = "{token}", float(self._still_at), float(self._gone_at)
        if not self._gone_at:
            words = f"An entry is still on the device after {self._still_at:,} further tokens."
            why = words if self._still_at else because(self._why_no_loads(), broken_off)
            return untold(_REACH_NAME, unit, why, low=low or None)
        words = f"An entry leaves the device after between {low:,.0f} and {high:,.0f} further tokens, others' included."
        return Finding(_REACH_NAME, (low + high) / 2, unit, 1, words, low=low, high=high)
