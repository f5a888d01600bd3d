"""The door that OTLP/HTTP and the store share, and the store behind it: no body is lost, every wait and size ends."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

import pytest

from store import http_door
from store.embedded import Embedded, find_owner
from store.http_door import Connection, HttpDoor
from tests.conftest import Database
from tests.store.plain import post
from tests.store.test_stopping import until

# what curl --http2 and Java's HttpClient send with their first request
OFFERS = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQBAAAAAAIAAAAA\r\n",
    "websocket": b"Upgrade: websocket\r\nConnection: keep-alive\r\nConnection: upgrade\r\n",
    "none": b"",
}


def head(length: int, *, target: str = "/", more: bytes = b"") -> bytes:
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n" % (
        target.encode(),
        more,
        length,
    )


def everything(sender: socket.socket) -> bytes:
    """What comes until the other side closes; the socket's timeout fails the test where it does not."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := sender.recv(65536):
            parts.append(part)
    return b"".join(parts)


def up_to(end: bytes, sender: socket.socket) -> bytes:
    answer = b""
    while not answer.endswith(end):
        part = sender.recv(4096)
        assert part, answer
        answer += part
    return answer


class Echo:
    """An application that answers with the bodies it got, `[body]` each, and notes them."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            more = message["more_body"]
        self.bodies.append(body)
        answer = b"[%s]" % body
        headers = [(b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


@contextmanager
def echo(body_s: float = 30) -> Iterator[tuple[Echo, socket.socket]]:
    """The application, and a connection to it."""
    app, listener = Echo(), socket.create_server(("127.0.0.1", 0))
    door = HttpDoor(app, listener, body_s=body_s)
    door.start()
    try:
        with socket.create_connection(listener.getsockname(), timeout=20) as sender:
            yield app, sender
    finally:
        door.stop(1)


# -- an offer of another protocol --------------------------------------------------------------------------------------


@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.parametrize("cut", [10, 60, 10_000])
def test_a_request_that_offers_another_protocol_keeps_its_body(offer: str, cut: int) -> None:
    chunked = (
        b"POST / HTTP/1.1\r\n" + OFFERS[offer] + b"Transfer-Encoding: chunked\r\n\r\n3\r\ndef\r\n0\r\n\r\n"
    )
    with echo() as (app, sender):
        for request in (head(3, more=OFFERS[offer]) + b"abc", chunked, head(1) + b"g"):
            sender.sendall(request[:cut])
            sender.sendall(request[cut:])
            assert up_to(b"]", sender).startswith(b"HTTP/1.1 200")
    assert app.bodies == [b"abc", b"def", b"g"]


def test_a_request_that_wants_the_connection_closed_still_does() -> None:
    with echo() as (_, sender):
        sender.sendall(head(3, more=b"Upgrade: h2c\r\nConnection: Upgrade, close\r\n") + b"abc")
        assert everything(sender).endswith(b"connection: close\r\n\r\n[abc]")


def test_a_tunnel_is_refused() -> None:
    with echo() as (app, sender):
        sender.sendall(b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost\r\n\r\nabc")
        assert everything(sender).startswith(b"HTTP/1.1 400 ")
    assert app.bodies == []


def test_a_body_that_is_not_what_was_announced_is_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the parser to leave a body out after all."""
    monkeypatch.setattr(Connection, "_should_upgrade", lambda _: False)
    monkeypatch.setattr(Connection, "_decline", lambda *_: None)
    with echo() as (app, sender):
        sender.sendall(head(3, more=OFFERS["h2c"]) + b"abc")
        assert everything(sender).startswith(b"HTTP/1.1 503 ")
    assert app.bodies == []


def _basic(database: Database) -> tuple[int, str, str]:
    parts = urlsplit(database.dsn)
    login = {"user": parts.username or "", "password": unquote(parts.password or "")}
    return parts.port or 0, parts.path.strip("/"), urlencode(login)


@pytest.mark.parametrize("offer", OFFERS)
def test_rows_sent_with_an_offer_are_stored_once(offer: str, empty_db: Database) -> None:
    empty_db.client.command("CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a")
    port, database, login = _basic(empty_db)
    insert = urlencode({"database": database, "query": "INSERT INTO t FORMAT JSONEachRow"})
    body = b'{"a": 1}\n{"a": 2}\n'
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sender:
        sender.sendall(head(len(body), target=f"/?{insert}&{login}", more=OFFERS[offer]) + body)
        assert sender.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert empty_db.client.query("SELECT a FROM t ORDER BY a").result_rows == [(1,), (2,)]


