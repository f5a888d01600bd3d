"""Readers look and do not touch: each hostile statement is refused by the real engine behind the real interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from store.client import connect
from store.embedded import Embedded

HOSTILE = [
    "INSERT INTO deploys VALUES (now64(6), '', 'x', '', '')",
    "INSERT INTO deploys SELECT now64(6), '', 'x', '', ''",
    "DROP TABLE requests",
    "TRUNCATE TABLE requests",
    "ALTER TABLE requests DELETE WHERE 1",
    "DELETE FROM requests WHERE 1",
    "CREATE TABLE evil (a UInt8) ENGINE = Memory",
    "CREATE TEMPORARY TABLE evil (a UInt8)",
    "CREATE FUNCTION evil AS x -> x",
    "SET readonly = 0",
    "USE system",
    "SYSTEM SHUTDOWN",
    "KILL QUERY WHERE 1",
    "BACKUP TABLE requests TO File('{path}')",
    "SELECT * FROM file('/etc/passwd', 'LineAsString')",
    "SELECT file('/etc/passwd')",
    "DESCRIBE TABLE file('/etc/passwd', 'LineAsString')",
    "EXPLAIN SELECT * FROM file('/etc/passwd', 'LineAsString')",
    "SELECT * FROM view(SELECT * FROM file('/etc/passwd', 'LineAsString'))",
    "SELECT 1 WHERE 1 IN (SELECT * FROM url('http://127.0.0.1:1/', 'TSV', 'a UInt8'))",
    "SELECT 1 IN s3('http://127.0.0.1:1/x')",
    "SELECT * FROM remote('127.0.0.1:1', 'system.one')",
    "SELECT * FROM executable('id', 'TSV', 'a String')",
    "SELECT * FROM `file`('/etc/passwd', 'LineAsString')",
    "SELECT * FROM requests AS r JOIN mysql('h:1', 'd', 't', 'u', 'p') AS m ON 1",
    "WITH (SELECT any(line) FROM file('/etc/passwd', 'LineAsString')) AS x SELECT x",
    "SELECT * FROM merge('system', '.*')",
    "SELECT 1 INTO OUTFILE '{path}'",
    "EXPLAIN SELECT 1 INTO OUTFILE '{path}'",
    "DESCRIBE requests INTO OUTFILE '{path}'",
    "SHOW TABLES INTO OUTFILE '{path}'",
    "SELECT * FROM system.processes",
    "SELECT * FROM system.users",
    "SELECT * FROM `system`.`processes`",
    "SELECT 1 IN system.processes",
    "SELECT * FROM requests SETTINGS max_memory_usage = 0",
    "SELECT 1 SETTINGS/**/max_execution_time/**/=0",
    "SELECT sleep(3)",
    "SELECT dictGet('d', 'a', 1)",
    "SELECT 1; DROP TABLE requests",
]
HARMLESS = [
    "SELECT count() FROM requests",
    "WITH x AS (SELECT number AS n FROM numbers(3)) SELECT sum(n) FROM x",
    "SELECT 'SELECT 1 INTO OUTFILE x; DROP TABLE requests'",
    "SELECT quantile(0.5)(ttft_us) FROM requests UNION ALL SELECT NULL",
    "SELECT 1 SETTINGS max_threads = 1",
    "SHOW TABLES",
    "SHOW TABLES LIKE '%req%'",
    "DESCRIBE requests",
    "EXISTS requests",
    "EXPLAIN SELECT 1",
    "SELECT name FROM system.tables WHERE database = currentDatabase()",
]


@pytest.fixture(scope="module")
def reader(store_server: Embedded) -> Iterator[Client]:
    writer = connect(store_server.dsn)
    for statement in ("deploys (time DateTime64(6), server String, name String, who String, what String)",
                      "requests (ttft_us Nullable(Int64))"):  # fmt: skip
        writer.command(f"CREATE TABLE IF NOT EXISTS {statement} ENGINE = MergeTree ORDER BY tuple()")
    client = connect(store_server.owner.reader_dsn)
    yield client
    client.close()


@pytest.mark.parametrize("statement", HOSTILE)
def test_hostile_statements_are_refused(statement: str, reader: Client, tmp_path: Path) -> None:
    target = tmp_path / "stolen"
    with pytest.raises(ClickHouseError) as caught:
        reader.raw_query(statement.replace("{path}", str(target)))
    assert any(code in str(caught.value) for code in ("497", "Code: 62", "Code: 164")), caught.value
    assert not target.exists()


@pytest.mark.parametrize("statement", HARMLESS)
def test_harmless_statements_run(statement: str, reader: Client) -> None:
    reader.raw_query(statement)


def test_settings_in_the_url_lift_no_limit(reader: Client) -> None:
    with pytest.raises(ClickHouseError, match="max_memory_usage"):
        reader.raw_query("SELECT 1", settings={"max_memory_usage": "0"})


def test_the_default_database_does_not_open_the_system(store_server: Embedded) -> None:
    inside = connect(store_server.owner.reader_dsn.rpartition("/")[0] + "/system")
    with pytest.raises(ClickHouseError, match="497"):
        inside.raw_query("SELECT * FROM processes")


def test_a_reader_leaves_the_writer_able_to_write(store_server: Embedded, reader: Client) -> None:
    reader.raw_query("SELECT 1", settings={"max_threads": "1"})
    connect(store_server.dsn).command("INSERT INTO deploys VALUES (now64(6), '', 'after a reader', '', '')")
    assert reader.query("SELECT count() FROM deploys WHERE name = 'after a reader'").first_row == (1,)
