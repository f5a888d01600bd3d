"""How much of a held prefix a prefix cache can serve: whole units only, never the whole prompt.

Laws seen in the field, all of one form: vLLM and SGLang reuse whole blocks (pages) and compute at least the last token;
with EAGLE or MTP vLLM drops the last matched block as well (vLLM issues 38182, 53670: one block of 1,072 tokens);
hybrid models reuse multiples of the least common multiple of their groups' blocks (vllm-ascend issue 16270: 4,096).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Alignment:
    """unit: tokens that are reused together; dropped_units: of the end of every match, computed all the same;
    computed_tokens: of a prompt that is held whole, at the least."""

    unit: int
    dropped_units: int = 0
    computed_tokens: int = 1

    def served(self, prompt_tokens: int, held_tokens: int) -> int:
        """Tokens served of a prompt of which the first `held_tokens` are in the cache."""
        usable = max(0, min(held_tokens, prompt_tokens - self.computed_tokens))
        return max(0, usable // self.unit - self.dropped_units) * self.unit

    def attainable(self, prompt_tokens: int) -> int:
        """The most that can be served of a prompt, all of it being held."""
        return self.served(prompt_tokens, prompt_tokens)
