"""KV in host memory: one tensor of slots, pinned where the device is a GPU."""

from __future__ import annotations

import torch

from engine.cache.pool import allocate


class HostTier:
    """kv: Tensor[slots, layers, 2, block_size, kv_heads, head_dim], so that a slot is one run of bytes.

    Raises UserError where there is not so much memory.
    """

    def __init__(self, capacity: int, shape: tuple[int, ...], dtype: torch.dtype, *, pinned: bool) -> None:
        self.capacity = capacity
        self.kv = allocate((capacity, *shape), dtype, "host_blocks", pinned=pinned)
        self.free = list(range(capacity - 1, -1, -1))

    def take(self) -> int | None:
        """A free slot, if there is one."""
        return self.free.pop() if self.free else None

    def give(self, slot: int) -> None:
        """Take a slot back."""
        self.free.append(slot)
