"""A model for those who have none at hand: a folder like any other, with weights that are drawn instead of stored.

Its text means nothing; its work is real. It is sized so that one CPU core computes some 2,000 to 5,000 prompt tokens a
second and a step of eight sequences takes some 10 ms: slow enough that a lost prefix cache is felt.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from engine.model.config import ModelConfig
from engine.model.tokenizer import Tokenizer
from engine.model.weights import Tensors, shapes

FOLDER = Path(__file__).parent
NAME = "hitmap-demo"

_GAINS = {"q_proj": 1.5, "k_proj": 1.5, "lm_head": 3.0}
"""Standard deviation of what a matrix makes of inputs near 1, where it is not 1. Sharper attention makes the output
depend on the whole prompt; a larger spread of the logits sets the likeliest tokens apart."""


def draw_weights(config: ModelConfig, seed: int, mute: Sequence[int] = ()) -> Tensors:
    """The same on every machine for one seed: uniform numbers, since those are exact everywhere.

    mute: tokens whose logit is always 0, and so never the highest.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        if len(shape) == 1:  # a norm's weights
            return torch.ones(shape)
        part = name.split(".")[-2]
        deviation = 1.0 if part == "embed_tokens" else _GAINS.get(part, 1.0) / shape[1] ** 0.5
        return (torch.rand(shape, generator=generator) - 0.5) * (12**0.5 * deviation)

    tensors = {name: draw(name, shape) for name, shape in shapes(config).items()}
    tensors["lm_head.weight"][list(mute)] = 0.0
    return tensors


def unreadable(tokenizer: Tokenizer, vocab_size: int) -> list[int]:
    """Tokens that are no text of their own: pieces of characters, control codes, special ones but the end."""
    texts = ((token, tokenizer.decode([token])) for token in range(vocab_size))
    return [token for token, text in texts if token not in tokenizer.eos_token_ids and not _is_readable(text)]


def _is_readable(text: str) -> bool:
    return bool(text) and "\ufffd" not in text and text.replace("\n", " ").isprintable()
