"""Stock clickhouse-connect and plain HTTP against the embedded store's interface."""

from __future__ import annotations

import gzip
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from urllib.parse import urlencode, urlsplit

import numpy as np
import pytest
from clickhouse_connect import get_client
from clickhouse_connect.driver.exceptions import ClickHouseError

from store.client import connect
from tests.conftest import Database


def _post(db: Database, body: bytes, headers: dict[str, str] | None = None, **params: str) -> str:
    parts = urlsplit(db.dsn)
    query = urlencode({"database": parts.path.strip("/"), **params})
    request = urllib.request.Request(
        f"http://127.0.0.1:{parts.port}/?{query}",
        body,
        {"X-ClickHouse-User": "writer", "X-ClickHouse-Key": parts.password or ""} | (headers or {}),
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()


def test_rows_round_trip(db: Database) -> None:
    db.client.command(
        "CREATE TABLE t (a UInt64, b Nullable(String), c DateTime64(6), d Map(String, String), e Array(Float64))"
        " ENGINE = MergeTree ORDER BY a"
    )
    rows = [
        (1, None, datetime(2026, 11, 29, 1, 2, 3, 456789), {"k": "v"}, [1.5, -2.0]),
        (2**64 - 1, "it's\n\\ü", datetime(1971, 1, 1), {}, []),
    ]
    db.client.insert("t", rows, column_names=list("abcde"))
    assert [tuple(row) for row in db.client.query("SELECT * FROM t ORDER BY a").result_rows] == rows


@pytest.mark.parametrize("compression", [False, "lz4", "zstd", "gzip"])
def test_compressed_inserts(db: Database, compression: bool | str) -> None:
    parts = urlsplit(db.dsn)
    client = get_client(
        host="127.0.0.1", port=parts.port, username="writer", password=parts.password,
        database=parts.path.strip("/"), compress=compression,
    )  # fmt: skip
    client.command("CREATE TABLE t (n UInt64) ENGINE = MergeTree ORDER BY n")
    client.insert("t", [[n] for n in range(10_000)], column_names=["n"])
    assert client.query("SELECT count(), sum(n) FROM t").first_row == (10_000, 49_995_000)


def test_parameters_are_values_not_text(db: Database) -> None:
    hostile = "'; DROP TABLE requests; --"
    assert db.client.query("SELECT {x:String}", parameters={"x": hostile}).first_row == (hostile,)


def test_raw_insert_carries_its_settings(db: Database) -> None:
    lines = b'{"time":"2026-11-29 00:00:00","fingerprint":7,"value":1}\n' * 2
    db.client.raw_insert(
        "samples", insert_block=lines, fmt="JSONEachRow", settings={"log_comment": "batch-1"}
    )
    assert db.client.query("SELECT ingest_batch, count() FROM samples GROUP BY 1").result_rows == [
        ("batch-1", 2)
    ]


def test_a_deduplication_token_is_honoured(db: Database) -> None:
    line = b'{"time":"2026-11-29 00:00:00","fingerprint":7,"value":1}\n'
    for token in ("a", "a", "b"):
        db.client.raw_insert(
            "samples", insert_block=line, fmt="JSONEachRow", settings={"insert_deduplication_token": token}
        )
    assert db.client.query("SELECT count() FROM samples").first_row == (2,)


def test_a_bad_row_leaves_nothing_half_written(db: Database) -> None:
    lines = b'{"time":"2026-11-29 00:00:00","fingerprint":7}\n{"time":"nonsense"}\n'
    with pytest.raises(ClickHouseError, match="CANNOT_PARSE_DATETIME"):
        db.client.raw_insert("samples", insert_block=lines, fmt="JSONEachRow")
    assert db.client.query("SELECT count() FROM samples").first_row == (0,)


def test_results_stream_in_blocks(db: Database) -> None:
    with db.client.query_row_block_stream("SELECT number FROM numbers(300000)") as blocks:
        sizes = [len(block) for block in blocks]
    assert sum(sizes) == 300_000
    assert len(sizes) > 1


def test_numpy_results(db: Database) -> None:
    assert np.array_equal(db.client.query_np("SELECT number FROM numbers(5)").ravel(), np.arange(5))


def test_plain_http_like_curl(db: Database) -> None:
    assert _post(db, b"SELECT 1 + 1") == "2\n"
    assert _post(db, b"SELECT 1 AS x FORMAT JSONEachRow") == '{"x":1}\n'
    assert _post(db, b"", query="SELECT 3") == "3\n"
    assert _post(db, gzip.compress(b"SELECT 4"), {"Content-Encoding": "gzip"}) == "4\n"
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    assert _post(db, f"INSERT INTO deploys FORMAT TSV\n{at}\t\tv1\tme\t\n".encode()) == ""
    assert _post(db, f"{at}\t\tv2\tme\t\n".encode(), query="INSERT INTO deploys FORMAT TSV") == ""
    assert _post(db, b"SELECT name FROM deploys ORDER BY name") == "v1\nv2\n"


@pytest.mark.parametrize(
    ("sql", "status", "code"),
    [("SELEC 1", 400, "62"), ("SELECT * FROM nowhere", 404, "60"), ("SELECT throwIf(1)", 500, "395")],
)
def test_errors_carry_clickhouses_code(db: Database, sql: str, status: int, code: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        _post(db, sql.encode())
    assert (caught.value.code, caught.value.headers["X-ClickHouse-Exception-Code"]) == (status, code)
    assert b"DB::Exception" in caught.value.read()


def test_a_wrong_password_is_refused(db: Database) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        _post(db, b"SELECT 1", {"X-ClickHouse-Key": "wrong"})
    assert caught.value.code == 401


def test_a_slow_query_holds_nobody_up(db: Database) -> None:
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(connect(db.dsn).query, "SELECT sleepEachRow(1) FROM numbers(2)")
        assert db.client.query("SELECT 1").first_row == (1,)
        assert not slow.done()
        slow.result()


def test_many_clients_at_once(db: Database) -> None:
    def count(n: int) -> int:
        return int(connect(db.dsn).query(f"SELECT count() FROM numbers({n})").first_row[0])

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(count, range(48))) == list(range(48))
