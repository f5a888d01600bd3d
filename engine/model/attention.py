"""Chunks against the paged KV cache: where a step's tokens go in it, and what each of them looks back at.

A sequence whose blocks are adjacent is read through a view of the pool; one whose blocks are scattered is gathered
first. Every sequence is attended alone, so that its result does not depend on who shares the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from engine.model.batch import Batch, Chunk


@dataclass(frozen=True, slots=True)
class Window:
    """What one chunk's tokens look back at.

    rows: its tokens in the batch. blocks: its blocks in the pool, a slice where they are adjacent, int64[n] else.
    keys: positions to read. mask: [tokens, keys], 0 where a token may look, -inf where not; None where all may.
    """

    rows: slice
    blocks: slice | torch.Tensor
    keys: int
    mask: torch.Tensor | None

    def attend(self, query: torch.Tensor, layer: torch.Tensor) -> torch.Tensor:
        """query: [T, kv_heads, group, head_dim]; layer: [2, blocks, block_size, kv_heads, head_dim].

        Gives [tokens, kv_heads * group * head_dim].
        """
        seen = layer[:, self.blocks] if isinstance(self.blocks, slice) else layer.index_select(1, self.blocks)
        key, value = seen.flatten(1, 2)[:, : self.keys].permute(0, 2, 1, 3).unsqueeze(2)
        query = query[self.rows].permute(1, 2, 0, 3)
        _, group, tokens, _ = query.shape
        if tokens == 1:
            # The heads that share a key are the rows of one matrix product.
            query = query.transpose(1, 2)
        else:
            key, value = key.expand(-1, group, -1, -1), value.expand(-1, group, -1, -1)
        out = functional.scaled_dot_product_attention(query, key, value, attn_mask=self.mask)
        out = out.transpose(1, 2) if tokens == 1 else out
        return out.permute(2, 0, 1, 3).reshape(tokens, -1)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a batch lives in the pool, found once a step and used by every layer.

    positions, slots: int64[T] of its tokens. last: int64[chunks], the row of each chunk's last token.
    gathered: blocks that every layer copies.
    """

    positions: torch.Tensor
    slots: torch.Tensor
    last: torch.Tensor
    windows: tuple[Window, ...]
    gathered: int


def lay_out(batch: Batch, block_size: int, device: torch.device, dtype: torch.dtype) -> Layout:
    """Raises IndexError for a block table without room for its chunk."""
    windows: list[Window] = []
    positions: list[int] = []
    slots: list[int] = []
    for chunk in batch.chunks:
        table, here = chunk.block_table, range(chunk.start, chunk.end)
        slots += [table[p // block_size] * block_size + p % block_size for p in here]
        rows = slice(len(positions), len(positions) + chunk.tokens)
        blocks = _blocks(table[: -(-chunk.end // block_size)], device)
        windows.append(Window(rows, blocks, chunk.end, _mask(chunk, device, dtype)))
        positions += here
    return Layout(
        positions=torch.tensor(positions, device=device),
        slots=torch.tensor(slots, device=device),
        last=torch.tensor([window.rows.stop - 1 for window in windows], device=device),
        windows=tuple(windows),
        gathered=sum(len(window.blocks) for window in windows if isinstance(window.blocks, torch.Tensor)),
    )


def _blocks(table: Sequence[int], device: torch.device) -> slice | torch.Tensor:
    first, last = table[0], table[-1]
    if list(table) == list(range(first, last + 1)):
        return slice(first, last + 1)
    return torch.tensor(table, device=device)


def _mask(chunk: Chunk, device: torch.device, dtype: torch.dtype) -> torch.Tensor | None:
    """Causal: a token looks at itself and at what came before; the last one at everything."""
    if chunk.tokens == 1:
        return None
    seen = torch.ones(chunk.tokens, chunk.end, dtype=torch.bool, device=device).tril(chunk.start)
    return torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, -torch.inf)
