"""What the cache counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from cachemodel.layers import Tier


def _by_tier() -> Counter[str]:
    return Counter({str(tier): 0 for tier in Tier})


@dataclass(slots=True)
class Counts:
    """Since the start. By tier, as text.

    load_failures: matches cut short at a block that could not be read. lost: their tokens from there on. evictions:
    blocks that left this tier for want of room. dropped: those of them that went to no other. disk_failures: reads and
    writes that failed. moved_bytes: KV that came to this tier from another.
    """

    lost: int = 0
    evictions: Counter[str] = field(default_factory=_by_tier)
    dropped: Counter[str] = field(default_factory=_by_tier)
    load_failures: int = 0
    disk_failures: int = 0
    moved_bytes: Counter[str] = field(default_factory=_by_tier)


@dataclass(frozen=True, slots=True)
class TierStats:
    """Blocks. used: held by requests, so that they cannot be evicted. cached: can be found, held or not."""

    capacity: int
    used: int
    cached: int


@dataclass(frozen=True, slots=True)
class CacheStats:
    """tiers: those there are, fastest first."""

    tiers: dict[Tier, TierStats]
    counts: Counts
