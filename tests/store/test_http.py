"""Stock clickhouse-connect and plain HTTP against the embedded store's interface."""

from __future__ import annotations

import gzip
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from urllib.parse import urlsplit

import numpy as np
import pytest
from clickhouse_connect import get_client
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from store.client import connect
from store.embedded import Embedded
from store.engine import READER_HANDLES
from store.handles import WAITING
from store.http import READER_BODY_BYTES
from tests.conftest import Database
from tests.store.plain import post

SAMPLE = b'{"time":"2026-11-29 00:00:00","fingerprint":7,"value":1}\n'


def _client(db: Database, compress: bool | str) -> Client:
    parts = urlsplit(db.dsn)
    return get_client(
        host="127.0.0.1",
        port=parts.port or 0,
        username="writer",
        password=parts.password or "",
        database=parts.path.strip("/"),
        compress=compress,
    )


# -- clickhouse-connect ------------------------------------------------------------------------------------------------


def test_rows_round_trip(empty_db: Database) -> None:
    client = empty_db.client
    client.command(
        "CREATE TABLE t (a UInt64, b Nullable(String), c DateTime64(6), d Map(String, String), e Array(Float64))"
        " ENGINE = MergeTree ORDER BY a"
    )
    rows = [
        (1, None, datetime(2026, 11, 29, 1, 2, 3, 456789), {"k": "v"}, [1.5, -2.0]),
        (2**64 - 1, "it's\n\\ü\0", datetime(1971, 1, 1), {}, []),
    ]
    client.insert("t", rows, column_names=list("abcde"))
    assert [tuple(row) for row in client.query("SELECT * FROM t ORDER BY a").result_rows] == rows


@pytest.mark.parametrize("compression", [False, "lz4", "zstd", "gzip"])
def test_compressed_inserts_of_several_blocks(empty_db: Database, compression: bool | str) -> None:
    client = _client(empty_db, compression)
    client.command("CREATE TABLE t (n UInt64, s String) ENGINE = MergeTree ORDER BY n")
    rows = [[n, f"{n * 7919:0100d}"] for n in range(50_000)]
    client.insert("t", rows, column_names=["n", "s"])
    assert client.query("SELECT count(), sum(n), uniqExact(s) FROM t").first_row == (
        50_000,
        1_249_975_000,
        50_000,
    )
    client.close()


def test_parameters_are_values_not_text(empty_db: Database) -> None:
    hostile = "'; DROP TABLE requests; --\t\n\\"
    found = empty_db.client.query(
        "SELECT {x:String}, {n:Array(UInt8)}, {o:Nullable(Int8)}",
        parameters={"x": hostile, "n": [1, 2], "o": None},
    )
    assert found.first_row == (hostile, [1, 2], None)


def test_raw_insert_carries_its_settings_for_one_statement(db: Database) -> None:
    for settings in ({"log_comment": "batch-1"}, {}):
        db.client.raw_insert("samples", insert_block=SAMPLE * 2, fmt="JSONEachRow", settings=settings)
    found = db.client.query("SELECT ingest_batch, count() FROM samples GROUP BY 1 ORDER BY 1").result_rows
    assert found == [("", 2), ("batch-1", 2)]


def test_a_deduplication_token_is_honoured_and_forgotten(db: Database) -> None:
    for token in ("a", "a", "b", None, None):
        settings = {"insert_deduplication_token": token, "log_comment": str(token)} if token else {}
        db.client.raw_insert("samples", insert_block=SAMPLE, fmt="JSONEachRow", settings=settings)
    assert db.client.query("SELECT count() FROM samples WHERE ingest_batch != ''").first_row == (2,)


def test_protobuf_with_a_schema_in_the_settings(empty_db: Database) -> None:
    empty_db.client.command("CREATE TABLE t (name String, n Array(UInt64)) ENGINE = MergeTree ORDER BY name")
    schema = 'syntax = "proto3"; message Row { string name = 1; repeated uint64 n = 2; }'
    empty_db.client.raw_insert(
        "t",
        insert_block=b"\x0a\x02it\x12\x02\x07\x08",
        fmt="ProtobufSingle",
        settings={
            "format_schema_source": "string",
            "format_schema": schema,
            "format_schema_message_name": "Row",
        },
    )
    assert empty_db.client.query("SELECT * FROM t").result_rows == [("it", [7, 8])]


def test_a_bad_row_leaves_nothing_half_written(db: Database) -> None:
    lines = SAMPLE + b'{"time":"nonsense"}\n'
    with pytest.raises(ClickHouseError, match="CANNOT_PARSE_DATETIME"):
        db.client.raw_insert("samples", insert_block=lines, fmt="JSONEachRow")
    assert db.client.query("SELECT count() FROM samples").first_row == (0,)


def test_results_stream_in_blocks(empty_db: Database) -> None:
    with empty_db.client.query_row_block_stream("SELECT number FROM numbers(300000)") as blocks:
        sizes = [len(block) for block in blocks]
    assert sum(sizes) == 300_000
    assert len(sizes) > 1


