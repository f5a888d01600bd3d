"""What is behind one address: the same prompt again and again, each time over a connection of its own.

Of n calls the first misses. If calls go to one of R caches at random, each cache misses once, when it is first met: the
number of misses is the number of different caches that n draws out of R meet. The likeliest R, and all that are not
worse by a factor of e^1.92 (95 % by the likelihood ratio), are the answer; a router that knows where the prefix is,
or a single cache, misses once.
"""

from __future__ import annotations

import math
from functools import cache

from collector.canary.finding import Finding, untold
from collector.canary.measures.base import Measure, Options, Reuse, because
from collector.canary.prober import Prober

PROMPTS = 3
MOST_CACHES = 256
_LIKELIHOOD_DROP = 1.92


class ReplicasMeasure(Measure):
    name = "replicas"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._reuse = Reuse()
        self._rows: list[list[bool]] = []

    def collect(self, prober: Prober) -> None:
        tokens = prober.room(self.options.longest)
        for _ in range(PROMPTS):
            prompt = prober.write(tokens)
            first = prober.ask(prompt, fresh=True)
            if first is None:
                continue
            samples = []
            for _ in range(self.options.repeats - 1):
                sample = prober.ask(prompt, fresh=True)
                if sample:
                    samples.append(sample)
            fastest = min(samples, key=lambda sample: sample.ttft_s, default=None)
            most = max(
                (s for s in samples if s.cached is not None), key=lambda s: s.cached or 0, default=fastest
            )
            self._reuse.learn(first, most)
            self._rows.append([False, *(self._reuse.hit(sample) for sample in samples)])

    def findings(self, broken_off: str) -> list[Finding]:
        rows = [row for row in self._rows if len(row) > 1]
        calls = sum(len(row) for row in rows)
        again = calls - len(rows)
        if not rows or not self._reuse.works:
            why = because(self._reuse.why_not, broken_off)
            return [
                untold("replicas.hit_share", "1", why, again),
                untold("replicas.caches", "{cache}", why, again),
            ]
        hits = sum(sum(row) for row in rows)
        inputs = {"hits": ["".join(".H"[hit] for hit in row) for row in rows]}
        share = Finding(
            "replicas.hit_share",
            hits / again,
            "1",
            again,
            f"Of {again} calls with a prompt sent before, {hits} were reused (by {self._reuse.by}).",
            inputs=inputs,
        )
        return [share, _caches(rows, again, inputs)]


def _caches(rows: list[list[bool]], again: int, inputs: dict[str, list[str]]) -> Finding:
    name, unit = "replicas.caches", "{cache}"
    misses = [row.count(False) for row in rows]
    likely = {
        caches: sum(_log_chance(count, len(row), caches) for count, row in zip(misses, rows, strict=True))
        for caches in range(1, MOST_CACHES + 1)
    }
    best = max(likely, key=lambda caches: likely[caches])
    if likely[best] == -math.inf:
        return untold(name, unit, "more misses than caches can explain: entries are lost in between", again)
    inside = [caches for caches, told in likely.items() if told >= likely[best] - _LIKELIHOOD_DROP]
    low, high = float(min(inside)), float(max(inside)) if max(inside) < MOST_CACHES else None
    if met := _in_turn(rows):
        words = f"{met} caches behind this address, and calls go to one after the other."
        return Finding(name, float(met), unit, again, words, low=float(met), high=float(met), inputs=inputs)
    if best == 1:
        words = "One cache, or a router that sends a prompt where its prefix is: only the first call missed."
    elif high is None:
        words = f"At least {low:.0f} caches behind this address, or none that keeps anything: too few calls to tell."
        return untold(name, unit, words, again, low=low, inputs=inputs)
    else:
        words = f"About {best} caches behind this address, and calls go to any of them."
    return Finding(name, float(best), unit, again, words, low=low, high=high, inputs=inputs)


def _in_turn(rows: list[list[bool]]) -> int:
    """How many caches are met in turn: as many misses in every row, all before its first hit, and a whole round of hits
    after them. 0 where that is not so, or a single cache would do the same."""
    met = rows[0].count(False)
    alike = all(row == [False] * met + [True] * (len(row) - met) and len(row) >= 2 * met for row in rows)
    return met if alike and met > 1 and len(rows) > 1 else 0


@cache
def _log_chance(met: int, calls: int, caches: int) -> float:
    """Log of the chance that `calls` draws out of `caches` meet `met` different ones."""
    if met > caches or met > calls:
        return -math.inf
    ways = math.comb(caches, met) * math.factorial(met) * _partitions(calls, met)
    return math.log(ways) - calls * math.log(caches)


@cache
def _partitions(items: int, groups: int) -> int:
    """Into how many ways items fall into groups, none of them empty (Stirling's numbers of the second kind)."""
    ways = [1, *[0] * groups]  # of no item yet, by groups
    for _ in range(items):
        for count in range(groups, 0, -1):
            ways[count] = count * ways[count] + ways[count - 1]
        ways[0] = 0
    return ways[groups]
