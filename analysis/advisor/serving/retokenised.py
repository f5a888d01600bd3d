"""Replies that come back as text and are cut into other tokens than the model made, so that what it made is not found.

A model need not generate the tokens by which a tokenizer would cut its text. The next turn sends the text; where the
cut differs, the cache parts there, though nobody changed a word. It shows where the tokens of a reply are told: in
responses with token ids (vLLM's `return_token_ids`, SGLang's `output_ids`), and in KV events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from analysis.advisor.learning.behaviour import Seen
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.messages.threads import threads
from analysis.advisor.learning.model import Slot
from analysis.advisor.pricing.gains import Tokens
from analysis.advisor.serving.rendered import common
from cachemodel.prompts.model import Prompt

ENDING = 2  # tokens at the end of a reply, which ends a turn otherwise than a template does
FEWEST = 2  # requests that it happens to


class _Lost(NamedTuple):
    """The request, the token at which it parts from what the cache has, tokens lost, and the part that is the reply."""

    request: int
    token: int
    lost: int
    part: int


def retokenised_slots(
    prompts: Sequence[Prompt], tokens: Sequence[Tokens], per_character: float
) -> Iterator[Slot]:
    """Replies that were sent back word by word and read as other tokens. tokens: of each prompt; per_character: tokens
    of a character, to tell the loss as a slot does."""
    if not any(prompt.reply for prompt in prompts):
        return
    told, compared = list[_Lost](), 0
    for index, thread in threads(list(enumerate(prompts))).items():
        if thread.earlier is None or (part := _sent_back(prompts[thread.earlier], prompts[index])) is None:
            continue
        compared += 1
        before = tokens[thread.earlier]
        held = np.concatenate([before, np.array(prompts[thread.earlier].reply, before.dtype)])
        same = common(held, tokens[index])
        if len(before) <= same < len(held) - ENDING:
            told.append(_Lost(index, same, len(held) - same, part))
    if len(told) >= FEWEST:
        yield _slot(prompts, told, compared, per_character)


def _sent_back(earlier: Prompt, later: Prompt) -> int | None:
    """The part of the later prompt that is the reply to the earlier one, in the words in which that was given.

    KV events tell a reply up to its last block only, and that may end within a character.
    """
    at = len(earlier.parts)
    if not earlier.reply or not earlier.response or len(later.parts) <= at:
        return None
    part, said = later.parts[at], earlier.response.strip().rstrip("\N{REPLACEMENT CHARACTER}")
    return at if said and part.role == "assistant" and part.text.strip().startswith(said) else None


def _slot(prompts: Sequence[Prompt], told: Sequence[_Lost], compared: int, per_character: float) -> Slot:
    most = max(told, key=lambda one: one.lost)
    example = prompts[most.request]
    part = example.parts[most.part]
    seen = tuple(
        Seen(one.request, f"from token {one.token:,} on", p.time, p.session, p.user)
        for one in told[:200]
        for p in (prompts[one.request],)
    )
    return Slot(
        cause=Cause.RETOKENISED,
        cluster=-1,
        path=part.path,
        role=part.role,
        offset=0,
        before="",
        after=" ".join(part.text[:60].split()[:4]),
        example=example.request_id,
        seen=seen,
        behaviour=None,
        requests=len(told),
        of=compared,
        behind=sum(one.lost for one in told) / len(told) / per_character,
        detail="the text is what the model said, in other tokens than it said it in",
        token=most.token,
    )
