"""The byte forms of the HTTP interface: compressed answers and bodies, ClickHouse's blocks, the Native protocol."""

from __future__ import annotations

import gzip
import socket
import sys
import threading
import zlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lz4.frame
import pytest
from clickhouse_driver.bufferedreader import BufferedSocketReader
from clickhouse_driver.streams.native import BlockInputStream

from store.compressed import compress, decompress
from store.embedded import Embedded
from store.errors import EngineError
from store.http_body import MAX_FRAMES
from tests.conftest import Database
from tests.store.plain import post

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GO_REVISION = "54460"  # what clickhouse-go sends as client_protocol_version, with default_format=Native
MANY = "SELECT number AS n, toString(number) AS s FROM numbers(200000)"
DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
    "zstd": zstd.decompress,
    "lz4": lz4.frame.decompress,
}


def read_blocks(data: bytes, revision: int) -> list[Any]:
    """The blocks of a Native stream, read by an implementation that is not ours: clickhouse-driver's."""
    ours, theirs = socket.socketpair()
    sender = threading.Thread(target=lambda: (theirs.sendall(data), theirs.close()))
    sender.start()
    context = SimpleNamespace(
        server_info=SimpleNamespace(used_revision=revision, get_timezone=lambda: "UTC"),
        client_settings={"use_numpy": False, "strings_as_bytes": False, "strings_encoding": "utf-8"},
        settings={},
    )
    blocks, stream = [], BlockInputStream(BufferedSocketReader(ours, 65536), context)
    try:
        while True:
            blocks.append(stream.read())
    except EOFError:
        return blocks
    finally:
        sender.join()
        ours.close()


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", sorted(DECODERS))
def test_an_answer_comes_as_the_client_accepts_it(encoding: str, empty_db: Database) -> None:
    plain = post(empty_db.dsn, MANY)
    accept = {"Accept-Encoding": f"br;q=1.0, {encoding}"}
    packed = post(empty_db.dsn, MANY, accept, enable_http_compression="1")
    assert packed.headers["Content-Encoding"] == encoding
    assert DECODERS[encoding](packed.data) == plain.data
    assert len(packed.data) < len(plain.data)
    failed = post(empty_db.dsn, "SELECT nope", accept, enable_http_compression="1")
    assert DECODERS[encoding](failed.data).startswith(b"Code: 47.")


@pytest.mark.parametrize(
    ("accept", "asked", "expected"),
    [
        ("gzip", "0", None),
        ("", "1", None),
        ("br", "1", None),
        ("gzip;q=0, zstd;q=0.0", "1", None),
        ("deflate, gzip, br, zstd", "1", "zstd"),  # curl --compressed
        ("gzip, deflate", "1", "gzip"),  # Python's requests
    ],
)
def test_only_what_was_asked_for_twice_is_compressed(
    accept: str, asked: str, expected: str | None, empty_db: Database
) -> None:
    answer = post(empty_db.dsn, "SELECT 1", {"Accept-Encoding": accept}, enable_http_compression=asked)
    assert answer.headers["Content-Encoding"] == expected
    assert expected or answer.text == "1\n"


@pytest.mark.parametrize("compressed", [False, True])
def test_an_error_half_way_stands_between_markers(compressed: bool, empty_db: Database) -> None:
    """As clickhouse-connect and clickhouse-go look for it."""
    ask = {"enable_http_compression": "1", "wait_end_of_query": "0"} if compressed else {}
    sql = "SELECT throwIf(number = 3000000) FROM numbers(4000000)"
    with pytest.raises(Exception, match="IncompleteRead") as caught:
        post(empty_db.dsn, sql, {"Accept-Encoding": "gzip"}, **ask)
    partial: bytes = caught.value.partial  # type: ignore[attr-defined]
    text = zlib.decompressobj(wbits=31).decompress(partial) if compressed else partial
    *_, before, message, after = text[-4000:].split(b"__exception__")[-3:]
    tag, _, told = message.lstrip(b"\r\n").partition(b"\r\n")
    words, _, size_and_tag = told.rstrip(b"\r\n").rpartition(b"\n")
    assert before.endswith(b"\r\n")
    assert len(tag) == 16
    assert size_and_tag == b"%d %s" % (len(words) + 1, tag)
    assert words.startswith(b"Code: 395. DB::Exception: ")
    assert after == b"\r\n"


def test_wait_end_of_query_turns_it_into_an_error_with_a_status(empty_db: Database) -> None:
    sql = "SELECT throwIf(number = 3000000) FROM numbers(4000000)"
    answer = post(empty_db.dsn, sql, wait_end_of_query="1")
    assert (answer.status, answer.code) == (500, 395)
    whole = post(empty_db.dsn, "SELECT number FROM numbers(3000000)", wait_end_of_query="1")
    assert (whole.data.count(b"\n"), whole.text[-8:]) == (3_000_000, "2999999\n")


