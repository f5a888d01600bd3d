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

What a row says of its event is in kv_rows.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from cachemodel.kv_events import BlockRemoved, BlockStored, DecodeError, KVEventBatch, decode_batch
from collector.kv.rows import MAX_DEPTHS, EventRows, detail, row, uint
from collector.otlp.check import DEFAULT_WINDOW, Window
from collector.sink import Entry

__all__ = ["MAX_DEPTHS", "KvStream", "Message", "Order", "Position"]

# Events and blocks of one message: a prompt of 256k tokens where a page is one token, as SGLang's can be.
MAX_ROWS = 1 << 18
_ENTRY_ROWS = 20_000


class Order(Enum):
    """What a message is to the ones before it."""

    NEXT = auto()
    BEHIND_GAP = auto()
    RESTARTED = auto()
    DUPLICATE = auto()


@dataclass(frozen=True, slots=True)
class Message:
    """seq: its number; received and ts (when the batch was made): Unix seconds, the latter to the microsecond, as it is
    stored; batch: None where `error` says why it cannot be read; bad_time: that is the batch's time."""

    seq: int
    received: float
    ts: float | None = None
    batch: KVEventBatch | None = None
    error: str = ""
    bad_time: bool = False

    @classmethod
    def read(cls, seq: int, payload: bytes, received: float, window: Window = DEFAULT_WINDOW) -> Message:
        """Decode a payload; one that cannot be decoded makes a message all the same. window: which times are kept."""
        try:
            batch = decode_batch(payload)
        except DecodeError as error:
            return cls(seq, received, error=f"{error} ({len(payload)} bytes)")
        blocks = sum(len(e.block_hashes) for e in batch.events if isinstance(e, BlockStored | BlockRemoved))
        if blocks + len(batch.events) > MAX_ROWS:
            return cls(seq, received, error=f"{len(batch.events)} events of {blocks} blocks are too many")
        if not window.holds(batch.ts, received):
            told = f"a batch made {batch.ts:.0f} s after 1970: too long ago, in the future, or a wrong clock"
            return cls(seq, received, error=told, bad_time=True)
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

    counts: messages, duplicates, gaps, missing (messages), restarts, unreadable (messages), bad_time (those of
    them whose time it is), unknown (events).
    """

    def __init__(self, server: str, source: str, rank: int, position: Position | None = None) -> None:
        self._server = server
        self._source = source
        self._rank = rank
        self.counts: Counter[str] = Counter()
        self._epoch: float | None = position.epoch if position else None
        self._last = position.seq if position else -1
        self._last_ts = position.ts if position else 0.0
        self._events = EventRows(position.depths if position else None)

    @property
    def last(self) -> int:
        """Number of the last message taken; -1 before the first."""
        return self._last

    @property
    def position(self) -> Position | None:
        """Where the stream stands; None before the first message."""
        depths = self._events.depths
        return None if self._epoch is None else Position(self._epoch, self._last, self._last_ts, depths)

    def order(self, message: Message) -> Order:
        """What the message is, were it taken now."""
        if message.seq == self._last + 1:
            return Order.NEXT
        if message.seq > self._last:
            return Order.BEHIND_GAP
        restarted = message.ts is not None and message.ts > self._last_ts
        return Order.RESTARTED if restarted else Order.DUPLICATE

    def take(self, message: Message) -> list[Entry]:
        """The rows of a message; before them, where it applies, an entry that tells of a restart or a gap.

        The bytes of a message's entries depend on the message and the blocks before it only, never on when or by
        which way it came: taken twice, they are recognised as the same.
        """
        order = self.order(message)
        if order is Order.DUPLICATE:
            self.counts["duplicates"] += 1
            return []
        self.counts["messages"] += 1
        ts = message.ts or self._last_ts or message.received
        before: list[dict[str, Any]] = []
        if order is Order.RESTARTED:
            self.counts["restarts"] += 1
            before.append({"action": "restart", "seq": message.seq})
            self._last, self._epoch, self._events = -1, None, EventRows()
        if self._epoch is None:
            self._epoch = ts
        if message.seq > self._last + 1:
            before.append(self._gap(self._last + 1, message.seq - 1))
        self._last, self._last_ts = message.seq, ts
        head = self._head(message, ts)
        entries = [_entry([b"{%s,%s}\n" % (head, row({"pos": 0, **fields}))]) for fields in before]
        rows = [
            b'{%s,"seq":%d,"pos":%d,%s}\n' % (head, message.seq, pos, fields)
            for pos, fields in enumerate(self._rows(message), start=1)
        ]
        return entries + [_entry(rows[at : at + _ENTRY_ROWS]) for at in range(0, len(rows), _ENTRY_ROWS)]

    def _head(self, message: Message, ts: float) -> bytes:
        """What all rows of a message share."""
        rank = message.batch and uint(message.batch.rank, 16)
        who = {"server": self._server, "source": self._source, "rank": self._rank if rank is None else rank}
        return row({"time": ts, **who, "epoch": self._epoch})

    def _gap(self, first: int, last: int) -> dict[str, Any]:
        self.counts["gaps"] += 1
        self.counts["missing"] += last - first + 1
        missing = f'{{"missing":{{"first":{first},"last":{last},"count":{last - first + 1}}}}}'
        return {"action": "gap", "seq": first, "detail": missing}

    def _rows(self, message: Message) -> Iterator[bytes]:
        if message.batch is None:
            self.counts["unreadable"] += 1
            self.counts["bad_time"] += message.bad_time
            yield row({"action": "unknown", "detail": detail({"error": message.error}, {})})
            return
        for event in message.batch.events:
            yield from self._events.of(event)
        self.counts.update(self._events.counts)
        self._events.counts.clear()


def _entry(rows: Sequence[bytes]) -> Entry:
    return Entry("kv_events", b"".join(rows), len(rows))
