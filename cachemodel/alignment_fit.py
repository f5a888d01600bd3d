"""Which alignment law (cachemodel/alignment.py) a cache follows, from pairs of prompt and cached tokens.

Two kinds of pairs. Where it is known how much of the prompt was held (a canary sends it twice; KV events tell), a law
either gives the cached tokens or does not. Of traffic it is not known: there a law only forbids, namely hits that are
no whole number of units or more than a prompt that is held whole could get.

A few pairs may lie (usage of aborted requests, counters that count twice, blocks that went in between). The one
assumption is that for every ten hits at most one pair does: every law that misses no more is possible, so that the true
one is among them whatever the prompts have in common, and a fit is `certain` where one law only is left. Among the
possible laws the likeliest is taken: the one under which the hits seen are least of a chance.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cachemodel.alignment import Alignment

DROPPED_UNITS = (0, 1, 2)
COMPUTED_TOKENS = (1, 0)
"""The laws that are looked for: any unit with these. 0: a prompt that is held whole is served whole."""
LIES = 0.1
"""Pairs that may lie, for each pair with a hit."""
_WORST = 0.3  # a law that misses more pairs than this share of the hits is not even a guess
# Chances of a pair under a law, by what it looks like; only their order of magnitude matters.
_TO_THE_TOP, _NONE, _LIE = 0.2, 0.2, 0.01
_RARE = 0.05  # of a dropped unit, and of prompts served whole


class Pair(NamedTuple):
    """prompt: its tokens; cached: those served; held: how many of its first tokens were in the cache, None: unknown."""

    prompt: int
    cached: int
    held: int | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """What the pairs say.

    alignment: the likeliest law. candidates: other laws that are possible too, likeliest first; certain: there are
    none. pairs: that tell something (a miss of which nothing is known tells nothing); hits: those with cached tokens.
    misfits: pairs that the law does not explain; above: of the misfits, those with more cached than it can serve of the
    whole prompt, which no eviction explains. sentence: for people.
    """

    alignment: Alignment
    candidates: tuple[Alignment, ...]
    certain: bool
    pairs: int
    hits: int
    misfits: int
    above: int
    sentence: str

    @property
    def unit_certain(self) -> bool:
        """Whether all possible laws, of which there are some, have the same unit."""
        return self._agreed(lambda law: law.unit)

    @property
    def shape_certain(self) -> bool:
        """Whether they have the same unit and dropped units: what is open is a token of prompts that are held whole."""
        return self._agreed(lambda law: (law.unit, law.dropped_units))

    def _agreed(self, of: Callable[[Alignment], object]) -> bool:
        return self.certain or (
            bool(self.candidates) and all(of(law) == of(self.alignment) for law in self.candidates)
        )


def explains(law: Alignment, pair: Pair) -> bool:
    """Whether the law gives, or where it is not known what was held allows, the cached tokens of a pair."""
    if pair.held is not None:
        return pair.cached == law.served(pair.prompt, pair.held)
    return pair.cached % law.unit == 0 and pair.cached <= law.attainable(pair.prompt)


def fit_pairs(pairs: Iterable[Pair], block: int = 1) -> Fit | None:
    """The law that the pairs follow; None where no pair has a hit, or none can be meant (hits longer than prompts).

    block: tokens of the server's blocks, where it tells them: the unit is then a multiple of it. Some hundred pairs are
    enough and take a tenth of a second; the time grows faster than their number.
    """
    counts = Counter(pair for pair in pairs if pair.held is not None or pair.cached > 0)
    fit = _fit(counts, block)
    if fit is None and any(pair.held is not None for pair in counts):
        # What was known to be held explains no hits: entries had gone, or loads failed. The hits alone may still tell.
        blind: Counter[Pair] = Counter()
        for pair, count in counts.items():
            if pair.cached > 0:
                blind[Pair(pair.prompt, pair.cached)] += count
        fit = _fit(blind, block)
    return fit


def possible_laws(counts: Mapping[Pair, int], share: float = LIES, block: int = 1) -> list[Alignment]:
    """The laws that miss at most as many pairs as this share of the hits. counts: how often each pair was seen."""
    return list(_laws(counts, share, block))


def _fit(counts: Counter[Pair], block: int) -> Fit | None:
    pairs = sum(counts.values())
    guesses = _laws(counts, _WORST, block)
    if not guesses:
        return None
    likeliest = sorted(guesses, key=lambda law: _plausibility(law, counts), reverse=True)
    best = likeliest[0]
    possible = [law for law in likeliest if guesses[law] <= _allowed(counts, LIES)]
    candidates = tuple(law for law in possible if law != best)
    certain = possible == [best]
    missed = {pair: count for pair, count in counts.items() if not explains(best, pair)}
    above = sum(count for pair, count in missed.items() if pair.cached > best.attainable(pair.prompt))
    misfits = sum(missed.values())
    words = _sentence(best, candidates, certain, counts, misfits)
    return Fit(best, candidates, certain, pairs, _hits(counts), misfits, above, words)


def _laws(counts: Mapping[Pair, int], share: float, block: int) -> dict[Alignment, int]:
    """Laws with the pairs that each misses, where these are at most this share of the hits."""
    allowed = _allowed(counts, share)
    found = {}
    for unit in _units(counts, allowed, block):
        for dropped, computed in itertools.product(DROPPED_UNITS, COMPUTED_TOKENS):
            law = Alignment(unit, dropped, computed)
            missed = _missed(law, counts, allowed)
            if missed <= allowed:
                found[law] = missed
    return found


def _missed(law: Alignment, counts: Mapping[Pair, int], enough: int) -> int:
    """How many pairs the law does not explain; counting ends at more than enough."""
    missed = 0
    for pair, count in counts.items():
        if not explains(law, pair):
            missed += count
            if missed > enough:
                break
    return missed


def _allowed(counts: Mapping[Pair, int], share: float) -> int:
    return int(share * _hits(counts))


def _hits(counts: Mapping[Pair, int]) -> int:
    return sum(count for pair, count in counts.items() if pair.cached > 0)


def _units(counts: Mapping[Pair, int], allowed: int, block: int) -> list[int]:
    """Units that divide the hits of all but `allowed` pairs."""
    hits: Counter[int] = Counter()
    for pair, count in counts.items():
        if pair.cached > 0:
            hits[pair.cached] += count
    # Of more pairs than may lie at least one is honest: the unit divides one of their hits.
    tried: set[int] = set()
    covered = 0
    for hit, count in hits.most_common():
        if covered > allowed:
            break
        tried.update(unit for unit in _divisors(hit) if unit % block == 0)
        covered += count
    if covered <= allowed:
        return []
    return sorted(unit for unit in tried if _undivided(unit, hits, allowed) <= allowed)


def _undivided(unit: int, hits: Mapping[int, int], stop_after: int) -> int:
    missed = 0
    for hit, count in hits.items():
        if hit % unit:
            missed += count
            if missed > stop_after:
                break
    return missed


def _divisors(number: int) -> Iterator[int]:
    for small in range(1, math.isqrt(number) + 1):
        if number % small == 0:
            yield small
            yield number // small


def _plausibility(law: Alignment, counts: Mapping[Pair, int]) -> tuple[float, int, int, int]:
    """Log probability; among equals the larger unit, the fewer dropped and the law of all servers known come first.

    Hits of one length without knowledge of what was held are one observation, not many: their prompts share one
    beginning. How many they are counts by its logarithm.
    """
    total = (law.dropped_units + (law.computed_tokens == 0)) * math.log(_RARE)
    by_hit: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for pair, count in counts.items():
        chance = math.log(_chance(law, pair))
        if pair.held is not None:
            total += chance * count
        else:
            group = by_hit[pair.cached]
            group[0] += chance * count
            group[1] += count
    total += sum(chance / count * (1 + math.log(count)) for chance, count in by_hit.values())
    return total, law.unit, -law.dropped_units, law.computed_tokens


def _chance(law: Alignment, pair: Pair) -> float:
    most = law.served(pair.prompt, pair.prompt if pair.held is None else pair.held)
    lie = _LIE / (pair.prompt + 1)
    if pair.cached > most or pair.cached % law.unit:
        return lie
    spread = (1 - _LIE) / (most // law.unit + 1)
    if pair.held is not None:
        return (
            1 - LIES if pair.cached == most else LIES * spread
        )  # less than was held: some of it was not loaded
    at_the_top, at_none = _TO_THE_TOP * (pair.cached == most), _NONE * (pair.cached == 0)
    return at_the_top + at_none + (1 - _TO_THE_TOP - _NONE) * spread


def in_words(law: Alignment) -> str:
    """A law as half a sentence, such as "hits come in units of 16 tokens"."""
    if law.unit == 1:
        words = "hits end at any token"
        if law.dropped_units:
            words += f", {law.dropped_units} short of what matches"
    else:
        words = f"hits come in units of {law.unit:,} tokens"
        if law.dropped_units:
            dropped = "the last one" if law.dropped_units == 1 else f"the last {law.dropped_units}"
            words += f", of which every match loses {dropped}"
    if law.computed_tokens == 0:
        words += ", and a prompt that is held whole can be served whole"
    return words


def _sentence(
    best: Alignment,
    candidates: tuple[Alignment, ...],
    certain: bool,
    counts: Mapping[Pair, int],
    misfits: int,
) -> str:
    pairs = sum(counts.values())
    words = f"{in_words(best)} ({pairs:,} pairs of prompt and cached tokens"
    words += f", {misfits:,} of which do not fit)" if misfits else ")"
    words = words[0].upper() + words[1:]
    if certain:
        return words + "."
    if not candidates:
        return words + "; too many do not fit for this to be sure: prompts of known lengths would tell."
    return f"{words}; not certain: {_open(best, candidates)}. {_needs(best, candidates, counts)}"


def _open(best: Alignment, candidates: tuple[Alignment, ...]) -> str:
    """What the possible laws differ in."""
    units = sorted({law.unit for law in candidates} - {best.unit}, reverse=True)
    same = [law for law in candidates if law.unit == best.unit]
    parts = []
    if units:
        shown = ", ".join(f"{unit:,}" for unit in units[:3]) + (", ..." if len(units) > 3 else "")
        parts.append(f"units of {shown} explain the hits as well")
    if any(law.dropped_units != best.dropped_units for law in same):
        parts.append("whether every match loses its last unit is open")
    if any(law.computed_tokens != best.computed_tokens for law in same):
        parts.append("whether a whole prompt can be served is open")
    return ", and ".join(parts) or "other laws explain the hits as well"


def _needs(best: Alignment, candidates: tuple[Alignment, ...], counts: Mapping[Pair, int]) -> str:
    """What would decide between them."""
    if all(pair.held is None for pair in counts):
        return "It needs prompts of which it is known what was held: a canary sends some twice, KV events tell too."
    if any(law.unit != best.unit for law in candidates):
        longest = max(law.unit * (law.dropped_units + 2) for law in (best, *candidates))
        return f"Prompts longer than {longest:,} tokens, sent twice, would tell."
    return (
        f"Prompts of a whole number of {best.unit:,} tokens, and of one token more, sent twice, would tell."
    )
