"""Publishes KV events over ZeroMQ as vLLM does: `[topic, number, payload]` on a PUB socket, the payload a msgpack batch
with events as maps, and a ROUTER that sends again what a subscriber missed.

A reader asks the ROUTER with `[empty, first number]` and gets `[empty, topic, number, payload]` for each batch that
is still kept, then `[empty, empty, ff*8, empty]`. Numbers are 8 bytes, big-endian, from 0 in each life of a publisher.
Source: vllm/distributed/kv_events.py (0.32.0).
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence

import zmq

from cachemodel.errors import UserError
from cachemodel.kv_events import Event, KVEventBatch, encode_batch

KEPT = 10_000
"""Batches that can be sent again (vLLM's buffer_steps)."""
_MOST_WAITING = 100_000
_END = b"\xff" * 8
_RANK = 0


class KvPublisher:
    """events, replay: endpoints to bind, `tcp://127.0.0.1:*` for a free port; replay empty for none.

    loses: asked for each batch whether it is lost on its way: it then uses its number and cannot be had again.
    counts, in batches: `published`, `lost`.
    Raises UserError where an endpoint cannot be bound.
    """

    def __init__(
        self, events: str, replay: str = "", *, topic: str = "", loses: Callable[[], bool] = lambda: False
    ) -> None:
        self.counts: Counter[str] = Counter(published=0, lost=0)
        self.topic = topic
        self._loses = loses
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            self._pub, self.events = self._bind(zmq.PUB, events, "--kv-events")
            self._router, self.replay = None, ""
            if replay:
                self._router, self.replay = self._bind(zmq.ROUTER, replay, "--kv-replay")
        except UserError:
            self._context.destroy(linger=0)
            raise
        self._waiting: deque[tuple[bytes, float, Sequence[Event]]] = deque()
        self._kept: deque[tuple[bytes, bytes]] = deque(maxlen=KEPT)
        self._numbers = itertools.count()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="kv events", daemon=True)
        self._thread.start()

    def put(self, ts: float, events: Sequence[Event]) -> None:
        """Take what a step did (Unix seconds, in order); returns at once. Called by one thread."""
        seq = next(self._numbers).to_bytes(8, "big")
        if len(self._waiting) >= _MOST_WAITING or self._loses():
            self.counts["lost"] += 1
            return
        self._waiting.append((seq, ts, events))
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Publish what waits, then close the sockets."""
        if self._closing:
            return
        self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)
        self._context.destroy(linger=1000)

    def _bind(self, kind: int, endpoint: str, option: str) -> tuple[zmq.Socket[bytes], str]:
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        socket.set_hwm(_MOST_WAITING)
        socket.setsockopt(zmq.IPV6, int("[" in endpoint))
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise UserError(
                f"KV events cannot be published at {endpoint} ({error.strerror}):"
                f" give {option} an address of this machine such as tcp://127.0.0.1:5557"
            ) from None
        return socket, str(socket.getsockopt_string(zmq.LAST_ENDPOINT))

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._wake, zmq.POLLIN)
        if self._router:
            poller.register(self._router, zmq.POLLIN)
        while not (self._closing and not self._waiting):
            ready = dict(poller.poll())
            if self._wake in ready:
                os.eventfd_read(self._wake)
            while self._waiting:
                self._publish(*self._waiting.popleft())
            if self._router and self._router in ready:
                self._send_again(self._router, self._router.recv_multipart())

    def _publish(self, seq: bytes, ts: float, events: Sequence[Event]) -> None:
        payload = encode_batch(KVEventBatch(ts, events, _RANK))
        self._kept.append((seq, payload))
        self._pub.send_multipart([self.topic.encode(), seq, payload])
        self.counts["published"] += 1

    def _send_again(self, router: zmq.Socket[bytes], frames: list[bytes]) -> None:
        if len(frames) != 3 or len(frames[2]) != 8:
            return
        client, _, first = frames
        for seq, payload in self._kept:
            if seq >= first:
                router.send_multipart([client, b"", self.topic.encode(), seq, payload])
        router.send_multipart([client, b"", b"", _END, b""])
