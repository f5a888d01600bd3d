"""ZeroMQ sockets of subscribers: bounds, and errors that say what to do."""

from __future__ import annotations

from functools import cache

import zmq
from zmq.utils.monitor import recv_monitor_message

from cachemodel.errors import UserError

QUEUE = 10_000  # messages that may wait in the socket; what is dropped beyond that is replayed
_MOST_SOCKETS = 8192  # of the process; ZeroMQ's own limit is 1023
_MAX_MESSAGE = 16 << 20  # bytes of a frame; ZeroMQ drops the connection of who sends more


@cache
def context() -> zmq.Context[zmq.Socket[bytes]]:
    """What all subscribers share: each context costs threads and files, and ZeroMQ aborts where those run out."""
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made.max_sockets = _MOST_SOCKETS
    return made


def open_socket(kind: int, address: str, *, bind: bool) -> zmq.Socket[bytes]:
    """A socket that listens at, or connects to, an address. Raises UserError where that cannot be."""
    socket: zmq.Socket[bytes] = context().socket(kind)
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


class Handshakes:
    """Tells when a socket's peer was there, or was there again."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self._monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)

    def new(self) -> bool:
        """Whether there was one since the last look."""
        found = False
        while self._monitor.poll(0):
            recv_monitor_message(self._monitor)
            found = True
        return found

    def close(self) -> None:
        if not self._socket.closed:
            self._socket.disable_monitor()


def _unusable(address: str, bind: bool, error: zmq.ZMQError) -> str:
    """What is wrong with an address, and what to do."""
    said = f"cannot {'listen on' if bind else 'connect to'} {address} for KV events: {zmq.strerror(error.errno or 0)}"
    if bind and error.errno == zmq.EADDRINUSE:
        return (
            f"{said}; if it is the server that listens there, let hitmap connect (--kv-connect), else give each"
            " server a port of its own"
        )
    hint = "--kv-connect" if bind else "--kv-bind"
    return (
        f"{said}; should it be the other way round ({hint}), or another address, as in tcp://127.0.0.1:5557?"
    )
