"""An HTTP server with the bounds that uvicorn leaves out: every wait for a client has an end.

uvicorn waits for ever for the head of a request, for the rest of a body, and for somebody who does not read. Here each
of these ends with a closed connection, and what was being generated for it with an abort. What a client has not read
stays in the kernel's buffers, which are bounded, and not in ours: a stream waits for its reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import struct
from collections.abc import Iterator
from typing import Any

import httptools
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cachemodel.http_offer import without_offer
from engine.errors import Overloaded
from engine.serving.guard import error_response

MOST_CONNECTIONS = 4096  # beyond them requests are refused; fewer where the process may open fewer files
MOST_REFUSING = 128  # connections that are only there to be refused; others are closed unread
OTHER_FILES = 128  # weights, sockets of telemetry, the disk tier
ACCEPTED_AT_ONCE = 1024
HEAD_BYTES = 64 << 10
HEAD_S = 10.0
BODY_S = 30.0
STALL_S = 30.0  # a reader that takes nothing for this long is gone
IDLE_S = 75
SEND_BUFFER_BYTES = 64 << 10  # the kernel's, a connection
KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with an end to everything it waits for."""

    _timer: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    _in_head = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # so that writing pauses when the kernel takes no more
        most = most_connections()
        if len(self.connections) > most + MOST_REFUSING:
            transport.abort()
        elif len(self.connections) > most:
            self.app = refuse
        self._wait_for_at_most(HEAD_S)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        was_in_head = self._in_head
        self._feed(data)
        if was_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.transport.abort()
        at_rest = self.cycle is None or self.cycle.response_complete
        if at_rest and not self._timer and not self.timeout_keep_alive_task:  # empty lines only
            self._wait_for_at_most(HEAD_S)

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _should_upgrade(self) -> bool:
        """Has uvicorn make no request of one that offers another protocol: it comes again without the offer."""
        return True

    def _decline(self, rest: bytes) -> None:
        """Begin again with the request whose head was read, without its offer; `rest` stands behind that head.

        curl --http2 and Java's HttpClient offer HTTP/2 with every request, and may be ignored (RFC 9110, 7.8).
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.send_400_response("This is no proxy.")
            return
        head = [b"%s %s HTTP/%s" % (method, self.url, self.parser.get_http_version().encode())]
        head += [b"%s: %s" % header for header in without_offer(self.headers)]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._feed(b"\r\n".join([*head, b"", rest]))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        if (
            self.cycle is None or self.cycle.response_complete
        ):  # else it is not read before that one is answered
            self._wait_for_at_most(HEAD_S)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._wait_for_at_most(BODY_S)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._wait_no_longer()
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall:
            self._stall.cancel()
        self._stall = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_longer()
        super().connection_lost(exc)
        self.resume_writing()

    def _watch_reader(self, left: int | None = None) -> None:
        """left: bytes that were unsent when it was looked at last."""
        unsent = self.transport.get_write_buffer_size()
        if left is not None and unsent >= left:
            # a reset: else the kernel would go on offering what nobody takes
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        else:
            self._stall = self.loop.call_later(STALL_S, self._watch_reader, unsent)

    def _wait_for_at_most(self, seconds: float) -> None:
        self._wait_no_longer()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _wait_no_longer(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = None


class HttpServer(uvicorn.Server):
    """Serves an ASGI application; whoever runs it looks after signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_server(app: Any) -> HttpServer:
    """A server of `app`; its `serve` takes sockets that `listen` made."""
    # that a request was no HTTP is the sender's matter
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    return HttpServer(
        uvicorn.Config(
            app,
            http=Connection,
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


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; connections inherit its options. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host.strip("[]"), port), family=family, backlog=ACCEPTED_AT_ONCE)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        listener.setsockopt(socket.IPPROTO_TCP, option, value)
    return listener


def allow_connections() -> None:
    """Raise the soft limit on open files to what MOST_CONNECTIONS need, or as far as it goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + MOST_REFUSING + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections() -> int:
    """How many are served at once."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(1, min(MOST_CONNECTIONS, files - MOST_REFUSING - OTHER_FILES))


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """What a connection too many is answered."""
    error = Overloaded(f"This server has {most_connections()} connections open; try again later.")
    response = error_response(error)
    response.headers["connection"] = "close"
    await response(scope, receive, send)
