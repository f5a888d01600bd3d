"""Queries end when nobody wants them any more: the client left, asked for it, or takes nothing of the result."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from store.embedded import Embedded, Owner, find_owner
from store.engine import READER_HANDLES
from tests.conftest import Database
from tests.store.plain import post

HOURS = "SELECT count() FROM numbers(1000000000000000)"
ENDLESS = "SELECT number FROM numbers(1000000000000000)"
OTHERS = "SELECT count() FROM system.processes WHERE query LIKE '{}%' AND query NOT LIKE '%system.processes%'"


def send(port: int, sql: str, query: str = "") -> socket.socket:
    """POST `sql` as a reader, or as `query` says, and read nothing of the answer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    head = f"POST /?{query} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(sql)}\r\n\r\n"
    connection.sendall(head.encode() + sql.encode())
    return connection


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def running(store: Embedded, start: str) -> int:
    return int(post(store.dsn, OTHERS.format(start)).text)


@pytest.mark.parametrize("tail", ["", " FORMAT JSON"])
def test_a_client_that_leaves_takes_its_query_along(tail: str, store_server: Embedded) -> None:
    """One that streams and one that is built whole; neither has a first block to give."""
    clients = [send(store_server.owner.port, HOURS + tail) for _ in range(2 * READER_HANDLES)]
    until(lambda: running(store_server, HOURS) == READER_HANDLES)
    for client in clients:  # half of them wait for a handle
        client.close()
    until(lambda: running(store_server, HOURS) == 0)
    assert post(store_server.reader_dsn, "SELECT 1").text == "1\n"


def test_a_writers_change_goes_on_without_its_client(empty_db: Database, store_server: Embedded) -> None:
    empty_db.client.command("CREATE TABLE t (n UInt64) ENGINE = MergeTree ORDER BY n")
    owner, name = store_server.owner, empty_db.dsn.rpartition("/")[2]
    insert = "INSERT INTO t SELECT number + sleepEachRow(0.3) FROM numbers(3)"
    client = send(owner.port, insert, f"user=writer&password={owner.password}&database={name}")
    until(lambda: running(store_server, insert) == 1)
    client.close()
    until(lambda: running(store_server, insert) == 0)
    assert post(empty_db.dsn, "SELECT count() FROM t").text == "3\n"


def test_a_reader_kills_a_query_by_its_id(store_server: Embedded) -> None:
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(post, store_server.reader_dsn, HOURS, query_id="slow")
        until(lambda: running(store_server, HOURS) == 1)
        again = post(store_server.reader_dsn, "SELECT 1", query_id="slow")
        assert (again.status, again.code) == (409, 216)
        killed = post(store_server.reader_dsn, "KILL QUERY WHERE query_id = 'slow' SYNC FORMAT JSONEachRow")
        assert json.loads(killed.text) == {
            "kill_status": "finished",
            "query_id": "slow",
            "user": "default",
            "query": HOURS,
        }
        assert slow.result().code == 394
    assert post(store_server.reader_dsn, "KILL QUERY WHERE query_id = 'slow'").text == ""
    assert post(store_server.reader_dsn, "SELECT 1", query_id="slow").text == "1\n"


def test_a_reader_kills_no_writers_query(store_server: Embedded) -> None:
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(post, store_server.dsn, HOURS, query_id="mine")
        until(lambda: running(store_server, HOURS) == 1)
        assert post(store_server.reader_dsn, "KILL QUERY WHERE query_id = 'mine'").text == ""
        assert running(store_server, HOURS) == 1
        assert post(store_server.dsn, "KILL QUERY WHERE query_id = 'mine'").text.startswith(
            "finished\tmine\t"
        )
        assert slow.result().code == 394


def test_a_stopped_query_leaves_its_handle_bound(store_server: Embedded) -> None:
    limit = "SELECT getSetting('max_execution_time'), getSetting('readonly'), getSetting('max_threads')"
    before = post(store_server.reader_dsn, limit).text
    for _ in range(READER_HANDLES):
        client = send(store_server.owner.port, HOURS, "max_execution_time=60&max_threads=1")
        until(lambda: running(store_server, HOURS) == 1)
        client.close()
        until(lambda: running(store_server, HOURS) == 0)
    assert {post(store_server.reader_dsn, limit).text for _ in range(2 * READER_HANDLES)} == {before}


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Owner]:
    """A store that waits one second for clients who take nothing, and keeps results of four megabytes at most."""
    code = (
        "import sys, pathlib; import store.engine, store.http_answer; from store.engine import Limits\n"
        "from store.serve import serve; store.engine.KEPT_BYTES = store.http_answer.KEPT_BYTES = 4 << 20\n"
        "serve(pathlib.Path(sys.argv[1]), 0, Limits(stall_seconds=1))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE, text=True
    ) as process:
        until(lambda: find_owner(tmp_path) is not None)
        owner = find_owner(tmp_path)
        assert owner
        yield owner
        process.send_signal(signal.SIGTERM)
        assert process.stderr
        assert process.stderr.read() == ""


def test_readers_that_never_read_hold_no_handle_for_long(impatient: Owner) -> None:
    clients = [send(impatient.port, ENDLESS) for _ in range(2 * READER_HANDLES)]
    assert post(impatient.reader_dsn, "SELECT 1").text == "1\n"
    until(lambda: post(impatient.dsn, OTHERS.format(ENDLESS)).text == "0\n")
    for client in clients:
        client.close()


def test_a_result_that_waits_for_its_end_needs_no_handle_to_be_taken(store_server: Embedded) -> None:
    """The way for clients that mean to take their time."""
    big = "SELECT number FROM numbers(5000000)"
    clients = [send(store_server.owner.port, big, "wait_end_of_query=1") for _ in range(2 * READER_HANDLES)]
    until(lambda: running(store_server, big) == 0)
    assert post(store_server.reader_dsn, "SELECT 1").text == "1\n"
    received = bytearray()
    while not received.endswith(b"\r\n0\r\n\r\n"):
        part = clients[0].recv(1 << 20)
        assert part, "the result ended early"
        received += part
    assert b"\n4999999\n" in received
    for client in clients:
        client.close()


@pytest.mark.parametrize("ask", [{"default_format": "JSON"}, {"wait_end_of_query": "1"}])
def test_a_result_that_has_to_be_kept_has_a_bound(
    ask: dict[str, str], impatient: Owner, tmp_path: Path
) -> None:
    """JSON and others with a head or a tail go through a file; nobody fills the disk with it, or the memory."""
    answer = post(impatient.reader_dsn, "SELECT number, toString(number) FROM numbers(100000000)", **ask)
    assert (answer.status, answer.code) == (500, 396), answer.text
    assert "may have 4194304 bytes at most" in answer.text
    assert (
        post(impatient.reader_dsn, "SELECT count() FROM numbers(9) FORMAT JSONCompact").text.count("[9]") == 1
    )
    assert not list(tmp_path.glob("result-*"))
