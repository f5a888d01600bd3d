"""What one step computes: chunks of several sequences, packed one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive tokens of one sequence. start: position of the first; tokens: how many.

    block_table: KV blocks of the sequence from position 0 on, with room for start + tokens.
    """

    start: int
    tokens: int
    block_table: Sequence[int]

    @property
    def end(self) -> int:
        return self.start + self.tokens


@dataclass(frozen=True, slots=True)
class Batch:
    """token_ids: int64[T], T the sum of the chunks' tokens, in the chunks' order.

    Raises ValueError where that does not hold and for a chunk without a token.
    """

    token_ids: torch.Tensor
    chunks: tuple[Chunk, ...]

    def __post_init__(self) -> None:
        tokens = sum(chunk.tokens for chunk in self.chunks)
        if self.token_ids.shape != (tokens,) or any(chunk.tokens < 1 for chunk in self.chunks):
            raise ValueError(
                f"chunks of {tokens} tokens do not fit token ids of shape {list(self.token_ids.shape)}"
            )
