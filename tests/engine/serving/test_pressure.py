"""More clients than the server was made for, and clients that do not read: served or refused, and nothing leaked."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from pathlib import Path

import pytest

from engine.serve import EngineServer
from engine.serving import connection
from tests.engine.serving.live import eventually, is_idle, serving, settings

PARALLEL = 2000


def ask(**body: object) -> bytes:
    text = json.dumps(body).encode()
    head = (
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    )
    return head % len(text) + text


async def status_of(port: int, request: bytes, everybody: asyncio.Barrier) -> tuple[int, bytes]:
    """The status and the rest, of a request sent when all connections are open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await everybody.wait()
        writer.write(request)
        answer = await reader.read()
    finally:
        writer.close()
    return int(answer.split(b" ", 2)[1]), answer


async def all_at_once(port: int, count: int) -> list[tuple[int, bytes]]:
    everybody = asyncio.Barrier(count)
    request = ask(prompt="a", max_tokens=1, temperature=0)
    return await asyncio.gather(*(status_of(port, request, everybody) for _ in range(count)))


def files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def room_for_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 3 * PARALLEL
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(
            f"a process may open {hard} files here; both ends of {PARALLEL} connections need {needed}"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


@pytest.mark.usefixtures("room_for_files")
def test_two_thousand_connections_are_served(server: EngineServer) -> None:
    before = files()
    answers = asyncio.run(all_at_once(server.port, PARALLEL))
    assert {status for status, _ in answers} == {200}
    assert len({body.partition(b"\r\n\r\n")[2].partition(b'"text"')[2] for _, body in answers}) == 1
    assert eventually(lambda: is_idle(server))
    assert eventually(lambda: files() <= before)


@pytest.mark.usefixtures("room_for_files")
def test_those_beyond_the_queue_are_refused_and_told_when_to_come_again() -> None:
    with serving(settings(max_num_seqs=4, max_waiting=50)) as server:
        before = files()
        answers = asyncio.run(all_at_once(server.port, 500))
        refused = [answer for status, answer in answers if status == 503]
        assert {status for status, _ in answers} == {200, 503}
        assert len(refused) + [status for status, _ in answers].count(200) == 500
        assert all(b"retry-after: 1" in answer and b'"code":"overloaded"' in answer for answer in refused)
        assert eventually(lambda: is_idle(server))
        assert eventually(lambda: files() <= before)
        assert asyncio.run(all_at_once(server.port, 1))[0][0] == 200


def test_connections_beyond_the_most_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 20)
    monkeypatch.setattr(connection, "MOST_REFUSING", 10)
    with serving() as server:
        kept = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as one_more:
            one_more.sendall(ask(prompt="a", max_tokens=1))
            answer = b"".join(iter(lambda: one_more.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"20 connections" in answer
        kept[0].sendall(ask(prompt="a", max_tokens=1))
        assert kept[0].recv(65536).startswith(b"HTTP/1.1 200 ")
        kept += [socket.create_connection(("127.0.0.1", server.port)) for _ in range(30)]
        assert any(is_closed(sock) for sock in kept[30:])
        for sock in kept:
            sock.close()


def is_closed(sock: socket.socket) -> bool:
    sock.settimeout(2)
    try:
        return sock.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def endless(server: EngineServer, receive_buffer: int = 4096) -> socket.socket:
    """A client that asked for a long stream into a small buffer and does not read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.connect(("127.0.0.1", server.port))
    sock.sendall(ask(prompt="a", max_tokens=1500, ignore_eos=True, stream=True))
    return sock


def test_who_reads_nothing_is_dropped_and_its_request_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALL_S", 0.3)
    with serving() as server, endless(server) as sock:
        assert eventually(lambda: server.engine.stats().running == 1)
        assert eventually(lambda: is_idle(server), 30)
        assert b'reason="abort"' in server.telemetry.exposition()
        sock.settimeout(10)
        with pytest.raises(ConnectionResetError):
            list(iter(lambda: sock.recv(65536), b""))


def test_who_reads_slowly_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALL_S", 0.5)
    with serving() as server, endless(server, 32768) as sock:
        assert eventually(lambda: server.engine.stats().running == 1)
        received = bytearray()
        sock.settimeout(10)
        while part := sock.recv(1024 if len(received) < 20_000 else 1 << 20):
            received += part
        assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert received.count(b'"finish_reason":"length"') == 1
        assert eventually(lambda: is_idle(server))
