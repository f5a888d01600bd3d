"""Logits to tokens."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence

import torch

from engine.request import Sampling

_GREEDY_BELOW = 1e-5
"""Temperatures that float32 cannot divide by are greedy, as in vLLM."""


class Sampler:
    """Chooses the next token of each sequence.

    A draw depends on the request's seed and on how many tokens it has, on nothing else: there is no generator whose
    state a neighbour or a preemption could move.
    """

    def choose(
        self,
        logits: torch.Tensor,
        samplings: Sequence[Sampling],
        histories: Sequence[Sequence[int]] | None = None,
    ) -> list[int]:
        """logits: float32[n, vocab]; histories: the tokens generated so far, none where it is left out.

        Greedy takes the highest logit, of equal ones the first.
        """
        tokens: list[int] = logits.argmax(-1).tolist()
        drawn = [row for row, sampling in enumerate(samplings) if sampling.temperature >= _GREEDY_BELOW]
        if drawn:
            chosen = [samplings[row] for row in drawn]
            lengths = [len(histories[row]) if histories else 0 for row in drawn]
            for row, token in zip(drawn, _draw(logits[drawn], chosen, lengths), strict=True):
                tokens[row] = token
        return tokens


@torch.inference_mode()
def _draw(logits: torch.Tensor, samplings: Sequence[Sampling], lengths: Sequence[int]) -> list[int]:
    """top_k, then top_p of what is left, then one draw by inversion of the cumulative distribution."""
    vocab = logits.shape[1]
    temperature, top_k, top_p = (
        torch.tensor(values, device=logits.device)[:, None]
        for values in (
            [sampling.temperature for sampling in samplings],
            [sampling.top_k if 0 < sampling.top_k < vocab else vocab for sampling in samplings],
            [sampling.top_p for sampling in samplings],
        )
    )
    logits, order = logits.sort(dim=-1, descending=True, stable=True)
    # The highest becomes 0 before the division, so that no temperature overflows.
    logits = (logits - logits[:, :1]) / temperature
    logits = logits.masked_fill(torch.arange(vocab, device=logits.device) >= top_k, -torch.inf)
    probabilities = logits.double().softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    # A token stays while those before it make up less than top_p: the first always does.
    probabilities = probabilities.masked_fill((before >= top_p) & (before > 0), 0.0)
    cumulative = probabilities.cumsum(-1)
    uniform = [_uniform(sampling.seed, length) for sampling, length in zip(samplings, lengths, strict=True)]
    targets = torch.tensor(uniform, dtype=torch.float64, device=logits.device)[:, None] * cumulative[:, -1:]
    places = torch.searchsorted(cumulative, targets, right=True)
    kept = (probabilities > 0).sum(-1, keepdim=True)
    drawn: list[int] = order.gather(1, places.clamp_max(kept - 1))[:, 0].tolist()
    return drawn


def _uniform(seed: int | None, length: int) -> float:
    """A number in [0, 1) that is a function of the two; without a seed, any."""
    if seed is None:
        return secrets.randbits(53) / (1 << 53)
    digest = hashlib.blake2b(f"{seed}/{length}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)
