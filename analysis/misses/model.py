"""What the ladder reads and what it tells, as columns. Times are microseconds since 1970, counts are tokens.

A *holder* is one cache: a rank of a server. A block is held under (content, isolation), see cachemodel/content.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from cachemodel.alignment import Alignment

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Flags = NDArray[np.bool_]
NOT_TOLD = -1
"""Where a count or a time is not known."""


class Action(IntEnum):
    """What an event did; the rest of `kv_events.action` concerns nobody here."""

    STORED = 1
    REMOVED = 2
    CLEARED = 3
    GAP = 4
    RESTART = 5


@dataclass(frozen=True)
class Chains:
    """n requests in order of arrival, with the m blocks of their prompts one after the other.

    holder: the cache that served it, NOT_TOLD where its server has several. server: index of `servers`. arrived; began:
    when the server began on it (arrival where not told); first_token: NOT_TOLD where unknown. isolation: of its blocks.
    prompt: tokens. cached: tokens served, NOT_TOLD where nothing tells. recomputed: tokens computed again after a
    preemption, NOT_TOLD. block_size: tokens. reads_off: an option of the request kept the cache from being read.
    blocks: m contents; request i has blocks[offsets[i]:offsets[i + 1]]. split_depth, split_tokens: how many tokens of
    block `split_depth`, the first that was new when the request was seen, another chain shares. pieces, piece_tokens:
    hashes and lengths of the content-defined pieces of the tokens from pieces_from on, with offsets of their own.
    known: False where the chain of a request is not known; it has no blocks then.
    """

    servers: tuple[str, ...]
    server: Ints
    holder: Ints
    arrived: Ints
    began: Ints
    first_token: Ints
    isolation: Hashes
    prompt: Ints
    cached: Ints
    recomputed: Ints
    block_size: Ints
    reads_off: Flags
    known: Flags
    offsets: Ints
    blocks: Hashes
    split_depth: Ints
    split_tokens: Ints
    pieces_from: Ints
    piece_offsets: Ints
    pieces: Hashes
    piece_tokens: Ints

    @property
    def n(self) -> int:
        """How many requests."""
        return len(self.arrived)


@dataclass(frozen=True)
class Events:
    """What befell the blocks of the caches, in order: of a holder by life, sequence, position, among holders by time.

    holders: (server, rank) by index. tier: 0 device, 1 host, 2 remote. content, isolation: 0 where the event is of the
    whole cache. A GAP means that anything may have happened before it and after the event ahead of it. joined: by
    holder, the time from which its events are complete (NOT_TOLD: it has none at all). blind: by holder, when it last
    stored a block whose content is not known (NOT_TOLD: never; empty: none of them did).
    """

    holders: tuple[tuple[str, int], ...]
    time: Ints
    holder: Ints
    tier: Ints
    action: Ints
    content: Hashes
    isolation: Hashes
    joined: Ints
    blind: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True)
class Sent:
    """When something was first part of a prompt, sorted by hash: of blocks (by server and isolation too) or pieces."""

    hash: Hashes
    first: Ints
    server: Ints
    isolation: Hashes


@dataclass(frozen=True)
class Ladder:
    """What the ladder says of n requests.

    served: (n, 8) tokens served by each rung: what really ran, then the caches of cachemodel.causes.LADDER in their
    order; rows never fall, and end with the prompt. unknown: (n, 8) of the step to each rung what cannot be told apart
    from other causes, so that cause k has served[:, k] - served[:, k - 1] - unknown[:, k] tokens. evicted: (n, 4) the
    step to `evicted` by sub-cause, in the order of cachemodel.causes.Eviction. shared: (n,) of the unknown tokens those
    of a part of a block that only prompts of another server or isolation share: events name whole blocks, so that no
    event tells which of their caches still had it. derived: whether served[:, 0] is an
    estimate from chains and events rather than what the server said. alignments: by server.
    """

    served: Ints
    unknown: Ints
    evicted: Ints
    shared: Ints
    derived: Flags
    alignments: dict[str, Alignment]