# -- bodies ------------------------------------------------------------------------------------------------------------


def test_a_body_of_nothing_but_empty_frames_is_refused(store_server: Embedded) -> None:
    empty = zstd.compress(b"")
    few, many = empty * MAX_FRAMES, empty * (MAX_FRAMES + 1)
    headers = {"Content-Encoding": "zstd"}
    assert (
        post(store_server.reader_dsn, few[: len(empty) * 1000] + zstd.compress(b"SELECT 1"), headers).text
        == "1\n"
    )
    assert post(store_server.reader_dsn, many, headers).code == 307


def test_frames_across_the_decompressors_chunks(empty_db: Database) -> None:
    empty_db.client.command("CREATE TABLE t (s String) ENGINE = MergeTree ORDER BY s")
    lines = [b"%d%s\n" % (n, b"x" * n) for n in range(0, 200_000, 7919)]
    body = b"".join(gzip.compress(line, 0) for line in lines)
    answer = post(empty_db.dsn, body, {"Content-Encoding": "gzip"}, query="INSERT INTO t FORMAT TSV")
    assert answer.code == 0, answer.text
    assert post(empty_db.dsn, "SELECT count(), sum(length(s)) FROM t").text == (
        f"{len(lines)}\t{sum(map(len, lines)) - len(lines)}\n"
    )


# -- ClickHouse's compressed blocks ------------------------------------------------------------------------------------


def test_blocks_that_clickhouse_wrote_are_read(empty_db: Database, store_server: Embedded) -> None:
    """A StripeLog table's file is a Native stream in compressed blocks, checksums and all."""
    empty_db.client.command("CREATE TABLE t (n UInt64) ENGINE = StripeLog")
    empty_db.client.command("INSERT INTO t SELECT number FROM numbers(100000)")
    (folder,) = empty_db.client.query(
        "SELECT data_paths[1] FROM system.tables WHERE database = currentDatabase() AND name = 't'"
    ).first_row
    data = decompress(Path(folder, "data.bin").read_bytes(), 1 << 30, 100)
    rows = [n for block in read_blocks(data, 0) for n in block.get_column_by_index(0)]
    assert rows == list(range(100_000))


def test_answers_in_blocks_and_bodies_in_blocks(empty_db: Database) -> None:
    """`compress=1` and `decompress=1`: clickhouse-go and clickhouse-java with LZ4."""
    plain = post(empty_db.dsn, MANY, default_format="RowBinaryWithNamesAndTypes")
    packed = post(empty_db.dsn, MANY, default_format="RowBinaryWithNamesAndTypes", compress="1")
    assert decompress(packed.data, 1 << 30, 1000) == plain.data
    assert decompress(post(empty_db.dsn, "SELECT nope", compress="1").data, 1 << 20, 9).startswith(
        b"Code: 47."
    )
    empty_db.client.command("CREATE TABLE t (n UInt64, s String) ENGINE = MergeTree ORDER BY n")
    native = post(empty_db.dsn, MANY, default_format="Native").data
    insert = "INSERT INTO t (`n`, `s`) FORMAT Native"
    assert post(empty_db.dsn, compress(native), query=insert, decompress="1").code == 0
    assert post(empty_db.dsn, "SELECT count(), sum(n) FROM t").text == "200000\t19999900000\n"


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda block: block[:-1], 271),
        (lambda block: block[:20], 271),
        (lambda block: block[:-1] + bytes([block[-1] ^ 1]), 40),
        (lambda block: b"\0" + block[1:], 40),
        (lambda block: block[:17] + b"\0\0\0\0" + block[21:], 271),
        (lambda block: block * (MAX_FRAMES + 1), 307),
    ],
)
def test_damaged_blocks_are_an_error(damage: Callable[[bytes], bytes], code: int, empty_db: Database) -> None:
    block = compress(b"SELECT 1")
    assert post(empty_db.dsn, block, decompress="1").text == "1\n"
    answer = post(empty_db.dsn, damage(block), decompress="1")
    assert answer.code == code, answer.text


def test_a_block_that_lies_about_its_size_takes_no_memory() -> None:
    huge = compress(b"x" * 100)[:16]
    with pytest.raises(EngineError, match=r"Code: (40|307)"):
        decompress(huge + b"\x82\x0a\0\0\0\xff\xff\xff\xff\0", 1 << 20, 10)


# -- the Native protocol -----------------------------------------------------------------------------------------------

TYPES = """
SELECT number AS n, toString(number) AS s, toLowCardinality(s) AS l, [n, 1] AS a, map('k', toLowCardinality(s)) AS m,
    if(n % 2, NULL, n) AS o, toDateTime64('2026-11-29 01:02:03.456789', 6, 'UTC') AS t, (n, s) AS p,
    CAST('b', 'Enum8(\\'a\\' = 1, \\'b\\' = 2)') AS e, toDecimal64(1.5, 2) AS d, MD5(s) AS u
FROM numbers(3)
"""


