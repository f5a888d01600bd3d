"""One publisher's stream of KV-cache events: what a message is to the ones before it, and its rows. Pure.

The wire (vLLM and those who speak like it) numbers the messages of one life of the publisher from 0 and says nothing
of its end. What a message is follows from its number and the time its batch was made:

    number           time              the message is
    last + 1         any               the next
    beyond that      any               behind a gap: what is between may be replayed
    last or below    later than last   of another life of the publisher: it was restarted
    last or below    not later         a duplicate: a replay overlaps, or a recording is played again

A life is named by the time of its first batch that was seen (`epoch`). A collector that starts again and is given the
publisher's whole life by replay therefore makes the same bytes again, which the spool recognises; where the replay
buffer no longer reaches back to message 0, it goes on from the `Position` that the store knows.

Rows hold hashes and counts, never token ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import zip_longest
from typing import Any

import msgspec

from cachemodel.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    DecodeError,
    KVEventBatch,
    decode_batch,
)
from collector.sink import Entry

Row = dict[str, Any]

MAX_ROWS = 100_000  # events and blocks of one message; an engine step makes a few thousand at most
MAX_DEPTHS = 1 << 18  # blocks whose depth is remembered, about 30 MB; the least recently stored are forgotten
_EARLIEST_S, _LATEST_S = 1e9, 4e9  # 2001 to 2096: outside is a broken clock
_encode = msgspec.json.Encoder(enc_hook=repr).encode


class Order(Enum):
    """What a message is to the ones before it."""

    NEXT = auto()
    BEHIND_GAP = auto()
    RESTARTED = auto()
    DUPLICATE = auto()


@dataclass(frozen=True, slots=True)
class Message:
    """seq: its number; received and ts (when the batch was made): Unix seconds, the latter to the microsecond, as it is
    stored; batch: None where `error` says why it cannot be read."""

    seq: int
    received: float
    ts: float | None = None
    batch: KVEventBatch | None = None
    error: str = ""

    @classmethod
    def read(cls, seq: int, payload: bytes, received: float) -> Message:
        """Decode a payload; one that cannot be decoded makes a message all the same."""
        try:
            batch = decode_batch(payload)
        except DecodeError as error:
            return cls(seq, received, error=f"{error} ({len(payload)} bytes)")
        blocks = sum(len(e.block_hashes) for e in batch.events if isinstance(e, BlockStored | BlockRemoved))
        if blocks + len(batch.events) > MAX_ROWS:
            return cls(seq, received, error=f"{len(batch.events)} events of {blocks} blocks are too many")
        if not _EARLIEST_S < batch.ts < _LATEST_S:
            return cls(seq, received, error=f"a batch made {batch.ts:g} s after 1970: the clock is wrong")
        return cls(seq, received, round(batch.ts, 6), batch)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a stream stood: its life, the last message taken and when that was made (Unix seconds), and the depths
    of the blocks it told of."""

    epoch: float
    seq: int
    ts: float
    depths: Mapping[int, int] = field(default_factory=dict)


