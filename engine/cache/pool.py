"""KV on the device: one tensor of blocks, and which of them are free."""

from __future__ import annotations

import math

import torch

from cachemodel.errors import UserError
from engine.config import EngineConfig
from engine.model.config import ModelConfig
from engine.model.load import DTYPES


def block_shape(model: ModelConfig, config: EngineConfig) -> tuple[int, int, int, int, int]:
    """Of one block: layers, key and value, tokens, KV heads, head size."""
    return (model.num_hidden_layers, 2, config.block_size, model.num_key_value_heads, model.head_dim)


def allocate(
    shape: tuple[int, ...], dtype: torch.dtype, blocks: str, *, device: str = "cpu", pinned: bool = False
) -> torch.Tensor:
    """Zeroed memory for a tier. blocks: the setting that asked for it. Raises UserError where there is not so much."""
    try:
        return torch.zeros(shape, dtype=dtype, device=torch.device(device), pin_memory=pinned)
    except (RuntimeError, TypeError, OverflowError) as error:  # the others: no tensor can have that size
        size = math.prod(shape) * dtype.itemsize / 2**30
        raise UserError(
            f"no {size:.1f} GiB of memory for the KV cache on the {'host' if pinned else device}: choose fewer {blocks}"
        ) from error


class DevicePool:
    """kv: Tensor[layers, 2, blocks, block_size, kv_heads, head_dim].

    Runs of adjacent blocks are preferred, so that the model can read them as a view. capacity, free: blocks that may be
    used, and those of them that nobody has. owed: blocks still to be given back since it was made smaller. poison: fill
    freed blocks with NaN, so that reading one shows.
    """

    def __init__(self, model: ModelConfig, config: EngineConfig, *, poison: bool = False) -> None:
        layers, two, *rest = block_shape(model, config)
        self.total = config.device_blocks
        self.kv = allocate(
            (layers, two, self.total, *rest), DTYPES[config.dtype], "device_blocks", device=config.device
        )
        self._is_free = bytearray(b"\1" * self.total)
        self._poison = poison
        self._withheld: list[int] = []
        self.free = self.total
        self.owed = 0

    @property
    def capacity(self) -> int:
        """Blocks that may be used."""
        return self.total - self.withheld

    @property
    def withheld(self) -> int:
        """Blocks that may not be used, those still to be given back (`owed`) included."""
        return len(self._withheld) + self.owed

    def block(self, number: int) -> torch.Tensor:
        """A view: Tensor[layers, 2, block_size, kv_heads, head_dim]."""
        return self.kv[:, :, number]

    def take(self, count: int, after: int | None = None) -> list[int]:
        """`count` blocks out of at least that many free ones; if possible those that follow `after`."""
        taken: list[int] = []
        if after is not None:
            while len(taken) < count and after + 1 < self.total and self._is_free[after + 1]:
                after += 1
                taken.append(self._mark(after))
        run = count - len(taken)
        while len(taken) < count:
            run = min(run, count - len(taken))
            start = self._is_free.find(b"\1" * run)
            if start < 0:
                run = (run + 1) // 2
            else:
                taken.extend(self._mark(number) for number in range(start, start + run))
        return taken

    def give(self, number: int) -> None:
        """Take a block back."""
        if self._is_free[number]:
            raise ValueError(f"device block {number} is free already")
        if self._poison:
            self.block(number).fill_(float("nan"))
        if self.owed:
            self.owed -= 1
            self._withheld.append(number)
        else:
            self._is_free[number] = 1
            self.free += 1

    def resize(self, capacity: int) -> None:
        """Use `capacity` blocks at most, between 0 and all; what is taken now is owed until it comes back."""
        target = self.total - min(max(0, capacity), self.total)
        while self.withheld > target:
            if self.owed:
                self.owed -= 1
            else:
                self._is_free[self._withheld.pop()] = 1
                self.free += 1
        while self.withheld < target:
            if self.free:
                self._withheld.append(self._mark(self._is_free.rfind(1)))
            else:
                self.owed += 1

    def state(self) -> tuple[set[int], set[int]]:
        """The free blocks and the withheld ones."""
        return {number for number, free in enumerate(self._is_free) if free}, set(self._withheld)

    def _mark(self, number: int) -> int:
        self._is_free[number] = 0
        self.free -= 1
        return number
