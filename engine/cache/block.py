"""The things the cache hands out or keeps: a cached block, a request's match, its block table."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from cachemodel.blocks import ExtraKeys, vllm_sha256
from cachemodel.layers import Tier


def chain_digest(parent: bytes, tokens: tuple[int, ...], extra_keys: ExtraKeys = None) -> bytes:
    """cachemodel's law (blocks.next_block) without its dataclass: hashing is what a lookup of new text costs."""
    return vllm_sha256((parent, tokens, extra_keys))


def hash64(digest: bytes) -> int:
    """What KV events call a block."""
    return int.from_bytes(digest[-8:], "big")


class Level(IntEnum):
    """A tier as an index into counters, fastest first. NOWHERE: the root of a chain, which holds no KV."""

    NOWHERE = -1
    DEVICE = 0
    HOST = 1
    DISK = 2


TIERS = (Tier.DEVICE, Tier.HOST, Tier.REMOTE)
"""By level."""


class CachedBlock:
    """One full block of a chain whose KV is in exactly one place: `slot` of `level`.

    refs: tables and matches that hold it. indexed: it can be found; a block that is held when it leaves the index lives
    on until it is let go. lost: its KV cannot be had any more. children_at: indexed children by level; none is on a
    faster level than its parent. salt: of the chain, empty for none. last_used, used_at: by the index's own count, and
    in seconds of its clock.
    """

    __slots__ = (
        "children",
        "children_at",
        "digest",
        "indexed",
        "last_used",
        "level",
        "lost",
        "parent",
        "refs",
        "salt",
        "slot",
        "tokens",
        "used_at",
    )

    def __init__(
        self,
        parent: CachedBlock | None,
        tokens: tuple[int, ...],
        digest: bytes,
        level: Level,
        slot: int,
        salt: str,
    ) -> None:
        self.parent, self.tokens, self.digest, self.salt = parent, tokens, digest, salt
        self.level, self.slot = level, slot
        self.children: dict[tuple[int, ...], CachedBlock] = {}
        self.children_at = [0, 0, 0]
        self.refs = self.last_used = 0
        self.used_at = 0.0
        self.indexed, self.lost = True, False

    @property
    def is_root(self) -> bool:
        return self.parent is None

    @property
    def hash64(self) -> int:
        return hash64(self.digest)

    @property
    def parent_hash64(self) -> int | None:
        """None for a chain's first block."""
        return None if self.parent is None or self.parent.is_root else self.parent.hash64


@dataclass(slots=True)
class TierTokens:
    """Tokens of a prompt by the tier that has their KV."""

    device: int = 0
    host: int = 0
    remote: int = 0


@dataclass(slots=True, eq=False)
class Match:
    """The longest leading run of a prompt that is cached; its blocks stay where they are or get faster until `drop`
    or a successful `open`.

    tokens: by the tier they were on when it was made or, after `open`, opened. digests: of all the prompt's full
    blocks.
    """

    blocks: list[CachedBlock]
    digests: list[bytes]
    salt: str
    tokens: TierTokens = field(default_factory=TierTokens)

    @property
    def block_hashes(self) -> list[int]:
        """64 bits each, as KV events have them."""
        return [hash64(digest) for digest in self.digests]


@dataclass(slots=True, eq=False)
class Table:
    """A request's blocks on the device.

    blocks: their numbers in the pool, in order of position. ready: leading tokens whose KV is there. lost: tokens of
    the match whose load failed; they have to be computed. held: cached blocks of its leading positions, the first
    `shared` of which are what `blocks` names; all other positions are this table's own. sources: levels of the match's
    blocks when it was opened.
    """

    blocks: list[int]
    held: list[CachedBlock]
    shared: int
    ready: int
    digests: list[bytes]
    salt: str
    sources: list[Level]
    lost: int = 0

    @property
    def loading(self) -> Tier | None:
        """The tier it waits for; `load` goes on with it."""
        return TIERS[self.sources[self.shared]] if self.shared < len(self.held) else None
