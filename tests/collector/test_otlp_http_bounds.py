"""What senders may take of the HTTP door: memory, and time between two bytes."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest
from google.rpc.code_pb2 import Code

from benchmarks.spans import export_request
from collector.otlp import http as otlp_http
from collector.spool import Spool
from store import http_door as door_module
from tests.collector.otlp import PROTOBUF, http_door, send
from tests.collector.support import wait_until
from tests.collector.test_otlp_http import SMALL, status_of


def test_bodies_under_way_are_bounded_together(tmp_path: Path) -> None:
    """Senders that stop in the middle hold memory; beyond the bound the next is asked to come back."""
    stuck: list[socket.socket] = []
    with http_door(Spool(tmp_path), limits=SMALL) as receiver:
        for _ in range(otlp_http.BODIES):
            sender = socket.create_connection(("127.0.0.1", receiver.port))
            sender.sendall(_head(99_999) + bytes(99_990))
            stuck.append(sender)
        wait_until(lambda: receiver.held_bytes == 99_990 * otlp_http.BODIES)
        answer = send(receiver, export_request(1, spans=50))
        assert status_of(answer)[:2] == (503, Code.UNAVAILABLE)
        assert answer.headers["retry-after"] == "1"
        for sender in stuck:
            sender.close()
        wait_until(lambda: receiver.held_bytes == 0)
        assert send(receiver, export_request(1, spans=50)).status == 200


def test_an_announced_body_that_is_too_large_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    with (
        http_door(Spool(tmp_path), limits=SMALL) as receiver,
        socket.create_connection(("127.0.0.1", receiver.port)) as sender,
    ):
        sender.sendall(_head(10**12, "Expect: 100-continue"))
        assert sender.recv(4096).startswith(b"HTTP/1.1 413 ")


def _head(length: int, *more: str) -> bytes:
    lines = (
        "POST /v1/traces HTTP/1.1",
        "Host: localhost",
        f"Content-Type: {PROTOBUF}",
        f"Content-Length: {length}",
        *more,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def assert_cut_off(sender: socket.socket) -> None:
    """The other side closes; the timeout of the socket fails the test where it does not."""
    with contextlib.suppress(ConnectionError):
        while sender.recv(4096):
            pass


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"POST /v1/tr",
        b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nX-Drip: ",
        b"\r\n",
        _head(1000) + b"x",
        _head(1000) + b"x" * 1000 + b"POST /v1/tr",
    ],
)
def test_who_does_not_go_on_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    monkeypatch.setattr(door_module, "HEAD_S", 0.2)
    monkeypatch.setattr(otlp_http, "BODY_S", 0.2)
    with (
        http_door(Spool(tmp_path)) as receiver,
        socket.create_connection(("127.0.0.1", receiver.port), timeout=20) as sender,
    ):
        sender.sendall(beginning)
        assert_cut_off(sender)
        assert send(receiver, b"").status == 200
