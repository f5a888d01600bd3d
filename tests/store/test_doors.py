"""Stock clients and plain HTTP: clickhouse-connect's async client, curl, forms, sessions, progress, time zones."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from clickhouse_connect import get_async_client
from clickhouse_connect.driver.asyncclient import AsyncClient
from clickhouse_connect.driver.exceptions import ClickHouseError, DatabaseError

from store.client import connect
from store.embedded import Embedded, Owner, find_owner
from store.http_answer import told
from tests.conftest import Database
from tests.store.plain import post
from tests.store.test_stopping import HOURS, running, until

# -- clickhouse-connect, asynchronous ----------------------------------------------------------------------------------


async def _async_client(dsn: str, **options: bool | str) -> AsyncClient:
    parts = urlsplit(dsn)
    return await get_async_client(
        host="127.0.0.1",
        port=parts.port or 0,
        username=parts.username or "default",
        password=parts.password or "",
        database=parts.path.strip("/"),
        **options,
    )


@pytest.mark.parametrize("compress", [False, True, "lz4", "zstd", "gzip"])
def test_the_async_client_writes_and_reads(compress: bool | str, empty_db: Database) -> None:
    async def run() -> None:
        async with await _async_client(empty_db.dsn, compress=compress) as client:
            await client.command(
                "CREATE TABLE t (n UInt64, s Nullable(String)) ENGINE = MergeTree ORDER BY n"
            )
            rows = [[n, None if n % 2 else f"{n:050d}"] for n in range(20_000)]
            written = await client.insert("t", rows, column_names=["n", "s"])
            assert written.written_rows == 20_000
            found = await client.query("SELECT * FROM t WHERE n < {n:UInt64} ORDER BY n", {"n": 3})
            assert found.result_rows == [(0, "0" * 50), (1, None), (2, f"{2:050d}")]
            async with await client.query_row_block_stream("SELECT n FROM t ORDER BY n") as stream:
                streamed = [n async for block in stream for (n,) in block]
            assert streamed == list(range(20_000))
            with pytest.raises(DatabaseError, match="nowhere"):
                await client.query("SELECT * FROM nowhere")
            with pytest.raises(ClickHouseError, match="throwIf"):
                await client.query("SELECT throwIf(number = 3000000) FROM numbers(4000000)")

    asyncio.run(run())


def test_many_async_queries_at_once(store_server: Embedded) -> None:
    async def run() -> list[int]:
        # queries of one session come one after the other, so these have none
        async with await _async_client(store_server.reader_dsn, autogenerate_session_id=False) as client:
            results = await asyncio.gather(
                *(client.query(f"SELECT count() FROM numbers({n})") for n in range(30))
            )
            return [result.first_row[0] for result in results]

    assert asyncio.run(run()) == list(range(30))


def test_a_cancelled_async_query_is_stopped(store_server: Embedded) -> None:
    async def run() -> None:
        async with await _async_client(store_server.reader_dsn) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await client.query(HOURS)

    asyncio.run(run())
    until(lambda: running(store_server, HOURS) == 0)


# -- curl --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def curl() -> str:
    path = shutil.which("curl")
    if path is None:
        pytest.skip("curl is not installed")
    return path


def _run(*words: str, stdin: bytes = b"") -> str:
    return subprocess.run(words, input=stdin, capture_output=True, check=True, timeout=60).stdout.decode()


def test_curl(curl: str, empty_db: Database) -> None:
    parts = urlsplit(empty_db.dsn)
    url = f"http://127.0.0.1:{parts.port}"
    writer = ["--user", f"{parts.username}:{parts.password}"]
    here = f"{url}/?database={parts.path.strip('/')}"
    assert _run(curl, "-s", f"{url}/ping") == "Ok.\n"
    assert _run(curl, "-s", f"{url}/replicas_status") == "Ok.\n"
    assert _run(curl, "-s", url) == "Ok.\n"
    assert _run(curl, "-sI", url).startswith("HTTP/1.1 200 OK")
    assert _run(curl, "-sG", url, "--data-urlencode", "query=SELECT 1 FORMAT CSV") == "1\n"
    assert _run(curl, "-s", f"{url}/?param_x=2", "-d", "SELECT {x:UInt8} + 1") == "3\n"
    assert _run(curl, "-s", f"{url}/?query=SELECT+", "--data-binary", "@-", stdin=b"1 + 1") == "2\n"
    assert (
        _run(
            curl,
            "-s",
            *writer,
            here,
            "-d",
            "CREATE TABLE t (a UInt8, b String) ENGINE = MergeTree ORDER BY a",
        )
        == ""
    )
    insert = f"{here}&query=INSERT+INTO+t+FORMAT+CSV"
    chunked = ["-H", "Transfer-Encoding: chunked", "--data-binary", "@-"]
    assert _run(curl, "-s", *writer, insert, *chunked, stdin=b'1,"x"\n2,"y"\n') == ""
    compressed = f"{here}&enable_http_compression=1"
    assert _run(curl, "-s", "--compressed", compressed, "-d", "SELECT b FROM t ORDER BY a") == "x\ny\n"
    failed = _run(curl, "-si", here, "-d", "INSERT INTO t VALUES (3, 'z')")
    assert "403" in failed.splitlines()[0]
    assert "Code: 497. DB::Exception: Not enough privileges" in failed


def test_a_form_gives_statement_and_parameters_but_no_tables(curl: str, store_server: Embedded) -> None:
    url = f"http://127.0.0.1:{store_server.owner.port}"
    assert _run(curl, "-s", url, "-F", "query=SELECT {x:String}", "-F", "param_x=it's ü") == "it\\'s ü\n"
    refused = _run(curl, "-s", url, "-F", "query=SELECT * FROM t", "-F", "t=@/dev/null;filename=t")
    assert refused.startswith("Code: 48. DB::Exception: external tables are not supported")


# -- methods, sessions, progress ---------------------------------------------------------------------------------------


def test_what_is_not_post_changes_nothing(empty_db: Database) -> None:
    create = "CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a"
    for method in ("GET", "HEAD"):
        assert post(empty_db.dsn, b"", method=method, query=create).code == 164
        assert post(empty_db.dsn, b"1", method=method, query="INSERT INTO t FORMAT TSV").code == 164
    assert post(empty_db.dsn, create, readonly="1").code == 164
    assert post(empty_db.dsn, "SHOW TABLES").text == ""
    assert post(empty_db.dsn, b"", method="GET", query="SELECT 1").text == "1\n"
    head = post(empty_db.dsn, b"", method="HEAD", query="SELECT 1")
    assert (head.status, head.data, head.headers["X-ClickHouse-Format"]) == (200, b"", "TabSeparated")


@pytest.mark.parametrize(
    "statement",
    [
        "SET max_threads = 1",
        "CREATE TEMPORARY TABLE t (a UInt8)",
        "create or replace temporary table t (a UInt8)",
        "BEGIN TRANSACTION",
    ],
)
def test_a_session_is_accepted_and_keeps_nothing(statement: str, empty_db: Database) -> None:
    session = {"session_id": "s", "session_timeout": "60"}
    assert post(empty_db.dsn, "SELECT 1", **session).text == "1\n"
    answer = post(empty_db.dsn, statement, **session)
    assert answer.code == 48
    assert "nothing is kept" in answer.text
    assert post(empty_db.dsn, "SELECT 1", session_check="1", **session).code == 372


def test_the_summary_and_the_progress_tell_what_was_read(empty_db: Database) -> None:
    empty_db.client.command("CREATE TABLE t (n UInt64) ENGINE = MergeTree ORDER BY n")
    empty_db.client.command("INSERT INTO t SELECT number FROM numbers(100000)")
    sql = "SELECT sum(n) FROM t"
    ask = {
        "send_progress_in_http_headers": "1",
        "wait_end_of_query": "1",
        "http_headers_progress_interval_ms": "1",
    }
    answer = post(empty_db.dsn, sql, **ask)
    summary = json.loads(answer.headers["X-ClickHouse-Summary"])
    assert (summary["read_rows"], summary["read_bytes"], summary["result_rows"]) == ("100000", "800000", "1")
    assert int(summary["elapsed_ns"]) > 0
    reports = [json.loads(line) for line in answer.headers.get_all("X-ClickHouse-Progress") or []]
    assert reports[-1]["read_rows"] == "100000"
    rows = [int(report["read_rows"]) for report in reports]
    assert rows == sorted(rows)
    assert post(empty_db.dsn, sql).headers["X-ClickHouse-Progress"] is None
    assert empty_db.client.query(sql).summary["read_rows"] == "100000"


def test_a_query_id_comes_in_a_header_too(store_server: Embedded) -> None:
    answer = post(store_server.reader_dsn, "SELECT 1", {"X-ClickHouse-Query-Id": "q-2"})
    assert answer.headers["X-ClickHouse-Query-Id"] == "q-2"


def test_a_change_over_the_native_protocol_is_carried_out_once(empty_db: Database) -> None:
    def change(sql: str) -> None:
        answer = post(empty_db.dsn, sql, default_format="Native", client_protocol_version="54460")
        assert (answer.status, answer.code, answer.data) == (200, 0, b""), answer.text

    def rows() -> list[tuple[int]]:
        return empty_db.client.query("SELECT a FROM t ORDER BY a").result_rows  # type: ignore[return-value]

    change("CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a")
    change("INSERT INTO t SELECT 1")
    change("INSERT INTO t VALUES (2), (3)")
    change('INSERT INTO t FORMAT JSONEachRow\n{"a": 4}')
    change("WITH 5 AS x INSERT INTO t SELECT x")
    change("/* (SELECT */ -- WITH\n INSERT INTO t SELECT 6")
    assert rows() == [(1,), (2,), (3,), (4,), (5,), (6,)]
    change("ALTER TABLE t ADD COLUMN b UInt8 DEFAULT 7")
    change("ALTER TABLE t DELETE WHERE a = 1 SETTINGS mutations_sync = 1")
    assert rows() == [(2,), (3,), (4,), (5,), (6,)]
    change("RENAME TABLE t TO u")
    change("RENAME TABLE u TO t")
    change("DROP TABLE t")
    assert post(empty_db.dsn, "SHOW TABLES").text == ""
    failed = post(empty_db.dsn, "DROP TABLE t", default_format="Native", client_protocol_version="54460")
    assert failed.code == 60


def test_a_failure_of_ours_is_told_in_clickhouses_form_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failure = RuntimeError("secret")
    error = told(failure)
    assert (error.code, "secret" in str(error)) == (1002, False)
    assert [record.exc_info and record.exc_info[1] for record in caplog.records] == [failure]
    assert told(error) is error
    assert len(caplog.records) == 1


# -- time zones --------------------------------------------------------------------------------------------------------


@pytest.fixture
def abroad(tmp_path: Path) -> Iterator[Owner]:
    """A store on a machine that stands in New York."""
    command = [sys.executable, "-m", "hitmap", "store", "serve", "--dir", str(tmp_path), "--port", "0"]
    environment = os.environ | {"TZ": "America/New_York"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        until(lambda: find_owner(tmp_path) is not None)
        owner = find_owner(tmp_path)
        assert owner
        yield owner
        process.terminate()


def test_a_store_anywhere_keeps_utc(abroad: Owner) -> None:
    client = connect(abroad.dsn)
    client.command(
        "CREATE TABLE t (at DateTime64(6), day Date DEFAULT toDate(at)) ENGINE = MergeTree"
        " PARTITION BY toDate(at) ORDER BY at"
    )
    midnight = datetime(2026, 11, 29, 0, 30, tzinfo=UTC)
    client.raw_insert("t", ["at"], b"2026-11-29 00:30:00\n", fmt="TSV")
    client.insert("t", [[midnight]], column_names=["at"])
    found = client.query("SELECT at, toUnixTimestamp(at), day, _partition_id FROM t").result_rows
    seconds = int(midnight.timestamp())
    assert found == [(midnight.replace(tzinfo=None), seconds, midnight.date(), "20261129")] * 2
    assert post(abroad.reader_dsn, "SELECT timezone(), serverTimezone()").text == "UTC\tUTC\n"
    client.close()


def test_a_session_timezone_shapes_the_answer_and_is_forgotten(abroad: Owner) -> None:
    sql = "SELECT toDateTime(1780000000), toDateTime('2026-05-28 20:26:40')::UInt32"
    tokyo = post(abroad.reader_dsn, sql, session_timezone="Asia/Tokyo")
    assert tokyo.text == "2026-05-29 05:26:40\t1779967600\n"
    assert tokyo.headers["X-ClickHouse-Timezone"] == "Asia/Tokyo"
    for _ in range(12):
        answer = post(abroad.reader_dsn, sql)
        assert (answer.text, answer.headers["X-ClickHouse-Timezone"]) == (
            "2026-05-28 20:26:40\t1780000000\n",
            "UTC",
        )
    assert post(abroad.reader_dsn, sql, session_timezone="Mars/Olympus").code == 36