def test_an_error_half_way_is_an_error_not_a_short_result(empty_db: Database) -> None:
    with pytest.raises(ClickHouseError, match="throwIf"):
        empty_db.client.query("SELECT throwIf(number = 3000000) FROM numbers(4000000)").result_rows  # noqa: B018


def test_a_client_that_leaves_early_frees_its_handle(store_server: Embedded) -> None:
    reader = connect(store_server.reader_dsn)
    for _ in range(2 * READER_HANDLES):
        with reader.query_row_block_stream("SELECT number FROM numbers(2000000)") as blocks:
            next(iter(blocks))
        endless = b"SELECT number FROM numbers(1000000000000)"
        with socket.create_connection(("127.0.0.1", store_server.owner.port)) as connection:
            connection.sendall(
                b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                % (len(endless), endless)
            )
            assert connection.recv(12) == b"HTTP/1.1 200"
    assert reader.query("SELECT 1").first_row == (1,)
    reader.close()


def test_numpy_results(empty_db: Database) -> None:
    found = empty_db.client.query_np("SELECT number FROM numbers(5)")
    assert np.array_equal(found.ravel(), np.arange(5))


def test_a_result_without_rows(empty_db: Database) -> None:
    assert empty_db.client.query("SELECT number FROM numbers(3) WHERE number > 5").result_rows == []


# -- plain HTTP --------------------------------------------------------------------------------------------------------


def test_plain_http_like_curl(db: Database) -> None:
    assert post(db.dsn, "SELECT 1 + 1").text == "2\n"
    assert post(db.dsn, "SELECT 1 AS x FORMAT JSONEachRow").text == '{"x":1}\n'
    assert post(db.dsn, "", query="SELECT 3").text == "3\n"
    assert post(db.dsn, "{x:UInt8}", query="SELECT", param_x="4").text == "4\n"
    assert post(db.dsn, gzip.compress(b"SELECT 5"), {"Content-Encoding": "gzip"}).text == "5\n"
    assert post(db.dsn, b"SELECT 6", {"X-ClickHouse-Format": "CSVWithNames"}).text == '"6"\n6\n'
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    assert post(db.dsn, f"INSERT INTO deploys FORMAT TSV\n{at}\t\tv1\tme\t\n").status == 200
    assert post(db.dsn, f"{at}\t\tv2\tme\t\n", query="INSERT INTO deploys FORMAT TSV").status == 200
    assert post(db.dsn, f"INSERT INTO deploys VALUES ('{at}', '', 'v3 FORMAT TSV\n', 'me', '')").status == 200
    assert post(db.dsn, f"INSERT INTO deploys SELECT '{at}', '', 'v4', 'format' AS format, ''").status == 200
    assert (
        post(db.dsn, "SELECT trim(name) FROM deploys ORDER BY name").text == "v1\nv2\nv3 FORMAT TSV\\n\nv4\n"
    )


def test_an_insert_tells_its_rows(db: Database) -> None:
    answer = post(db.dsn, b"INSERT INTO samples FORMAT JSONEachRow\n" + SAMPLE * 3)
    assert json.loads(answer.headers["X-ClickHouse-Summary"]) == {"written_rows": "3"}


@pytest.mark.parametrize(
    "tail",
    [
        "FORMAT JSON",
        "FORMAT JSON;",
        "format JSON SETTINGS max_threads = 1",
        "SETTINGS max_threads = 1 FORMAT JSON",
    ],
)
def test_the_statements_format_is_found(tail: str, empty_db: Database) -> None:
    answer = post(empty_db.dsn, f"SELECT number FROM numbers(200000) {tail}")
    assert answer.headers["X-ClickHouse-Format"] == "JSON"
    assert json.loads(answer.text)["rows"] == 200_000


@pytest.mark.parametrize(
    ("sql", "status", "code"),
    [("SELEC 1", 400, 62), ("SELECT * FROM nowhere", 404, 60), ("SELECT throwIf(1)", 500, 395)],
)
def test_errors_carry_clickhouses_code(empty_db: Database, sql: str, status: int, code: int) -> None:
    answer = post(empty_db.dsn, sql)
    assert (answer.status, answer.code) == (status, code)
    assert answer.text.startswith(f"Code: {code}. DB::Exception: ")


def test_an_unknown_setting_costs_no_handle(empty_db: Database) -> None:
    for name in ("nonsense", "no name"):
        assert {post(empty_db.dsn, "SELECT 1", **{name: "1"}).code for _ in range(12)} == {115}
    assert post(empty_db.dsn, "SELECT 1").text == "1\n"


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", b"nonsense"),
        ("gzip", gzip.compress(b"SELECT 1", mtime=0)[:-9]),
        ("zstd", b"nonsense"),
        ("lz4", b"x"),
        ("br", b"x"),
    ],
)
def test_a_body_that_cannot_be_decoded(encoding: str, body: bytes, empty_db: Database) -> None:
    answer = post(empty_db.dsn, body, {"Content-Encoding": encoding})
    assert answer.status == 500
    assert encoding in answer.text


