"""What stands behind a slot: the tokens that would be found again, if nothing else were in the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from analysis.advisor.learning.messages.examples import key
from analysis.advisor.learning.model import Slot
from analysis.advisor.pricing.gains import PICTURES, Replayed
from cachemodel.prompts.model import Prompt


def per_character(prompts: Sequence[Prompt], tokens: int, picture_tokens: int) -> float:
    """Tokens of a character of text."""
    characters = sum(len(p.text) for prompt in prompts for p in prompt.parts if p.kind not in PICTURES)
    pictures = sum(p.kind in PICTURES for prompt in prompts for p in prompt.parts)
    return max(0, tokens - pictures * picture_tokens) / max(1, characters)


class AtMost:
    """Of all prompts that were learned from, of which the last were replayed. per_character: tokens of text."""

    def __init__(self, prompts: Sequence[Prompt], replayed: Replayed, per_character: float) -> None:
        self._n, self._recent = len(prompts), prompts[len(prompts) - len(replayed.tokens) :]
        self._computed, self._per_character = replayed.sent.computed, per_character
        self._new = _new_parts(self._recent)

    def __call__(self, slot: Slot) -> int:
        """Tokens of the requests replayed that are computed for the slot if for nothing else: behind it, and sent
        before. Of a request that found them all the same, those are none, and what it asks anew is computed anyway."""
        recent, behind = len(self._recent), slot.behind * self._per_character
        own = [one for at in _about(slot) if (one := at - (self._n - recent)) >= 0]
        anyway = np.array([self._asked_now(one, slot) for one in own]) * self._per_character
        found = np.maximum(0, self._computed[own] - anyway)
        each = float(np.minimum(found, behind).mean()) if own else behind
        lost = slot.requests if slot.anew is None else min(slot.anew, slot.requests)
        return round(min(lost * each * recent / self._n, float(self._computed.sum())))

    def _asked_now(self, request: int, slot: Slot) -> int:
        """Characters at the end of a request, behind the slot, that no request before it had."""
        characters = 0
        for part, new in zip(
            reversed(self._recent[request].parts), reversed(self._new[request]), strict=True
        ):
            if not new or part.path == slot.path:
                break
            characters += len(part.text)
        return characters


def _new_parts(prompts: Sequence[Prompt]) -> list[list[bool]]:
    """Of each part of each prompt, whether none before it had one like it."""
    known, told = set[tuple[str, str, str]](), list[list[bool]]()
    for prompt in prompts:
        keys = [key(part) for part in prompt.parts]
        told.append([one not in known for one in keys])
        known.update(keys)
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
