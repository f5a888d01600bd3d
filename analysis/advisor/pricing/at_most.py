"""What stands behind a slot: the tokens that would be found again, if nothing else were in the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from analysis.advisor.learning.model import Slot
from analysis.advisor.pricing.gains import PICTURES, Replayed
from cachemodel.prompts.model import Prompt


def per_character(prompts: Sequence[Prompt], tokens: int, picture_tokens: int) -> float:
    """Tokens of a character of text."""
    characters = sum(len(p.text) for prompt in prompts for p in prompt.parts if p.kind not in PICTURES)
    pictures = sum(p.kind in PICTURES for prompt in prompts for p in prompt.parts)
    return max(0, tokens - pictures * picture_tokens) / max(1, characters)


def at_most(slot: Slot, replayed: Replayed, per_character: float, n: int) -> int:
    """Tokens of the requests replayed, of n that were learned from, that are computed for the slot if for nothing else:
    behind it and sent before. Of a request that found them all the same, those are none."""
    recent = len(replayed.tokens)
    own = [one for at in _about(slot) if (one := at - (n - recent)) >= 0]
    computed = replayed.sent.computed
    behind = slot.behind * per_character
    each = float(np.minimum(computed[own], behind).mean()) if own else behind
    lost = slot.requests if slot.anew is None else min(slot.anew, slot.requests)
    return round(min(lost * each * recent / n, float(computed.sum())))


def _about(slot: Slot) -> list[int]:
    """Requests that pay for the slot, of those that were looked at: that have a value there which none before them had;
    where what stands there is no value, all that have not what most have."""
    values = [one.value for one in slot.seen]
    if slot.anew is not None:
        firsts = {
            value: one.request for value, one in zip(reversed(values), reversed(slot.seen), strict=True)
        }
        return sorted(firsts.values())[1:]
    usual, often = Counter(values).most_common(1)[0] if values else ("", 0)
    most = 2 * often > len(values)
    return [one.request for one in slot.seen if not most or one.value != usual] or [
        one.request for one in slot.seen
    ]
