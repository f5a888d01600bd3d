"""Blocks that nobody used for a while are forgotten, on whatever tier they are."""

from __future__ import annotations

import math
from collections.abc import Callable

from engine.cache.block import CachedBlock
from engine.cache.tiers import Tiers

LOOKS = 10
"""In the time that a block lives: it goes at most a tenth of that too late."""


class Expiry:
    """ttl_s: seconds from a block's last use to its end, 0 for none. clock: the index's."""

    def __init__(self, tiers: Tiers, ttl_s: float, clock: Callable[[], float]) -> None:
        self._tiers, self._ttl_s, self._clock = tiers, ttl_s, clock
        self._next = -math.inf

    def look(self) -> float | None:
        """Forget what is due; seconds until the next look, None where blocks live for ever or there is none."""
        if not self._ttl_s or not any(self._tiers.index.cached):
            return None
        now = self._clock()
        if now >= self._next:
            self._next = now + self._ttl_s / LOOKS
            for block in self._due(now - self._ttl_s):
                self._tiers.forget(block)
        return self._next - now

    def _due(self, before: float) -> list[CachedBlock]:
        """The first blocks of chains that end. Who uses a block uses those ahead of it, so what follows is due too."""
        due: list[CachedBlock] = []
        ahead = [block for root in self._tiers.index.roots() for block in root.children.values()]
        while ahead:
            block = ahead.pop()
            if not block.refs and block.used_at <= before:
                due.append(block)
            else:
                ahead.extend(block.children.values())
        return due
