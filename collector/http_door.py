"""An HTTP server in a thread of its own, with the bounds that uvicorn leaves out.

uvicorn waits for ever for the head of a request and for the rest of a body, takes heads of any size and any number of
connections. Here each of these ends: with a closed connection, which an OTLP exporter takes for "send it again".
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_CONNECTIONS = 256  # a quarter of the files that a process may usually open
ACCEPTED_AT_ONCE = 64  # before it is seen which of the others have been closed meanwhile
HEAD_BYTES = 64 << 10
CONNECTION_BYTES = HEAD_BYTES + (256 << 10)  # of one connection: its head, and what asyncio reads at once
HEAD_S = 10.0
BODY_S = 30.0
IDLE_S = 75  # between two requests; exporters of metrics send once a minute


class _Connection(HttpToolsProtocol):
    """uvicorn's connection, with an end to everything it waits for."""

    _timer: asyncio.TimerHandle | None = None
    _in_head = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        self._wait_for_at_most(HEAD_S)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.transport.abort()
        at_rest = self.cycle is None or self.cycle.response_complete
        if at_rest and not self._timer and not self.timeout_keep_alive_task:  # empty lines only
            self._wait_for_at_most(HEAD_S)

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._wait_for_at_most(HEAD_S)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._wait_for_at_most(BODY_S)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._wait_no_longer()
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_longer()
        super().connection_lost(exc)

    def _wait_for_at_most(self, seconds: float) -> None:
        self._wait_no_longer()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _wait_no_longer(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = None


class HttpDoor:
    """Serves the ASGI application `app` on `listener`, a socket that listens."""

    memory_bytes = MOST_CONNECTIONS * CONNECTION_BYTES

    def __init__(self, app: Any, listener: socket.socket) -> None:
        # asyncio does not set it on sockets that it was handed; without it answers wait for the client's ACK
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._listener = listener
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=_Connection,
                ws="none",
                interface="asgi3",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=IDLE_S,
                backlog=ACCEPTED_AT_ONCE,
            )
        )
        # that a request was no HTTP is the sender's matter, and said once for each
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="http-door", daemon=True)

    def start(self) -> None:
        """Begin to accept; what connected since the socket listens is served, too."""
        self._thread.start()

    def stop(self, grace_s: float) -> None:
        """Accept nothing new, give requests under way `grace_s` seconds, and end."""
        self._server.config.timeout_graceful_shutdown = max(1, round(grace_s))
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(grace_s + 5)
        self._listener.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._listener])
