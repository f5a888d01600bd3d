"""A KV-event publisher on real sockets, with a replay socket, that speaks as vLLM does."""

from __future__ import annotations

import base64
import json
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import zmq

Frames = list[bytes]


def recorded(file: Path) -> list[Frames]:
    """The messages of a recording: [topic, number, payload]."""
    lines = file.read_text().splitlines()
    return [[base64.b64decode(frame) for frame in json.loads(line)["frames_b64"]] for line in lines]


class Publisher:
    """PUB and ROUTER. connect_to: the PUB connects to a subscriber that listens there, else it binds a free port.

    events: where to bind instead. replay: where the ROUTER listens. buffer: how many messages can be replayed;
    old_replies: replies without a topic: SGLang, vLLM before 0.26.
    """

    def __init__(
        self,
        *,
        connect_to: str = "",
        events: str = "tcp://127.0.0.1:*",
        replay: str = "tcp://127.0.0.1:*",
        buffer: int = 10_000,
        old_replies: bool = False,
        reply_hwm: int = 1000,
    ) -> None:
        self._context = zmq.Context()
        self._pub = self._context.socket(zmq.XPUB)  # a PUB that tells when somebody subscribed
        self._pub.setsockopt(zmq.LINGER, 1000)
        self._pub.setsockopt(zmq.SNDHWM, 0)
        if connect_to:
            self._pub.connect(connect_to)
            self.events = connect_to
        else:
            self._pub.bind(events)
            self.events = self._pub.getsockopt_string(zmq.LAST_ENDPOINT)
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.SNDHWM, reply_hwm)
        self._router.bind(replay)
        self.replay = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self.buffer: deque[Frames] = deque(maxlen=buffer)
        self.requests: list[int] = []
        self.silent = False  # takes requests for replay and does not answer
        self._old_replies = old_replies
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def send(self, messages: Iterable[Frames], *, lose: Iterable[int] = ()) -> None:
        """Publish; the messages at the positions `lose` go to the replay buffer only."""
        lost = set(lose)
        for position, frames in enumerate(messages):
            self.buffer.append(frames)
            if position not in lost:
                self._pub.send_multipart(frames)

    def wait_for_subscriber(self) -> None:
        assert self._pub.poll(5000), "nobody subscribed"
        self._pub.recv()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            if not self._router.poll(20):
                continue
            client, empty, start = self._router.recv_multipart()
            first = int.from_bytes(start, "big")
            self.requests.append(first)
            if self.silent:
                continue
            for topic, seq, payload in [frames[:3] for frames in list(self.buffer) if len(frames) >= 3]:
                if int.from_bytes(seq, "big") >= first:
                    head = [client, empty] if self._old_replies else [client, empty, topic]
                    self._router.send_multipart([*head, seq, payload])
            head = [client, empty] if self._old_replies else [client, empty, b""]
            self._router.send_multipart([*head, b"\xff" * 8, b""])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._context.destroy()