@pytest.mark.parametrize(
    "sql",
    [
        TYPES,
        MANY,
        "SELECT displayName(), version(), revision(), timezone()",  # clickhouse-go's first question
        "SELECT 1, 1, 2 AS `a b\tc'`",
        "WITH x AS (SELECT 1 AS y) SELECT y FROM x -- the end",
        "(SELECT 1 AS x) UNION ALL (SELECT 1)",  # the order of the two is nobody's promise
        "SELECT 1 AS x FORMAT Native SETTINGS max_threads = 1",
        "SELECT 1 AS x WHERE 0",
        "SHOW TABLES",
        "DESCRIBE TABLE (SELECT 1 AS x)",
        "EXISTS TABLE nowhere",
    ],
)
def test_native_for_a_clients_revision_reads_like_native(sql: str, empty_db: Database) -> None:
    old = read_blocks(post(empty_db.dsn, sql, default_format="Native").data, 0)
    answer = post(
        empty_db.dsn, sql, default_format="Native", client_protocol_version=GO_REVISION, compress="1"
    )
    new = read_blocks(decompress(answer.data, 1 << 30, 1000), int(GO_REVISION))

    def content(blocks: list[Any]) -> tuple[Any, list[Any]]:
        return blocks and blocks[0].columns_with_types, [row for block in blocks for row in block.get_rows()]

    assert content(new) == content(old)
    assert all((block.info.is_overflows, block.info.bucket_num) == (0, -1) for block in new)


def test_a_client_of_an_older_revision_gets_plain_native(empty_db: Database) -> None:
    """clickhouse-connect probes for a block header, and does without it."""
    plain = post(empty_db.dsn, "SELECT 1", default_format="Native").data
    assert (
        post(empty_db.dsn, "SELECT 1", default_format="Native", client_protocol_version="54405").data == plain
    )


def test_parameters_and_errors_go_with_the_protocol(store_server: Embedded) -> None:
    go = {"default_format": "Native", "client_protocol_version": GO_REVISION}
    answer = post(store_server.reader_dsn, "SELECT {x:String} AS x", **go, param_x="it's")
    assert read_blocks(answer.data, int(GO_REVISION))[0].get_rows() == [("it's",)]
    assert post(store_server.reader_dsn, "SELECT nope", **go).code == 47
    assert post(store_server.reader_dsn, "SELECT file('/etc/passwd')", **go).code == 497


def test_grafana_over_http(store_server: Embedded) -> None:
    """Its data source speaks HTTP through clickhouse-go with gzip: the form of its requests, and what it asks first."""
    headers = {
        "Authorization": "Basic ZGVmYXVsdDo=",
        "Accept-Encoding": "gzip",
        "User-Agent": "clickhouse-go/2 grafana",
    }
    url = {
        "client_protocol_version": GO_REVISION,
        "default_format": "Native",
        "enable_http_compression": "1",
        "limit": "1000",
        "max_execution_time": "65",
    }

    def ask(sql: str) -> list[tuple[Any, ...]]:
        answer = post(store_server.reader_dsn, sql, headers, **url)
        assert (answer.status, answer.headers["Content-Encoding"]) == (200, "gzip"), answer.text
        blocks = read_blocks(gzip.decompress(answer.data), int(GO_REVISION))
        return [row for block in blocks for row in block.get_rows()]

    ((_, version, revision, zone),) = ask("SELECT displayName(), version(), revision(), timezone()")
    assert version.startswith("26.")
    assert (revision > int(GO_REVISION), zone) == (True, "UTC")
    assert ask("SELECT 1") == [(1,)]
    assert ("hitmap",) in ask("SHOW DATABASES")
    assert ("one",) in ask('SHOW TABLES FROM "system"')
    assert ask("SELECT name, type FROM system.columns WHERE database IN ('system') AND table = 'one'") == [
        ("dummy", "UInt8")
    ]
    assert [row[:2] for row in ask('DESC TABLE "system"."one"')] == [("dummy", "UInt8")]
    # two macros of it, expanded: an interval, and the dashboard's time range
    assert ask(
        "SELECT toStartOfInterval(toDateTime(at), INTERVAL 60 second) AS time, count() AS n"
        " FROM (SELECT toDateTime64(1780000000 + number, 6) AS at FROM numbers(100))"
        " WHERE at >= toDateTime64(1780000000000 / 1000, 3) AND at <= toDateTime64(1780000059000 / 1000, 3)"
        " GROUP BY time ORDER BY time"
    ) == [(datetime(2026, 5, 28, 20, 26, tzinfo=None), 20), (datetime(2026, 5, 28, 20, 27, tzinfo=None), 40)]
    failed = post(store_server.reader_dsn, "SELECT nope", headers, **url)
    assert failed.status == 404
    assert gzip.decompress(failed.data).startswith(b"Code: 47. DB::Exception: ")
