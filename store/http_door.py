"""An HTTP server with the bounds that uvicorn leaves out; OTLP/HTTP and the store are served by it.

uvicorn waits for ever for the head of a request and for the rest of a body, takes heads of any size, any number of
connections, and any number of requests that wait for the answer to the first. Here each of these ends: with a closed
connection, which an OTLP exporter takes for "send it again".

It also leaves out the body of a request that offers to change the protocol, as curl --http2 and Java's HttpClient do.
An offer may be ignored (RFC 9110, 7.8), and here it is.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from functools import partial
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cachemodel.http_offer import without_offer

MOST_CONNECTIONS = 256  # a quarter of the files that a process may usually open
ACCEPTED_AT_ONCE = 64  # before it is seen which of the others have been closed meanwhile
HEAD_BYTES = 64 << 10
CONNECTION_BYTES = HEAD_BYTES + (256 << 10)  # of one connection: its head, and what asyncio reads at once
HEAD_S = 10.0
IDLE_S = 75  # between two requests; exporters of metrics send once a minute

_INCOMPLETE = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class _ImpatientError(Exception):
    """A request came before the one ahead of it was answered."""


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with an end to everything it waits for. body_s: how long a body may take to come."""

    _timer: asyncio.TimerHandle | None = None
    _in_head = False
    _head_bytes = 0
    _body_bytes = 0
    _announced_bytes: int | None = None
    _is_last = False  # of its requests; what comes behind it is left alone

    def __init__(self, *args: Any, body_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._body_s = body_s

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            self._longest_at_rest(transport).abort()
        self._wait_for_at_most(HEAD_S)

    def _longest_at_rest(self, new: asyncio.Transport) -> asyncio.Transport:
        """Whose client will open another when it needs one; the new one where none is only kept open."""
        closes = {
            c.transport: c.timeout_keep_alive_task for c in self.connections if isinstance(c, Connection)
        }
        at_rest = {t: task.when() for t, task in closes.items() if task and not t.is_closing()}
        return min(at_rest, key=lambda transport: at_rest[transport], default=new)

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
        if self._is_last:
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
        except httptools.HttpParserError as error:
            if not isinstance(error.__context__, _ImpatientError):
                self._is_last = True
                self.send_400_response("Invalid HTTP request received.")

    def _should_upgrade(self) -> bool:
        """Has uvicorn make no request of one with an offer: it comes again without."""
        return True

    def _decline(self, rest: bytes) -> None:
        """Begin again with the request whose head has been read, without its offer; `rest` stands behind that head."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._is_last = True
            self.send_400_response("This is no proxy.")
            return
        lines = [b"%s %s HTTP/%s" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % header for header in without_offer(self.headers)]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._feed(b"\r\n".join([*lines, b"", rest]))

    def on_message_begin(self) -> None:
        if self.cycle and not self.cycle.response_complete:
            self.cycle.keep_alive = False
            self._is_last = True
            raise _ImpatientError
        self._in_head, self._head_bytes = True, 0
        self._wait_for_at_most(HEAD_S)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._body_bytes = 0
        lengths = [int(value) for name, value in self.headers if name == b"content-length"]
        self._announced_bytes = lengths[0] if lengths else None
        self._wait_for_at_most(self._body_s)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._wait_no_longer()
        comes_again = self.parser.should_upgrade() and self._should_upgrade()
        if not comes_again and self._announced_bytes not in (None, self._body_bytes):
            self._drop_request()
        super().on_message_complete()

    def _drop_request(self) -> None:
        """The application shall not take a part of a body for the whole."""
        self._is_last = True
        if not self.cycle.response_started:
            self.transport.write(_INCOMPLETE)
        self.transport.close()
        self.cycle.disconnected = True

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


def bounded_server(app: Any, *, body_s: float) -> uvicorn.Server:
    """A server of the ASGI application `app`; its `run` takes sockets that listen."""
    # that a request was no HTTP is the sender's matter, and said once for each
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=partial(Connection, body_s=body_s),  # type: ignore[arg-type]  # it is only called
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


class HttpDoor:
    """Serves the ASGI application `app` on `listener`, a socket that listens, in a thread of its own."""

    memory_bytes = MOST_CONNECTIONS * CONNECTION_BYTES

    def __init__(self, app: Any, listener: socket.socket, *, body_s: float) -> None:
        # asyncio does not set it on sockets that it was handed; without it answers wait for the client's ACK
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._listener = listener
        self._server = bounded_server(app, body_s=body_s)
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
