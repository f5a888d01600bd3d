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

A message that is lost and one that cannot be read are the same to who asks what a cache holds: both leave a gap.

What a row says of its event is in rows.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

from cachemodel.content import ContentHasher
from cachemodel.kv_events import BlockRemoved, BlockStored, DecodeError, KVEventBatch, decode_batch
from cachemodel.residency import Mark
from collector.kv.fields import detail, row, uint
from collector.kv.history import StoredBlock, StoredRow, rebuild, replay
from collector.kv.index import BlockIndex
from collector.kv.rows import EventRows
from collector.kv.snapshot import SavedStream
from collector.otlp.check import DEFAULT_WINDOW, Window
from collector.sink import Entry

# Events and blocks of one message: a prompt of 256k tokens where a page is one token, as SGLang's can be.
MAX_ROWS = 1 << 18
_ENTRY_ROWS = 20_000
MAX_RANKS = 1024  # of one publisher, of all its topics together; each takes some 5 kB
COUNTED = (
    *("messages", "duplicates", "gaps", "missing", "restarts"),
    *("unreadable", "bad_time", "unknown", "resolved", "ranks_left_out"),
)
"""What a stream counts."""


class Room:
    """How many more ranks those who share it may have."""

    def __init__(self) -> None:
        self.left = MAX_RANKS


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


class History(Protocol):
    """What the store has of one life of a publisher's rank."""

    def blocks(self) -> Iterable[StoredBlock]:
        """The blocks it told of, once for each place they were in, the least recently told of first."""
        ...

    def marks(self) -> Sequence[Mark]:
        """Gaps and clears, in order."""
        ...

    def after(self, seq: int) -> Iterable[StoredRow]:
        """The rows of the messages after that one, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Position:
    """Where a rank's stream stands in the store: its life, the last message that left a row and when that was made
    (Unix seconds), and what is stored of the life; None where that is nobody's."""

    epoch: float
    seq: int
    ts: float
    history: History | None = None


