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
from dataclasses import dataclass
from functools import cache
from itertools import islice

import zmq

from cachemodel.errors import UserError
from collector.kv.stream import KvStream, Message, Order, Position
from collector.otlp.check import DEFAULT_WINDOW, Window
from collector.sink import Entry, Sink
from collector.source import FAILING, RUNNING, WAITING, ThreadSource

BURST = 256  # messages that go to the sink together
_POLL_MS = 200
_MOST_SOCKETS = 8192  # of the process; ZeroMQ's own limit is 1023
QUEUE = 10_000  # messages that may wait in the socket; what is dropped beyond that is replayed
_MAX_MESSAGE = 16 << 20  # bytes of a frame; ZeroMQ drops the connection of who sends more
_END = b"\xff" * 8
_CONNECT_S = 1.0  # within which a replay socket must be connected: live events wait; the first time, longer
_LONGEST_PAUSE_S = 300.0
_FIRST_REOPEN_S, _LONGEST_REOPEN_S = 1.0, 30.0  # between tries to use an address that cannot be used
_COUNTED = ("messages", "duplicates", "gaps", "missing", "restarts", "unreadable", "bad_time", "unknown")

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


@cache
def _context() -> zmq.Context[zmq.Socket[bytes]]:
    """What all subscribers share: each context costs threads and files, and ZeroMQ aborts where those run out."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.max_sockets = _MOST_SOCKETS
    return context


class KvSubscriber(ThreadSource):
    """One publisher's events.

    positions: what the store knows of the streams by topic, asked once at the start; an empty answer means that
    everything the publisher can replay is taken.
    """

    def __init__(self, endpoint: KvEndpoint, sink: Sink, positions: Positions = dict) -> None:
        super().__init__(
            f"kv events {endpoint.server}" + (f" rank {endpoint.rank}" if endpoint.rank else ""), sink
        )
        self.endpoint = endpoint
        self.context = _context()
        self._ask_positions = positions
        self._positions: Mapping[str, Position] = {}
        self._streams: dict[str, KvStream] = {}
        self._events: zmq.Socket[bytes] | None = None
        self._reopen_s = _FIRST_REOPEN_S
        self._caught_up = False
        self._pause_s, self._ask_after = (
            0.0,
            0.0,
        )  # a replay socket that does not answer must not delay live events

    def stop(self, timeout_s: float = 5.0) -> None:
        super().stop(timeout_s)
        if self._events and not self._thread.is_alive():
            self._events.close(linger=0)

    def work(self) -> None:
        if self._events is None and not self._opened():
            return
        if not self._caught_up:
            self._caught_up = True
            self._positions = self._ask_positions()
            start = min((position.seq for position in self._positions.values()), default=0)
            self._deliver_all(self._catch_up(start, self.endpoint.topic or None))
        if self._events and self._events.poll(_POLL_MS):
            self._deliver_all(self._live(self._events))

    def _opened(self) -> bool:
        """Subscribe. Where the address cannot be used that is told, and tried again after a while: a port may become
        free, and the server's other sources do not wait for it."""
        try:
            events = self._open(zmq.SUB, self.endpoint.events, self.endpoint.bind)
        except UserError as error:
            self.counts["unopened"] += 1
            self.tell(FAILING, str(error))
            self._stopping.wait(self._reopen_s)
            self._reopen_s = min(2 * self._reopen_s, _LONGEST_REOPEN_S)
            return False
        events.subscribe(self.endpoint.topic)
        self._events = events
        self.tell(WAITING, f"no event yet on {self.endpoint.events}")
        return True

    def _open(self, kind: int, address: str, bind: bool) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self.context.socket(kind)
        socket.setsockopt(zmq.RCVHWM, QUEUE)
        socket.setsockopt(zmq.MAXMSGSIZE, _MAX_MESSAGE)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IMMEDIATE, 1)  # nothing is sent to who is not there
        socket.setsockopt(zmq.IPV6, int("[" in address))
        try:
            (socket.bind if bind else socket.connect)(address)
        except zmq.ZMQError as error:
            socket.close()
            raise UserError(_unusable(address, bind, error)) from error
        return socket

    def _deliver_all(self, entries: Iterator[Entry]) -> None:
        while burst := list(islice(entries, BURST)):
            if not self.deliver(burst):
                return
        if self._streams:
            self._report()

    def _report(self) -> None:
        totals = {name: sum(s.counts[name] for s in self._streams.values()) for name in _COUNTED}
        self.counts.update({name: total - self.counts[name] for name, total in totals.items()})
        detail = f"{totals['messages']} messages, last number {max(s.last for s in self._streams.values())}"
        if totals["missing"]:
            detail += f", {totals['missing']} missing" + (
                "" if self.endpoint.replay else " (no replay socket given)"
            )
        if totals["bad_time"]:
            detail += f", {totals['bad_time']} left out whose time is long ago or in the future"
        if self._pause_s:
            detail += f"; {self.endpoint.replay} does not answer: what is missed is not replayed"
        self.tell(RUNNING, detail)

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
            order = stream.order(message)
            if order is Order.BEHIND_GAP:
                yield from self._catch_up(max(stream.last, 0), topic)
            elif order is Order.RESTARTED and message.seq:
                yield from self._catch_up(0, topic)
            yield from stream.take(message)

    def _parse(self, frames: list[bytes]) -> tuple[str, Message] | None:
        if len(frames) < 3 or len(frames[1]) != 8:
            self.counts["malformed"] += 1
            self.tell(FAILING, f"a message of {len(frames)} frames is not [topic, number, payload]")
            return None
        topic, seq, payload = frames[:3]
        return topic.decode(errors="replace"), self._message(seq, payload)

    def _message(self, seq: bytes, payload: bytes) -> Message:
        return Message.read(int.from_bytes(seq, "big"), payload, time.time(), self.endpoint.window)

    def _stream(self, topic: str) -> KvStream:
        stream = self._streams.get(topic)
        if stream is None:
            endpoint = self.endpoint
            stream = KvStream(endpoint.server, topic, endpoint.rank, self._positions.get(topic))
            self._streams[topic] = stream
        return stream

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
                stream, first = self._stream(stream_topic), stream is None
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
        socket = self._open(zmq.DEALER, self.endpoint.replay, bind=False)
        try:
            self._ask(socket, start)
            while self._answers(socket):
                reply = _reply(socket.recv_multipart())
                if reply is None:
                    self.counts["malformed"] += 1
                    continue
                topic, seq, payload = reply
                if seq == _END:
                    return
                yield topic, self._message(seq, payload)
        finally:
            socket.close()

    def _ask(self, socket: zmq.Socket[bytes], start: int) -> None:
        """Send a request. Raises TimeoutError where nobody is there to take it."""
        longest_s = self.endpoint.replay_timeout_s
        deadline = time.monotonic() + (
            longest_s if self.counts["replays"] == 1 else min(_CONNECT_S, longest_s)
        )
        while not socket.poll(_POLL_MS, zmq.POLLOUT):
            if self._stopping.is_set() or time.monotonic() > deadline:
                raise TimeoutError
        socket.send_multipart([b"", start.to_bytes(8, "big")])

    def _answers(self, socket: zmq.Socket[bytes]) -> bool:
        """Wait for a message. False when the source is stopped, TimeoutError when none comes."""
        deadline = time.monotonic() + self.endpoint.replay_timeout_s
        while not self._stopping.is_set():
            if socket.poll(_POLL_MS):
                return True
            if time.monotonic() > deadline:
                raise TimeoutError
        return False


def _unusable(address: str, bind: bool, error: zmq.ZMQError) -> str:
    """What is wrong with an address, and what to do."""
    said = f"cannot {'listen on' if bind else 'connect to'} {address} for KV events: {zmq.strerror(error.errno or 0)}"
    if bind and error.errno == zmq.EADDRINUSE:
        return f"{said}; give each server a port of its own, or let hitmap connect (--kv-connect)"
    hint = "--kv-connect" if bind else "--kv-bind"
    return (
        f"{said}; should it be the other way round ({hint}), or another address, as in tcp://127.0.0.1:5557?"
    )


def _reply(frames: list[bytes]) -> tuple[str | None, bytes, bytes] | None:
    """Topic (None where replies have none), number and payload of a reply; None for what is none."""
    match frames:
        case [_, topic, seq, payload, *_] if len(seq) == 8:
            return topic.decode(errors="replace"), seq, payload
        case [_, seq, payload, *_] if len(seq) == 8:
            return None, seq, payload
    return None
