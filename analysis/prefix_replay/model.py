"""What a replay is given and what it gives back.

Tokens are token ids, points in time Unix seconds; not known is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cachemodel.errors import UserError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Hashes = NDArray[np.uint64]
Tokens = NDArray[np.uint32]


@dataclass(frozen=True)
class Ragged:
    """n lists one after the other; list i is values[offsets[i] : offsets[i + 1]]. offsets: (n + 1,)."""

    values: NDArray[Any]
    offsets: Ints

    @classmethod
    def empty(cls, n: int, kind: type[np.generic] = np.int64) -> Ragged:
        """n lists without anything in them."""
        return cls(np.zeros(0, kind), np.zeros(n + 1, np.int64))

    @property
    def lengths(self) -> Ints:
        """(n,) How long each list is."""
        lengths: Ints = np.diff(self.offsets)
        return lengths


@dataclass(frozen=True)
class Requests:
    """n prompts in order of arrival.

    tokens, offsets: of the prompts, as in Ragged. isolation: (n,) what keeps a prompt's blocks from others (a number of
    its salt and adapter), 0 for nothing. sent, first_token, done: (n,). reads_off: (n,) options that keep the cache
    from being read; it is written all the same. breakpoints: token positions up to which the sender asked for a cache
    entry. parts: positions at which the content blocks of a prompt end, for caches that look back by them. replies: the
    tokens generated. Left out: nothing of the kind is known, and for times one request follows the other.

    Raises UserError where columns do not fit each other or requests are not in order of arrival.
    """

    tokens: Tokens
    offsets: Ints
    isolation: Hashes | None = None
    sent: Floats | None = None
    first_token: Floats | None = None
    done: Floats | None = None
    reads_off: Flags | None = None
    breakpoints: Ragged | None = None
    parts: Ragged | None = None
    replies: Ragged | None = None
    n: int = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.offsets) - 1
        object.__setattr__(self, "n", n)
        _check(Ragged(self.tokens, self.offsets), n, "offsets")
        for name in ("isolation", "sent", "first_token", "done", "reads_off"):
            column = getattr(self, name)
            if column is not None and column.shape != (n,):
                raise UserError(f"{name} has shape {column.shape} for {n} prompts: give one value a prompt")
        for name in ("breakpoints", "parts", "replies"):
            ragged = getattr(self, name)
            if ragged is not None:
                _check(ragged, n, name)
        if self.sent is not None and (np.diff(self.sent[~np.isnan(self.sent)]) < 0).any():
            raise UserError("sent goes back: sort the requests by when they were sent")

    @property
    def lengths(self) -> Ints:
        """(n,) Tokens of each prompt."""
        lengths: Ints = np.diff(self.offsets)
        return lengths


@dataclass(frozen=True)
class Served:
    """(n,) tokens each. served: of the prompt, from the cache. held: the longest beginning of the prompt that the cache
    had when it was asked, in the units in which it keeps them, before alignment, minimum and options took their
    part."""

    served: Ints
    held: Ints


def _check(ragged: Ragged, n: int, name: str) -> None:
    offsets = ragged.offsets
    if (
        len(offsets) != n + 1
        or offsets[0] != 0
        or offsets[-1] != len(ragged.values)
        or (np.diff(offsets) < 0).any()
    ):
        raise UserError(
            f"{name} do not cut {len(ragged.values)} values into {n} lists: begin at 0, ascend, end there"
        )
