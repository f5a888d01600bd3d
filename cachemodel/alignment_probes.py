"""Which prompts a canary sends to find the alignment law of a cache with the fewest tokens.

A probe is a prompt of `prompt` tokens that nobody sent before, of which the first `held` are sent once and then all of
them: the second call's cached tokens are what the law gives for it. Short prompts come first, twice as long each time,
until one hits; from then on each probe is chosen where the laws that are still possible differ, at the least tokens for
the laws it rules out.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cachemodel.alignment import Alignment
from cachemodel.alignment_fit import Pair, possible_laws

FIRST_PROMPT = 40
"""Tokens of the first probe: two blocks of the smallest usual size, and some more."""


@dataclass(frozen=True, slots=True)
class Probe:
    """prompt: tokens of the call that is measured; held: of these, those that were sent before it."""

    prompt: int
    held: int

    @property
    def tokens(self) -> int:
        """Prompt tokens of both calls."""
        return self.prompt + self.held


def designed_probes(pairs: Iterable[Pair], longest: int) -> list[Probe]:
    """The probes that are needed after these pairs, the most telling one first; none where the law is certain, or no
    prompt of up to `longest` tokens can tell more.

    pairs: of earlier probes, with what was held. Send the first probe, add its pair and ask again: later ones change
    with what it shows. Before the first hit it is the whole series of lengths, of which a hit ends the rest.
    """
    counts = Counter(pair for pair in pairs if pair.held is not None)
    if not any(pair.cached for pair in counts):
        return _doubling(max((pair.prompt for pair in counts), default=0), longest)
    laws = possible_laws(counts)
    chosen: list[Probe] = []
    groups = [laws]
    while any(len(group) > 1 for group in groups):
        probe = _most_telling(groups, longest)
        if probe is None:
            break
        chosen.append(probe)
        groups = [part for group in groups for part in _split(group, probe)]
    return chosen


def _doubling(tried: int, longest: int) -> list[Probe]:
    length = FIRST_PROMPT
    while length <= tried:
        length *= 2
    found = []
    while length < longest:
        found.append(Probe(length, length))
        length *= 2
    if tried < longest and longest > 0:
        found.append(Probe(longest, longest))
    return found


def _most_telling(groups: Sequence[Sequence[Alignment]], longest: int) -> Probe | None:
    """Bits learned for each token, the laws being equally likely."""
    best, most = None, 0.0
    for probe in _options([law for group in groups for law in group], longest):
        bits = sum(_bits(group, probe) for group in groups)
        if bits / probe.tokens > most:
            best, most = probe, bits / probe.tokens
    return best


def _bits(laws: Sequence[Alignment], probe: Probe) -> float:
    parts = _split(laws, probe)
    return len(laws) * math.log2(len(laws)) - sum(len(part) * math.log2(len(part)) for part in parts)


def _split(laws: Sequence[Alignment], probe: Probe) -> list[list[Alignment]]:
    """The laws by what each expects of a probe."""
    parts: dict[int, list[Alignment]] = defaultdict(list)
    for law in laws:
        parts[law.served(probe.prompt, probe.held)].append(law)
    return list(parts.values())


def _options(laws: Sequence[Alignment], longest: int) -> list[Probe]:
    """Lengths at which the hits of some law grow by a unit, and what lies just beside them."""
    lengths = {
        law.unit * (units + law.dropped_units) + beside
        for law in laws
        for units in (1, 2, 3)
        for beside in (0, 1, 2)
    }
    shortest = sorted(length for length in lengths if 0 < length <= longest)
    options = [Probe(length, length) for length in shortest]
    # held in part, with a rest that no law counts: tells a dropped unit of one token from a token that is computed
    options += [Probe(length + 2, length) for length in shortest if length + 2 <= longest]
    return sorted(options, key=lambda probe: probe.tokens)