def test_a_reader_cannot_fill_the_memory_with_a_body(store_server: Embedded) -> None:
    bomb = gzip.compress(b"SELECT 1 --" + b" " * READER_BODY_BYTES)
    assert post(store_server.reader_dsn, bomb, {"Content-Encoding": "gzip"}).status == 413
    assert post(store_server.reader_dsn, b" " * (READER_BODY_BYTES + 1)).status == 413


def test_a_wrong_password_is_refused(store_server: Embedded) -> None:
    assert post(store_server.dsn, "SELECT 1", {"X-ClickHouse-Key": "wrong"}).status == 401
    assert post(store_server.reader_dsn, "SELECT 1", {"Authorization": "Basic /w=="}).status == 401


def test_a_web_page_cannot_reach_the_store_under_its_own_name(store_server: Embedded) -> None:
    assert post(store_server.reader_dsn, "SELECT 1", {"Host": "evil.example"}).status == 400


def test_a_query_id_goes_back_unless_it_would_split_the_headers(store_server: Embedded) -> None:
    assert post(store_server.dsn, "SELECT 1", query_id="q-1").headers["X-ClickHouse-Query-Id"] == "q-1"
    assert post(store_server.dsn, "SELECT 1", query_id="q\r\nEvil: 1").headers["Evil"] is None


def test_without_a_database_it_is_hitmaps(store_server: Embedded) -> None:
    assert post(store_server.reader_dsn.rpartition("/")[0], "SELECT currentDatabase()").text == "hitmap\n"


# -- many at once ------------------------------------------------------------------------------------------------------


def test_a_slow_query_holds_nobody_up(empty_db: Database) -> None:
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(connect(empty_db.dsn).query, "SELECT sleepEachRow(1) FROM numbers(2)")
        assert empty_db.client.query("SELECT 1").first_row == (1,)
        assert not slow.done()
        slow.result()


def test_too_many_readers_are_told_so_and_keep_no_writer_out(store_server: Embedded) -> None:
    # what readers are refused takes no handle, so the work is in the query
    slow = "SELECT count() FROM numbers(100000000000) SETTINGS max_execution_time = 1, max_threads = 1"
    with ThreadPoolExecutor(40) as pool:
        answers = [
            pool.submit(post, store_server.reader_dsn, slow) for _ in range(READER_HANDLES + WAITING + 10)
        ]
        time.sleep(0.3)
        assert post(store_server.dsn, "SELECT 1").text == "1\n"
        codes = [answer.result().code for answer in answers]
    assert 202 in codes
    assert post(store_server.reader_dsn, "SELECT 1").text == "1\n"


def test_many_clients_at_once(empty_db: Database) -> None:
    def count(n: int) -> int:
        client = connect(empty_db.dsn)
        try:
            return int(client.query(f"SELECT count() FROM numbers({n})").first_row[0])
        finally:
            client.close()

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(count, range(48))) == list(range(48))


def test_noise_on_the_port_ends_nothing(store_server: Embedded) -> None:
    for noise in (
        b"\x00\xff" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 99\r\n\r\nx",
    ):
        with socket.create_connection(("127.0.0.1", store_server.owner.port), timeout=5) as connection:
            connection.sendall(noise)
    assert post(store_server.dsn, "SELECT 1").text == "1\n"


def test_rows_the_engine_refuses_are_an_error_not_a_success(db: Database) -> None:
    """chDB's own insert stream reports success here and stores nothing."""
    db.client.command("CREATE TABLE t (d Date) ENGINE = MergeTree PARTITION BY d ORDER BY d")
    days = b"".join(b'{"d":"2026-%02d-%02d"}\n' % (1 + i // 28, 1 + i % 28) for i in range(150))
    with pytest.raises(ClickHouseError, match="Too many partitions"):
        db.client.raw_insert("t", insert_block=days, fmt="JSONEachRow")
    db.client.raw_insert(
        "t", insert_block=days, fmt="JSONEachRow", settings={"max_partitions_per_insert_block": "0"}
    )
    assert db.client.query("SELECT count() FROM t").first_row == (150,)


def test_settings_that_give_wrong_results_stay_off(db: Database, store_server: Embedded) -> None:
    query = "SELECT getSetting('use_query_condition_cache'), getSetting('enable_join_runtime_filters')"
    for client in (db.client, connect(store_server.reader_dsn)):
        assert client.query(query).result_rows == [(False, False)]
    # what one statement asked for is gone afterwards
    db.client.query("SELECT 1", settings={"use_query_condition_cache": 1})
    assert [db.client.query(query).result_rows for _ in range(8)] == [[(False, False)]] * 8
