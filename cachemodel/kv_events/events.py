"""The events, as one vocabulary for all servers. A block hash is an unsigned 64-bit integer everywhere here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class DecodeError(ValueError):
    """The payload tells no KV events; the message says where it stops doing so."""


@dataclass(frozen=True, slots=True)
class BlockStored:
    """Blocks that follow each other in one chain were stored.

    token_ids: block_size times the number of blocks, pairs of neighbours where the server hashes bigrams, empty for a
    connector's placeholder. lora_id: a number, on SGLang a text that means something in its process only. extra_keys:
    one entry a block, None where it has none; a cache salt, adapter or image key stands there untagged. cache_salt:
    of all blocks. ownership: who holds the block, where one server has several caches. hash_bits: how wide the hash
    was on the wire. tells_tokens: False where the wire never carries tokens, so that their absence means nothing.
    """

    block_hashes: Sequence[int]
    parent_block_hash: int | None = None
    token_ids: Sequence[Any] = ()
    block_size: int | None = None
    lora_id: int | str | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: Sequence[Any] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    cache_salt: str | None = None
    session_id: str | None = None
    ownership: str | None = None
    hash_bits: int = 64
    tells_tokens: bool = True
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def token_count(self) -> int:
        """Tokens in all of the event's blocks."""
        return len(self.token_ids)

    @property
    def is_placeholder(self) -> bool:
        """Whether it tells only that blocks reached a medium, neither their tokens nor their place in a chain.

        vLLM's OffloadingConnector and LMCache do so unless they are asked for self-describing events.
        """
        return self.tells_tokens and not self.token_ids and self.parent_block_hash is None

    @property
    def is_bigram(self) -> bool:
        """Whether tokens come as pairs of neighbours, as with SGLang's speculative decoding."""
        return bool(self.token_ids) and isinstance(self.token_ids[0], list | tuple)


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """Blocks left a medium; None where it is not said which."""

    block_hashes: Sequence[int]
    medium: str | None = None
    group_idx: int | None = None
    ownership: str | None = None
    hash_bits: int = 64
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """The cache of the batch's rank was emptied; vLLM says so only with its next step, and of its device only."""

    ownership: str | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BlockUpdated:
    """A block went from one medium to another, or its eviction priority changed (TensorRT-LLM).

    medium_before, medium: None where it stayed where it was.
    """

    block_hash: int
    medium_before: str | None = None
    medium: str | None = None
    group_idx: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CacheCreated:
    """An empty cache came to be (TensorRT-LLM). blocks_per_level: its capacity, device first."""

    blocks_per_level: Sequence[int]
    group_idx: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event of a type this version does not know, as it came."""

    type: str
    fields: Mapping[str, Any]


Event = BlockStored | BlockRemoved | AllBlocksCleared | BlockUpdated | CacheCreated | UnknownEvent


@dataclass(frozen=True, slots=True)
class KVEventBatch:
    """What one engine step did to its cache; the order of events matters.

    ts: Unix seconds on the server's clock. rank: data-parallel rank, None where the server does not say.
    """

    ts: float
    events: Sequence[Event]
    rank: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)