class KvStream:
    """The messages of one publisher, in the order they are taken, as rows of `kv_events`.

    rank: of messages that name none. position: from where to go on. saved: the same stream as an earlier run left it,
    which lets the position's history be read from there on only; where it does not fit, `misfit` says why. room: what
    the publisher's streams share.

    counts: messages, duplicates, gaps, missing (messages), restarts, unreadable (messages), bad_time (those of
    them whose time it is), unknown (events), resolved (blocks), ranks_left_out (messages of a rank there is no room
    for).
    """

    def __init__(
        self,
        server: str,
        source: str,
        rank: int,
        position: Position | None = None,
        *,
        hasher: ContentHasher,
        saved: SavedStream | None = None,
        room: Room | None = None,
    ) -> None:
        self._server, self._source, self._rank = server, source, rank
        self._room = room or Room()
        self._hasher = hasher
        self.counts: Counter[str] = Counter()
        self.misfit = _misfit(saved, position) if saved else ""
        self._epoch: float | None = position.epoch if position else None
        self._last = position.seq if position else -1
        self._last_ts = position.ts if position else 0.0
        self._last_stored = self._last  # the last message that left a row
        self._by_rank: dict[int, EventRows] = {}
        if saved and not self.misfit:
            self._last, self._last_ts = max((self._last, self._last_ts), (saved.last, saved.last_ts))
            self._by_rank = {told: EventRows(hasher, index) for told, index in saved.ranks.items()}
            self._room.left -= len(self._by_rank)
        if position and position.history:
            index = self._events(rank).index
            if saved and not self.misfit:
                replay(index, position.history.after(saved.last))
            else:
                rebuild(index, position.history.blocks(), position.history.marks())

    @property
    def source(self) -> str:
        return self._source

    @property
    def last(self) -> int:
        """Number of the last message taken; -1 before the first."""
        return self._last

    @property
    def position(self) -> Position | None:
        """Where the stream stands; None before the first message."""
        return None if self._epoch is None else Position(self._epoch, self._last_stored, self._last_ts)

    @property
    def ranks(self) -> dict[int, BlockIndex]:
        """What each rank holds."""
        return {rank: events.index for rank, events in list(self._by_rank.items())}

    def state(self) -> SavedStream | None:
        """What an index file keeps of it: no copy, so to be written before the next message. None before the first."""
        if self._epoch is None:
            return None
        return SavedStream(self._epoch, self._last, self._last_ts, self._last_stored, self.ranks)

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
        rank = self._rank_of(message)
        before = self._before(order, message, rank)
        if self._epoch is None:
            self._epoch = ts
        self._last, self._last_ts = message.seq, ts
        head = self._head(ts)
        entries = [_entry([b"{%s,%s}\n" % (head, row({"pos": 0, **fields}))]) for fields in before]
        shared = b'{%s,"rank":%d,"seq":%d,' % (head, rank, message.seq)
        rows = [b"%s%s}\n" % (shared, fields) for fields in self._rows(message, rank, ts)]
        if before or rows:
            self._last_stored = message.seq
        return entries + [_entry(rows[at : at + _ENTRY_ROWS]) for at in range(0, len(rows), _ENTRY_ROWS)]

    def _before(self, order: Order, message: Message, rank: int) -> list[dict[str, Any]]:
        """Rows of what precedes a message: a restart, a gap, and that it cannot be read itself."""
        if order is Order.NEXT and message.batch is not None:
            return []
        new = [rank] if self._has_room(rank) else []
        ranks, told = sorted({*self._by_rank, *new}), []
        if order is Order.RESTARTED:
            self.counts["restarts"] += 1
            told = [{"action": "restart", "seq": message.seq, "rank": one} for one in ranks]
            self._room.left += len(self._by_rank)
            self._last, self._epoch, self._by_rank = -1, None, {}
        if message.seq > self._last + 1:
            self.counts["gaps"] += 1
            self.counts["missing"] += message.seq - self._last - 1
            told += self._gap(self._last + 1, message.seq - 1, ranks)
        if message.batch is None:
            told += self._gap(message.seq, message.seq, ranks)
        return told

    def _rank_of(self, message: Message) -> int:
        """The rank that a message is of; where it does not say, that of those before it."""
        told = None if message.batch is None else uint(message.batch.rank, 16)
        return (
            next(iter(self._by_rank), self._rank)
            if message.batch is None
            else self._rank
            if told is None
            else told
        )

    def _has_room(self, rank: int) -> bool:
        return rank in self._by_rank or self._room.left > 0

    def _events(self, rank: int) -> EventRows:
        events = self._by_rank.get(rank)
        if events is None:
            self._room.left -= 1
            events = self._by_rank[rank] = EventRows(self._hasher)
        return events

    def _head(self, ts: float) -> bytes:
        """What all rows of a message share."""
        return row({"time": ts, "server": self._server, "source": self._source, "epoch": self._epoch})

    def _gap(self, first: int, last: int, ranks: Iterable[int]) -> Iterator[dict[str, Any]]:
        """Messages were lost, or one cannot be read: of which rank they were is not known."""
        missing = f'{{"missing":{{"first":{first},"last":{last},"count":{last - first + 1}}}}}'
        for rank in ranks:
            self._events(rank).index.gap()
            yield {"action": "gap", "seq": first, "rank": rank, "detail": missing}

    def _rows(self, message: Message, rank: int, ts: float) -> list[bytes]:
        if message.batch is None:
            self.counts["unreadable"] += 1
            self.counts["bad_time"] += message.bad_time
            return [row({"pos": 1, "action": "unknown", "detail": detail({"error": message.error}, {})})]
        if not self._has_room(rank):
            self.counts["ranks_left_out"] += 1
            return []
        events = self._events(rank)
        events.begin(message.seq, ts)
        rows = [made for event in message.batch.events for made in events.of(event)]
        if events.counts:
            self.counts.update(events.counts)
            events.counts.clear()
        return rows


def _misfit(saved: SavedStream, position: Position | None) -> str:
    """Why a saved stream cannot be gone on with; empty where it can."""
    if position is None:
        return "the store has nothing of it"
    if saved.epoch != position.epoch:
        return "it is of another life of the publisher"
    if saved.last_stored > position.seq:
        return (
            f"the store has nothing past message {position.seq} of it, and it stands at {saved.last_stored}"
        )
    return ""


def _entry(rows: Sequence[bytes]) -> Entry:
    return Entry("kv_events", b"".join(rows), len(rows))