# -- one request after the other ---------------------------------------------------------------------------------------


def test_who_does_not_wait_for_an_answer_gets_that_one_alone() -> None:
    with echo() as (app, sender):
        sender.sendall(head(3) + b"abc" + (head(3) + b"def") * 1000)
        answer = everything(sender)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.endswith(b"connection: close\r\n\r\n[abc]")
    assert app.bodies == [b"abc"]


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "beginning", [b"", b"\r\n", b"POST / HT", head(9)[:-3], head(9) + b"x", head(1) + b"xPO"]
)
def test_who_does_not_go_on_is_cut_off(beginning: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_door, "HEAD_S", 0.2)
    with echo(body_s=0.2) as (app, sender):
        sender.sendall(beginning)
        everything(sender)
    assert b"x" * 9 not in app.bodies


def test_a_head_without_end_is_cut_off() -> None:
    with echo() as (_, sender):
        sender.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\n")
        with contextlib.suppress(ConnectionError):
            for i in range(10_000):
                sender.sendall(b"X-%d: %s\r\n" % (i, b"y" * 1000))
        assert i < 9999
        everything(sender)


_STRICT_STORE = """
import pathlib, sys
from store import http, http_door, serve
from store.engine import Limits
http_door.HEAD_S, http_door.MOST_CONNECTIONS, serve.BODY_S = 0.3, 4, 1
http.READER_BODIES_BYTES = 150_000
serve.serve(pathlib.Path(sys.argv[1]), 0, Limits())
"""


@pytest.fixture(scope="module")
def strict_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A store whose bounds are soon reached."""
    directory = tmp_path_factory.mktemp("strict")
    with subprocess.Popen([sys.executable, "-c", _STRICT_STORE, str(directory)]) as process:
        try:
            until(lambda: find_owner(directory) is not None)
            owner = find_owner(directory)
            assert owner
            yield owner.port
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    with contextlib.suppress(ConnectionError):
        return post(f"http://127.0.0.1:{port}", "SELECT 1").text == "1\n"
    return False


@pytest.mark.parametrize("beginning", [b"", b"POST / HT", head(9) + b"x"])
def test_the_store_waits_for_nobody_for_ever(beginning: bytes, strict_port: int) -> None:
    with socket.create_connection(("127.0.0.1", strict_port), timeout=20) as sender:
        sender.sendall(beginning)
        assert everything(sender) == b""
    assert _answers(strict_port)


def test_the_stores_connections_are_bounded(strict_port: int) -> None:
    ping = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
    held = [socket.create_connection(("127.0.0.1", strict_port), timeout=20) for _ in range(4)]
    for sender in held:
        sender.sendall(ping)
        assert sender.recv(4096).startswith(b"HTTP/1.1 200 ")
    with socket.create_connection(("127.0.0.1", strict_port), timeout=20) as fifth:
        assert everything(fifth) == b""
    for sender in held:
        sender.close()
    until(lambda: _answers(strict_port))


def test_the_stores_bodies_are_bounded_together(strict_port: int) -> None:
    with socket.create_connection(("127.0.0.1", strict_port), timeout=20) as stuck:
        stuck.sendall(head(100_001) + bytes(100_000))
        body = b"SELECT 1 /*" + b"x" * 60_000 + b"*/"
        until(lambda: post(f"http://127.0.0.1:{strict_port}", body).code == 202)
    until(lambda: post(f"http://127.0.0.1:{strict_port}", body).text == "1\n")


def test_a_connection_is_kept_between_requests(store_server: Embedded) -> None:
    sql = b"SELECT 1"
    with socket.create_connection(("127.0.0.1", store_server.owner.port), timeout=20) as sender:
        for _ in range(5):
            sender.sendall(head(len(sql)) + sql)
            assert up_to(b"0\r\n\r\n", sender).startswith(b"HTTP/1.1 200 ")


def test_a_connection_at_rest_makes_room_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.http_door.MOST_CONNECTIONS", 2)
    with echo() as (app, first):
        address = first.getpeername()
        first.sendall(head(1) + b"a")
        assert up_to(b"]", first).startswith(b"HTTP/1.1 200")
        senders = [socket.create_connection(address, timeout=5) for _ in range(2)]
        for sender in senders:
            sender.sendall(head(1) + b"b")
            assert up_to(b"]", sender).startswith(b"HTTP/1.1 200")
        with contextlib.suppress(ConnectionResetError):
            assert first.recv(1) == b""
        for sender in senders:
            sender.close()
    assert app.bodies == [b"a", b"b", b"b"]
