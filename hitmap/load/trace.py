"""What the forms of traces have in common: they tell lengths, and a request is made to have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec

from cachemodel.errors import UserError
from hitmap.load.blocks import Part, Prompts
from hitmap.load.plan import Body, Planned

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 32)]
MOST_TOKENS = 1 << 24  # of a prompt; no model has so long a context


def completion(
    due_s: float,
    parts: Callable[[], Sequence[Part]],
    prompts: Prompts,
    output: float,
    template: str,
    session: str = "",
) -> Planned:
    """A request of a trace: a prompt made of `parts` when it is needed, and an answer of exactly `output` tokens.

    `ignore_eos` is vLLM's word, which SGLang and llama.cpp know as well. Its body raises UserError for a prompt beyond
    all reason.
    """

    def body(_answers: Sequence[str]) -> Body:
        pieces = parts()
        tokens = sum(part.tokens for part in pieces)
        if tokens > MOST_TOKENS:
            raise UserError(
                f"the trace has a prompt of {tokens} tokens, {MOST_TOKENS} are the most: --scale-tokens can help"
            )
        return {
            "prompt": prompts.prompt(pieces),
            "max_tokens": max(1, round(output)),
            "temperature": 0.0,
            "ignore_eos": True,
        }

    return Planned(due_s, body, {"template": template}, session)
