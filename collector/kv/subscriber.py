"""Takes KV-cache events off ZeroMQ: subscribes, notices gaps, has them replayed, hands rows to a sink.

The wire is vLLM's, which SGLang and TensorRT-LLM (KV cache manager V2) follow: PUB messages `[topic, seq, payload]`
with seq as 8 bytes big-endian, and a ROUTER that answers `[empty, first seq]` with `[empty, topic, seq, payload]` for
each message it still has, then `[empty, empty, ff*8, empty]`. Before vLLM 0.26 replies had no topic (pull request
45177), and SGLang's have none. Frames after the payload are ignored. A REQ socket would get the first reply only: a
DEALER asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import zmq

from cachemodel.content import ContentHasher
from cachemodel.errors import UserError
from collector.kv.keeper import IndexKeeper
from collector.kv.replay import Waits, replies
from collector.kv.snapshot import SavedStream
from collector.kv.sockets import Handshakes, open_socket
from collector.kv.stream import COUNTED, MAX_RANKS, KvStream, Message, Order, Position, Room
from collector.otlp.check import DEFAULT_WINDOW, Window
from collector.sink import Entry, Sink
from collector.source import FAILING, RUNNING, WAITING, SourceStatus, ThreadSource

BURST = 256  # messages that go to the sink together
_POLL_MS = 200
_SETTLED_S = 0.2  # after a connection: until the publisher knows of the subscription, what it sends is lost
_CONNECT_S = 1.0  # within which a replay socket must be connected: live events wait; the first time, longer
_LONGEST_PAUSE_S = 300.0
_FIRST_REOPEN_S, _LONGEST_REOPEN_S = 1.0, 30.0  # between tries to use an address that cannot be used

Positions = Callable[[], Mapping[str, Position]]


@dataclass(frozen=True, slots=True)
class KvEndpoint:
    """Where one rank of a server publishes.

    events: as in the server's `--kv-events-config`; replay: its replay socket, empty for none; bind: whether the
    collector binds `events`, the publisher being the one that connects; topic: subscribe to topics that begin so.
    replay_pause_s: how long a replay socket is left alone that did not answer; it doubles with each time. window: which
    times are kept.
    """

    server: str
    events: str
    replay: str = ""
    bind: bool = False
    topic: str = ""
    rank: int = 0
    replay_timeout_s: float = 5.0
    replay_pause_s: float = 10.0
    window: Window = DEFAULT_WINDOW


class KvSubscriber(ThreadSource):
    """One publisher's events.

    positions: what the store knows of the streams by topic, asked once at the start; an empty answer means that
    everything the publisher can replay is taken. hasher: of the installation. snapshot: file in which what the caches
    hold outlives the collector.
    """

    def __init__(
        self,
        endpoint: KvEndpoint,
        sink: Sink,
        positions: Positions = dict,
        *,
        hasher: ContentHasher,
        snapshot: Path | None = None,
    ) -> None:
        super().__init__(
            f"kv events {endpoint.server}" + (f" rank {endpoint.rank}" if endpoint.rank else ""), sink
        )
        self.endpoint = endpoint
        self._hasher = hasher
        self._keeper = IndexKeeper(endpoint.server, hasher, snapshot)
        self._ask_positions = positions
        self._resumed: dict[str, KvStream] = {}  # streams that were not heard of yet in this run
        self._streams: dict[str, KvStream] = {}
        self._room = Room()
        self._events: zmq.Socket[bytes] | None = None
        self._handshakes: Handshakes | None = None
        self._look_at: float | None = None  # when to ask what was sent while nobody listened
        self._reopen_s = _FIRST_REOPEN_S
        self._caught_up = self._refused = False
        # a replay socket that does not answer must not delay live events
        self._pause_s, self._ask_after = 0.0, 0.0

    def stop(self, timeout_s: float = 5.0) -> None:
        super().stop(timeout_s)
        if self._thread.is_alive():
            return
        if self._handshakes:
            self._handshakes.close()
        if self._events:
            self._events.close(linger=0)
        if not self._refused:  # the index would stand at messages that nobody has
            self._keeper.save(self._known(), now=True)

    def status(self) -> SourceStatus:
        status = super().status()
        told = self._keeper.told(self._known()) if status.state == RUNNING else ""
        return replace(status, detail=f"{status.detail}; {told}") if told else status

    def work(self) -> None:
        if self._events is None and not self._opened():
            return
        if not self._caught_up:
            self._caught_up = True
            self._resume(self._ask_positions())
            self._catch_up_known()
        if self._events and self._events.poll(_POLL_MS):
            self._deliver_all(self._live(self._events))
        self._look_again()
        self._keep()

    def _look_again(self) -> None:
        """Have replayed what was sent before a new connection subscribed: the next message, which would show the gap,
        can be long in coming, and a publisher that began anew may have emptied its cache."""
        if self._handshakes and self._handshakes.new():
            self._look_at = time.monotonic() + _SETTLED_S
        if self._look_at is None or time.monotonic() < max(self._look_at, self._ask_after):
            return
        self._look_at = None
        self._catch_up_known()

    def _catch_up_known(self) -> None:
        """Take what the publisher still has from where its streams stand."""
        start = min((max(stream.last, 0) for stream in self._known()), default=0)
        topic = self.endpoint.topic or (next(iter(self._streams)) if len(self._streams) == 1 else None)
        self._deliver_all(self._catch_up(start, topic))

    def _resume(self, positions: Mapping[str, Position]) -> None:
        """Take up the streams where the store and the index file left them."""
        saved = self._keeper.load()
        for topic, position in positions.items():
            stream = self._new_stream(topic, position, saved.get(topic))
            self._resumed[topic] = stream
            if stream.misfit:
                self._keeper.ignored(stream.misfit)
        if saved and not positions:
            self._keeper.ignored("the store has nothing of it")

    def _keep(self) -> None:
        if self._refused:
            return
        if gauges := self._keeper.due(self._known()):
            self.deliver(gauges)
        self._keeper.save(self._known())

    def _known(self) -> list[KvStream]:
        return [*self._resumed.values(), *self._streams.values()]

    def _opened(self) -> bool:
        """Subscribe. Where the address cannot be used that is told, and tried again after a while: a port may become
        free, and the server's other sources do not wait for it."""
        try:
            events = open_socket(zmq.SUB, self.endpoint.events, bind=self.endpoint.bind)
        except UserError as error:
            self.tell(FAILING, str(error))
            self.counts["unopened"] += 1
            self._stopping.wait(self._reopen_s)
            self._reopen_s = min(2 * self._reopen_s, _LONGEST_REOPEN_S)
            return False
        events.subscribe(self.endpoint.topic)
        self._events, self._handshakes = events, Handshakes(events)
        self.tell(WAITING, f"no event yet on {self.endpoint.events}")
        return True

    def _deliver_all(self, entries: Iterator[Entry]) -> None:
        while burst := list(islice(entries, BURST)):
            if not self.deliver(burst):
                self._refused = True
                return
        if self._streams:
            self._report()

    def _report(self) -> None:
        totals = {name: sum(s.counts[name] for s in self._streams.values()) for name in COUNTED}
        detail = f"{totals['messages']} messages, last number {max(s.last for s in self._streams.values())}"
        if totals["missing"]:
            detail += f", {totals['missing']} missing" + (
                "" if self.endpoint.replay else " (no replay socket given)"
            )
        if totals["bad_time"]:
            detail += f", {totals['bad_time']} left out whose time is long ago or in the future"
        if left_out := totals["ranks_left_out"] + self.counts["topics_left_out"]:
            detail += f", {left_out} left out: of more than {MAX_RANKS} ranks and topics"
        if self._pause_s:
            detail += f"; {self.endpoint.replay} does not answer: what is missed is not replayed"
        self.tell(RUNNING, detail)
        self.counts.update({name: total - self.counts[name] for name, total in totals.items()})

    # -- messages

    def _live(self, events: zmq.Socket[bytes]) -> Iterator[Entry]:
        """Entries of the messages that wait in the socket, with what a gap before them needs."""
        while not self._stopping.is_set():
            try:
                frames = events.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            parsed = self._parse(frames)
            if parsed is None:
                continue
            topic, message = parsed
            stream = self._stream(topic)
            if stream is None:
                continue
            order = stream.order(message)
            if order is Order.BEHIND_GAP:
                yield from self._catch_up(max(stream.last, 0), topic)
            elif order is Order.RESTARTED and message.seq:
                yield from self._catch_up(0, topic)
            yield from stream.take(message)

    def _parse(self, frames: list[bytes]) -> tuple[str, Message] | None:
        if len(frames) < 3 or len(frames[1]) != 8:
            self.tell(FAILING, f"a message of {len(frames)} frames is not [topic, number, payload]")
            self.counts["malformed"] += 1
            return None
        topic, seq, payload = frames[:3]
        return topic.decode(errors="replace"), self._message(seq, payload)

    def _message(self, seq: bytes, payload: bytes) -> Message:
        return Message.read(int.from_bytes(seq, "big"), payload, time.time(), self.endpoint.window)

    def _stream(self, topic: str) -> KvStream | None:
        """The stream of a topic; None for a new one that there is no room for."""
        stream = self._streams.get(topic) or self._resumed.pop(topic, None)
        if stream is None:
            if self._room.left <= 0 or len(self._streams) >= MAX_RANKS:
                self.counts["topics_left_out"] += 1
                return None
            stream = self._new_stream(topic)
        self._streams[topic] = stream
        return stream

    def _new_stream(
        self, topic: str, position: Position | None = None, saved: SavedStream | None = None
    ) -> KvStream:
        server, rank = self.endpoint.server, self.endpoint.rank
        return KvStream(server, topic, rank, position, hasher=self._hasher, saved=saved, room=self._room)

    # -- replay

    def _catch_up(self, start: int, topic: str | None) -> Iterator[Entry]:
        """Entries of what the publisher still has from message `start` on.

        start: 0 or the last message taken, so that the first reply tells whether the publisher is still the same;
        topic: that of replies without one, None where no message told it yet: they are left for later.
        """
        if not self.endpoint.replay:
            return
        if time.monotonic() < self._ask_after:
            self.counts["replays_put_off"] += 1
            return
        again: int | None = start
        try:
            while again is not None:
                again = yield from self._take_replay(again, topic)
            self._pause_s = 0.0
        except (TimeoutError, UserError) as error:  # the message behind the gap is not to be lost with it
            self.counts["replays_unanswered"] += 1
            self._pause_s = min(2 * self._pause_s or self.endpoint.replay_pause_s, _LONGEST_PAUSE_S)
            self._ask_after = time.monotonic() + self._pause_s
            trouble = "cannot be used" if isinstance(error, UserError) else "does not answer"
            self.tell(FAILING, f"{self.endpoint.replay} {trouble}: what was missed cannot be replayed")

    def _take_replay(self, start: int, topic: str | None) -> Generator[Entry, None, int | None]:
        """One request's entries. Returns the message to ask from again, None when all is here."""
        stream = None
        try:
            for reply_topic, message in self._replay(start):
                stream_topic = topic if reply_topic is None else reply_topic
                if stream_topic is None:
                    return None
                found, first = self._stream(stream_topic), stream is None
                if found is None:
                    continue
                stream = found
                order = stream.order(message)
                if order is Order.RESTARTED and start and message.seq:
                    return 0  # the number is taken by another life of the publisher
                if order is Order.BEHIND_GAP and not first and stream.last != start:
                    return stream.last  # a ROUTER drops what its peer does not take quickly enough
                if order is not Order.DUPLICATE or message.seq != start:
                    yield from stream.take(message)
        except TimeoutError:
            if stream is None or stream.last == start:
                raise
            return stream.last  # the same may happen to the end marker
        # no answer, not even the last message taken: another life of the publisher, which is not that far yet
        return 0 if start and stream is None else None

    def _replay(self, start: int) -> Iterator[tuple[str | None, Message]]:
        """Ask for the messages from `start` on. Raises TimeoutError where the end marker does not come."""
        self.counts["replays"] += 1
        longest_s = self.endpoint.replay_timeout_s
        connect_s = longest_s if self.counts["replays"] == 1 else min(_CONNECT_S, longest_s)
        waits = Waits(connect_s, longest_s, self._stopping)
        for reply in replies(self.endpoint.replay, start, waits):
            if reply is None:
                self.counts["malformed"] += 1
            else:
                yield reply.topic, self._message(reply.seq, reply.payload)
