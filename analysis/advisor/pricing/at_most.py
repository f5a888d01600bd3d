"""What stands behind a slot: the tokens that would be found again, if nothing else were in the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from itertools import pairwise

import numpy as np

from analysis.advisor.learning.model import Slot
from analysis.advisor.pricing.gains import PICTURES, Counts, Numbers, Replayed, Tokens
from analysis.advisor.rewriting.rules import Rule
from cachemodel.prompts.model import Prompt

RUN = 8  # tokens that are known again: fewer are alike by chance
LOOKED_AT = 2_000_000  # computed tokens whose runs are looked at, all of them
CHUNK = 500_000  # computed tokens that are hashed at once


def per_character(prompts: Sequence[Prompt], tokens: int, picture_tokens: int) -> float:
    """Tokens of a character of text."""
    characters = sum(len(p.text) for prompt in prompts for p in prompt.parts if p.kind not in PICTURES)
    pictures = sum(p.kind in PICTURES for prompt in prompts for p in prompt.parts)
    return max(0, tokens - pictures * picture_tokens) / max(1, characters)


class AtMost:
    """Of all prompts that were learned from, of which the last were replayed. per_character: tokens of text."""

    def __init__(self, prompts: Sequence[Prompt], replayed: Replayed, per_character: float) -> None:
        self._n, self._recent = len(prompts), len(replayed.tokens)
        self._per_character, self._again = per_character, sent_before(replayed.tokens, replayed.served)

    def with_rules(self, replayed: Replayed, rules: Sequence[Rule]) -> AtMost:
        """The same where these rules are in place: what they mend, no other slot keeps from the cache any more."""
        told = copy(self)
        served = replayed.rewritten(rules).served
        told._again = np.minimum(self._again, sent_before(replayed.tokens_with(rules), served))
        return told

    def __call__(self, slot: Slot) -> int:
        """Tokens of the requests replayed that are computed for the slot if for nothing else: behind it, and sent
        before. Of a request that found them all the same, those are none, nor of what nobody sent before it."""
        behind = slot.behind * self._per_character
        own = [one for at in _about(slot) if (one := at - (self._n - self._recent)) >= 0]
        each = float(np.minimum(self._again[own], behind).mean()) if own else behind
        lost = slot.requests if slot.anew is None else min(slot.anew, slot.requests)
        return round(min(lost * each * self._recent / self._n, float(self._again.sum())))


def sent_before(tokens: Sequence[Tokens], served: Counts, most: int = LOOKED_AT) -> Counts:
    """(n,) How many of the tokens that each request had computed an earlier one had sent: as many of them as of the
    runs of RUN that these are in.

    Tokens that were served are known to be so, and hold nothing that was not computed once, so they are not looked at.
    Where more than `most` were computed, some of the runs are, chosen by what they say.
    """
    computed = np.array([len(one) for one in tokens], dtype=np.int64) - served
    one_in = max(1, -(-int(computed.sum()) // most))
    bounds = np.searchsorted(np.cumsum(computed), np.arange(0, computed.sum() + CHUNK, CHUNK))
    bounds[0], bounds[-1] = 0, len(tokens)
    told = [
        _runs(tokens[begin:end], served[begin:end], begin, one_in)
        for begin, end in pairwise(np.unique(bounds).tolist())
    ]
    runs = np.concatenate([one for one, _ in told]) if told else np.zeros(0, np.uint64)
    request = np.concatenate([one for _, one in told]) if told else np.zeros(0, np.int64)
    _, first, which = np.unique(runs, return_index=True, return_inverse=True)
    again = request[first][which] < request
    seen, found = (np.bincount(of, minlength=len(tokens)) for of in (request, request[again]))
    return np.asarray(computed * found // np.maximum(seen, 1))


def _runs(tokens: Sequence[Tokens], served: Counts, number: int, one_in: int) -> tuple[Numbers, Counts]:
    """Hashes of the runs that hold computed tokens, one in so many of them, and whose they are. number: of the first
    request."""
    lead = np.minimum(served, RUN - 1)  # of what was served, a run that reaches over its end
    some = [one[at:] for one, at in zip(tokens, (served - lead).tolist(), strict=True)]
    lengths = np.array([len(one) for one in some], dtype=np.int64)
    ends, request = np.cumsum(lengths), np.repeat(np.arange(len(some)), lengths)
    hashes = _hashes(np.concatenate(some))
    whole = np.arange(len(hashes)) + RUN <= ends[request[: len(hashes)]]
    chosen = np.flatnonzero(whole & ((hashes >> np.uint64(40)) % np.uint64(one_in) == 0))
    return hashes[chosen], request[chosen] + number


def _hashes(tokens: Tokens) -> Numbers:
    """Of each RUN of neighbours (m - RUN + 1,)."""
    told = np.zeros(max(0, len(tokens) - RUN + 1), dtype=np.uint64)
    for at in range(RUN):
        told = (told ^ tokens[at : at + len(told)]) * np.uint64(0x9E3779B97F4A7C15)
        told ^= told >> np.uint64(29)
    return told


def _about(slot: Slot) -> list[int]:
    """Requests that pay for the slot, of those that were looked at: that have a value there which none before them had;
    where what stands there is no value, those it breaks, else all that have not what most have."""
    values = [one.value for one in slot.seen]
    if slot.anew is not None:
        firsts = {
            value: one.request for value, one in zip(reversed(values), reversed(slot.seen), strict=True)
        }
        return sorted(firsts.values())[1:]
    requests = list(dict.fromkeys(one.request for one in slot.seen))
    usual, often = Counter(values).most_common(1)[0] if values else ("", 0)
    if _all_pay(slot, len(requests)) or 2 * often <= len(values):
        return requests
    return [one.request for one in slot.seen if one.value != usual] or requests


def _all_pay(slot: Slot, looked_at: int) -> bool:
    """Whether none was looked at that it does not break, as in conversations that were changed."""
    paying = slot.requests * looked_at / slot.of if slot.compared else slot.requests
    return paying >= looked_at
