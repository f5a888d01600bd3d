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

    queries: prompt tokens of tables opened. hits: those of them whose KV was there or came, by the tier that had it
    when the table was opened. load_failures: matches cut short at a block that could not be read. lost: their tokens
    from there on. evictions: blocks that left this tier for want of room. demotions: evicted blocks that came to this
    tier. dropped: evicted blocks that left this tier for none. disk_failures: reads and writes that failed.
    moved_bytes: KV that came to this tier from another.
    """

    queries: int = 0
    hits: Counter[str] = field(default_factory=_by_tier)
    lost: int = 0
    evictions: Counter[str] = field(default_factory=_by_tier)
    demotions: Counter[str] = field(default_factory=_by_tier)
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
    """tiers: those there are, fastest first. disk_error: why the disk tier failed last, empty where it did not."""

    tiers: dict[Tier, TierStats]
    counts: Counts
    disk_error: str = ""