class KvStream:
    """The messages of one publisher, in the order they are taken, as rows of `kv_events`.

    counts: messages, duplicates, gaps, missing (messages), restarts, unreadable (messages), unknown (events).
    """

    def __init__(self, server: str, source: str, rank: int, position: Position | None = None) -> None:
        self._server = server
        self._source = source
        self._rank = rank
        self.counts: Counter[str] = Counter()
        self._epoch: float | None = position.epoch if position else None
        self._last = position.seq if position else -1
        self._last_ts = position.ts if position else 0.0
        self._depths: dict[int, int] = dict(position.depths) if position else {}

    @property
    def last(self) -> int:
        """Number of the last message taken; -1 before the first."""
        return self._last

    @property
    def position(self) -> Position | None:
        """Where the stream stands; None before the first message."""
        return None if self._epoch is None else Position(self._epoch, self._last, self._last_ts, self._depths)

    def order(self, message: Message) -> Order:
        """What the message is, were it taken now."""
        if message.seq == self._last + 1:
            return Order.NEXT
        if message.seq > self._last:
            return Order.BEHIND_GAP
        restarted = message.ts is not None and message.ts > self._last_ts
        return Order.RESTARTED if restarted else Order.DUPLICATE

    def take(self, message: Message) -> list[Entry]:
        """The rows of a message, as one entry; before it, where it applies, one that tells of a restart or a gap.

        The bytes of a message's entry depend on the message and the blocks before it only, never on when or by which
        way it came: taken twice, they are recognised as the same.
        """
        order = self.order(message)
        if order is Order.DUPLICATE:
            self.counts["duplicates"] += 1
            return []
        self.counts["messages"] += 1
        ts = message.ts or self._last_ts or message.received
        rank = message.batch and _uint(message.batch.rank, 16)
        rank = self._rank if rank is None else rank
        before: list[Row] = []
        if order is Order.RESTARTED:
            self.counts["restarts"] += 1
            before.append({"action": "restart", "seq": message.seq})
            self._last, self._epoch, self._depths = -1, None, {}
        if self._epoch is None:
            self._epoch = ts
        if message.seq > self._last + 1:
            before.append(self._gap(self._last + 1, message.seq - 1))
        self._last, self._last_ts = message.seq, ts
        head = {
            "time": ts,
            "server": self._server,
            "source": self._source,
            "rank": rank,
            "epoch": self._epoch,
        }
        entries = [_entry([{**head, "pos": 0, **row}]) for row in before]
        rows = [
            {**head, "seq": message.seq, "pos": pos, **row}
            for pos, row in enumerate(self._events(message), start=1)
        ]
        return [*entries, _entry(rows)] if rows else entries

    def _gap(self, first: int, last: int) -> Row:
        self.counts["gaps"] += 1
        self.counts["missing"] += last - first + 1
        missing = {"first": first, "last": last, "count": last - first + 1}
        return {"action": "gap", "seq": first, "detail": _text({"missing": missing})}

    def _events(self, message: Message) -> Iterator[Row]:
        if message.batch is None:
            self.counts["unreadable"] += 1
            yield {"action": "unknown", "detail": _text({"error": message.error})}
            return
        for event in message.batch.events:
            if isinstance(event, BlockStored):
                yield from self._stored(event)
            elif isinstance(event, BlockRemoved):
                yield from self._removed(event)
            elif isinstance(event, AllBlocksCleared):
                yield {"action": "cleared", "detail": _detail(event.unknown)}
            else:
                self.counts["unknown"] += 1
                yield {"action": "unknown", "detail": _detail({"type": event.type, **event.fields})}

    def _stored(self, event: BlockStored) -> Iterator[Row]:
        parent = event.parent_block_hash
        depth = self._depth_below(parent)
        count = len(event.block_hashes)
        extra_keys = list(event.extra_keys or ())[:count]
        beside = {"lora_name": event.lora_name, "kv_cache_spec_kind": event.kv_cache_spec_kind}
        told = {name: value for name, value in beside.items() if value not in (None, "full_attention")}
        same = {
            "block_size": _uint(event.block_size, 32),
            "medium": event.medium or "",
            "group_idx": _uint(event.group_idx, 16),
            "token_count": event.token_count // count if event.token_count and count else None,
            "detail": _detail(told | dict(event.unknown)),
        }
        for block, extra in zip_longest(event.block_hashes, extra_keys):
            yield {
                "action": "stored",
                "block": block,
                "parent": parent,
                "depth": depth,
                "extra_keys": _text(extra),
                **same,
            }
            if depth is not None:
                self._remember(block, depth)
                depth += 1
            parent = block

    def _removed(self, event: BlockRemoved) -> Iterator[Row]:
        for block in event.block_hashes:
            yield {
                "action": "removed",
                "block": block,
                "depth": self._depths.get(block),
                "medium": event.medium or "",
                "group_idx": _uint(event.group_idx, 16),
                "detail": _detail(event.unknown),
            }

    def _depth_below(self, parent: int | None) -> int | None:
        """Depth of the block that follows `parent`; None where that was not seen."""
        if parent is None:
            return 0
        depth = self._depths.get(parent)
        if depth is None:
            return None
        self._remember(parent, depth)
        return depth + 1

    def _remember(self, block: int, depth: int) -> None:
        """A chained hash has one depth for ever, so removal and clearing forget nothing; only room runs out."""
        self._depths.pop(block, None)
        self._depths[block] = depth
        if len(self._depths) > MAX_DEPTHS:
            del self._depths[next(iter(self._depths))]


def _entry(rows: list[Row]) -> Entry:
    return Entry("kv_events", b"".join(_encode(row) + b"\n" for row in rows), len(rows))


def _uint(value: int | None, bits: int) -> int | None:
    """The value where its column can hold it, else None."""
    return value if value is not None and 0 <= value < 1 << bits else None


def _text(value: object) -> str:
    """JSON text of a value; empty for None and for what is empty."""
    if not value:
        return ""
    try:
        return _encode(value).decode()
    except (TypeError, ValueError):  # msgpack has more types than JSON
        return _encode(repr(value)).decode()


def _detail(fields: Mapping[str, Any]) -> str:
    """JSON text of fields that have no column. Arrays and maps are told by their size: they may be token ids."""
    return _text(
        {
            name: f"{len(value)} items" if isinstance(value, list | dict) else value
            for name, value in fields.items()
        }
    )
