"""Asks a publisher's replay socket for messages it still has; see subscriber.py for the wire."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import zmq

from collector.kv.sockets import open_socket

_END = b"\xff" * 8
_POLL_MS = 200


class Reply(NamedTuple):
    """A message again. topic: None where replies have none."""

    topic: str | None
    seq: bytes
    payload: bytes


class Waits(NamedTuple):
    """How long to wait for a connection and for each reply (seconds), and what ends all waiting."""

    connect_s: float
    reply_s: float
    stopping: threading.Event


def replies(address: str, start: int, waits: Waits) -> Iterator[Reply | None]:
    """The messages from `start` on, None for what is none.

    Raises TimeoutError where nobody takes the question or the end marker does not come, UserError for an address that
    cannot be used.
    """
    socket = open_socket(zmq.DEALER, address, bind=False)
    try:
        _ask(socket, start, waits)
        while _answers(socket, waits):
            reply = _reply(socket.recv_multipart())
            if reply is not None and reply.seq == _END:
                return
            yield reply
    finally:
        socket.close()


def _ask(socket: zmq.Socket[bytes], start: int, waits: Waits) -> None:
    deadline = time.monotonic() + waits.connect_s
    while not socket.poll(_POLL_MS, zmq.POLLOUT):
        if waits.stopping.is_set() or time.monotonic() > deadline:
            raise TimeoutError
    socket.send_multipart([b"", start.to_bytes(8, "big")])


def _answers(socket: zmq.Socket[bytes], waits: Waits) -> bool:
    """Wait for a message. False when the source is stopped, TimeoutError when none comes."""
    deadline = time.monotonic() + waits.reply_s
    while not waits.stopping.is_set():
        if socket.poll(_POLL_MS):
            return True
        if time.monotonic() > deadline:
            raise TimeoutError
    return False


def _reply(frames: list[bytes]) -> Reply | None:
    match frames:
        case [_, topic, seq, payload, *_] if len(seq) == 8:
            return Reply(topic.decode(errors="replace"), seq, payload)
        case [_, seq, payload, *_] if len(seq) == 8:
            return Reply(None, seq, payload)
    return None
