"""Readers look and do not touch: each hostile statement is refused by the real engine behind the real interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from cachemodel.errors import UserError
from store.client import connect
from store.embedded import Embedded
from tests.store.plain import post

ACCESS_DENIED, SYNTAX_ERROR = 497, 62

HOSTILE = [
    # a function's name alone is a lambda; a filter in a setting is an expression; SET stays with a handle
    "SELECT arrayMap(file, ['/etc/passwd'])",
    "SELECT arrayMap(FILE, ['/etc/passwd'])",
    "SELECT 1 AS a SETTINGS additional_result_filter = 'a = toInt32(file(''/etc/passwd''))'",
    "SET limit = 1",
    # statements that change something
    "INSERT INTO deploys VALUES (now64(6), '', 'x', '', '')",
    "INSERT INTO deploys SELECT now64(6), '', 'x', '', ''",
    "INSERT INTO deploys FORMAT TSV\n2026-11-29 00:00:00\t\tx\t\t\n",
    "INSERT INTO FUNCTION file('{path}', 'TSV', 'a UInt8') VALUES (1)",
    "EXPLAIN INSERT INTO deploys SELECT now64(6), '', 'x', '', ''",
    "DROP TABLE requests",
    "TRUNCATE TABLE requests",
    "ALTER TABLE requests DELETE WHERE 1",
    "DELETE FROM requests WHERE 1",
    "RENAME TABLE requests TO gone",
    "DETACH TABLE requests",
    "CREATE TABLE evil (a UInt8) ENGINE = Memory",
    "CREATE TEMPORARY TABLE evil (a UInt8)",
    "CREATE FUNCTION evil AS x -> x",
    "SET readonly = 0",
    "USE system",
    "SYSTEM SHUTDOWN",
    "KILL QUERY WHERE 1",
    "BACKUP TABLE requests TO File('{path}')",
    "SELECT 1; DROP TABLE requests",
    "SELECT 1 PARALLEL WITH DROP TABLE requests",
    # table functions that leave the database
    "SELECT * FROM file('/etc/passwd', 'LineAsString')",
    "SELECT * FROM `file`('/etc/passwd', 'LineAsString')",
    "SELECT * FROM FILE('/etc/passwd', 'LineAsString')",
    "DESCRIBE TABLE file('/etc/passwd', 'LineAsString')",
    "EXPLAIN SELECT * FROM file('/etc/passwd', 'LineAsString')",
    "SELECT * FROM view(SELECT * FROM file('/etc/passwd', 'LineAsString'))",
    "SELECT 1 WHERE 1 IN (SELECT * FROM url('http://127.0.0.1:1/', 'TSV', 'a UInt8'))",
    "SELECT 1 IN s3('http://127.0.0.1:1/x')",
    "SELECT * FROM remote('127.0.0.1:1', 'system.one')",
    "SELECT * FROM cluster('default', 'system.one')",
    "SELECT * FROM executable('id', 'TSV', 'a String')",
    "SELECT * FROM Python(password)",
    "SELECT * FROM eval('SELECT 1')",
    "SELECT * FROM merge('system', '.*')",
    "SELECT * FROM loop(system.processes)",
    "SELECT * FROM requests AS r JOIN mysql('h:1', 'd', 't', 'u', 'p') AS m ON 1",
    "WITH (SELECT any(line) FROM file('/etc/passwd', 'LineAsString')) AS x SELECT x",
    "SELECT 1 UNION ALL (SELECT 2 UNION ALL SELECT line FROM file('/etc/passwd', 'LineAsString'))",
    "SHOW TABLES WHERE name IN (SELECT * FROM file('/etc/passwd', 'LineAsString'))",
    # the database that is the file system
    "SELECT * FROM default.`/etc/passwd`",
    "SELECT * FROM `default`.`/etc/passwd`",
    "SELECT 1 IN default.`/etc/passwd`",
    "DESCRIBE default.`/etc/passwd`",
    "EXISTS default.`/etc/passwd`",
    "SELECT * FROM {db:Identifier}.`/etc/passwd`",
    # functions that leave the database, in every place that a function can stand
    "SELECT file('/etc/passwd')",
    "SELECT 1 FROM requests ORDER BY file('/etc/passwd')",
    "SELECT arrayMap(x -> file(x), ['/etc/passwd'])",
    "SELECT COLUMNS('name') APPLY(file) FROM system.tables",
    "SELECT * APPLY(x -> file(x)) FROM system.tables",
    "SELECT sum(1) OVER (PARTITION BY file('/etc/passwd'))",
    "SELECT dictGet('d', 'a', 1)",
    "SELECT joinGet('j', 'a', 1)",
    "SELECT sleep(3)",
    "SELECT sleepEachRow(3) FROM numbers(10)",
    "SELECT aiGenerate('x')",
    "SELECT getServerSetting('max_connections')",
    "SELECT addressToLine(1)",
    # files to write
    "SELECT 1 INTO OUTFILE '{path}'",
    "SELECT 1 INTO OUTFILE '{path}' AND STDOUT",
    "EXPLAIN SELECT 1 INTO OUTFILE '{path}'",
    "EXPLAIN AST SELECT 1 INTO OUTFILE '{path}'",
    "DESCRIBE requests INTO OUTFILE '{path}'",
    "SHOW TABLES INTO OUTFILE '{path}'",
    "SHOW CREATE TABLE requests INTO OUTFILE '{path}'",
    "SHOW FUNCTIONS INTO OUTFILE '{path}'",
    "EXISTS requests INTO OUTFILE '{path}'",
    "SELECT 1 SETTINGS output_format_schema = '{path}' FORMAT Protobuf",
    # the inside of the server
    "SELECT * FROM system.processes",
    "SELECT * FROM system.users",
    "SELECT * FROM `system`.`processes`",
    "SELECT * FROM SYSTEM.processes",
    "SELECT 1 IN system.processes",
    "SELECT * FROM {table:Identifier}",
    "SHOW PROCESSLIST",
    "SHOW GRANTS",
    # limits to lift
    "SELECT * FROM requests SETTINGS max_memory_usage = 0",
    "SELECT * FROM requests SETTINGS max_memory_usage = DEFAULT",
    "SELECT * FROM (SELECT 1 SETTINGS max_execution_time = 1000000)",
    "SELECT 1 SETTINGS/**/max_execution_time/**/=0",
    "SELECT 1 SETTINGS max_threads = 10000",
    "SELECT 1 SETTINGS max_threads = 1, readonly = 0",
    "SELECT 1 SETTINGS additional_table_filters = {'requests': 'file(\\'/etc/passwd\\') = \\'\\''}",
    "DESCRIBE requests SETTINGS max_memory_usage = 0",
]
HARMLESS = [
    "SELECT count() FROM requests",
    "WITH x AS (SELECT number AS n FROM numbers(3)) SELECT sum(n) FROM x",
    "SELECT 'SELECT 1 INTO OUTFILE x; DROP TABLE requests'",
    "SELECT quantile(0.5)(ttft_us), countIf(ttft_us > 1), quantilesTDigestIf(0.5, 0.9)(ttft_us, 1) FROM requests",
    "SELECT COUNT(*), Sum(ttft_us), COUNTIf(1) FROM requests UNION ALL SELECT NULL, NULL, NULL",
    "SELECT toStartOfInterval(now(), INTERVAL 5 MINUTE), dateDiff('second', now(), now()), formatReadableSize(1e9)",
    "SELECT sum(ttft_us) OVER (ORDER BY ttft_us ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM requests",
    "SELECT CASE WHEN 1 THEN 'a' ELSE 'b' END, [1, 2][1], map('a', 1)['a'], (1, 2).1",
    "SELECT arrayMap(x -> x + 1, range(3)), CAST(1 AS Nullable(UInt8)), '1'::UInt8, EXISTS(SELECT 1)",
    "SELECT * EXCEPT (ttft_us), * APPLY(toString) FROM (SELECT 1 AS ttft_us, 2 AS b)",
    "SELECT name FROM system.columns WHERE database = {database:String} AND name LIKE '%a%'",
    "SELECT 1 SETTINGS max_threads = 1, max_execution_time = 5, max_result_rows = 10",
    "SELECT 1 FORMAT JSONEachRow SETTINGS output_format_json_quote_64bit_integers = 0",
    "SHOW TABLES",
    "SHOW TABLES LIKE '%req%'",
    "SHOW DATABASES",
    "SHOW CREATE TABLE requests",
    "SHOW COLUMNS FROM requests",
    "DESCRIBE requests",
    "DESC TABLE requests FORMAT JSON",
    "EXISTS requests",
    "EXPLAIN SELECT 1",
    "EXPLAIN indexes = 1 SELECT * FROM requests",
    "SELECT name FROM system.tables WHERE database = currentDatabase()",
    "SELECT table_name FROM information_schema.tables",
]


@pytest.fixture(scope="module")
def reader_dsn(store_server: Embedded) -> Iterator[str]:
    """A reader's DSN of a database with a table or two."""
    writer = connect(store_server.dsn)
    for statement in (
        "deploys (time DateTime64(6), server String, name String, who String, what String)",
        "requests (ttft_us Nullable(Int64))",
    ):
        writer.command(f"CREATE TABLE IF NOT EXISTS {statement} ENGINE = MergeTree ORDER BY tuple()")
    yield store_server.reader_dsn
    for table in ("deploys", "requests"):
        writer.command(f"DROP TABLE {table}")
    writer.close()


@pytest.fixture
def reader(reader_dsn: str) -> Iterator[Client]:
    client = connect(reader_dsn)
    yield client
    client.close()


@pytest.mark.parametrize("statement", HOSTILE)
def test_hostile_statements_are_refused(statement: str, reader_dsn: str, tmp_path: Path) -> None:
    target = tmp_path / "stolen"
    names = {"param_db": "default", "param_table": "system.processes"}
    answer = post(reader_dsn, statement.replace("{path}", str(target)), **names)
    assert answer.code in (ACCESS_DENIED, SYNTAX_ERROR), answer.text
    assert "root:" not in answer.text
    assert not target.exists()


def test_few_of_the_hostile_statements_are_merely_wrong(reader_dsn: str) -> None:
    """A statement that does not parse proves nothing about the guard."""
    wrong = [
        s for s in HOSTILE if post(reader_dsn, s, param_db="default", param_table="x").code == SYNTAX_ERROR
    ]
    assert wrong == [s for s in HOSTILE if ";" in s]


@pytest.mark.parametrize("statement", HARMLESS)
def test_harmless_statements_run(statement: str, reader_dsn: str) -> None:
    answer = post(reader_dsn, statement, param_database="hitmap")
    assert (answer.status, answer.code) == (200, 0), answer.text


def test_a_syntax_error_is_told_in_the_readers_own_terms(reader_dsn: str) -> None:
    answer = post(reader_dsn, "SELECT 1 FROM")
    assert (answer.status, answer.code) == (400, SYNTAX_ERROR)
    assert answer.text.rstrip().endswith("(SYNTAX_ERROR)")
    assert "parseQueryToJSON" not in answer.text


def test_a_statement_nested_beyond_measure_is_refused(reader_dsn: str) -> None:
    for depth in (100, 300, 900, 5000):
        nested = "SELECT " + "abs(" * depth + "1" + ")" * depth
        assert post(reader_dsn, nested).status in (200, 400, 403, 500)
    assert post(reader_dsn, "SELECT 1").text == "1\n"


@pytest.mark.parametrize(
    "settings",
    [
        {"max_memory_usage": "0"},
        {"max_execution_time": "100000"},
        {"readonly": "0", "allow_introspection_functions": "1"},
        {"dialect": "kusto"},
        {"output_format_schema": "x"},
        {"format_schema": "x"},
        {"additional_table_filters": "{}"},
    ],
)
def test_settings_in_the_url_lift_no_limit(settings: dict[str, str], reader_dsn: str) -> None:
    assert post(reader_dsn, "SELECT 1", **settings).code == ACCESS_DENIED


def test_a_lowered_limit_holds_for_one_query(reader_dsn: str) -> None:
    limit = "SELECT getSetting('max_execution_time')"
    before = post(reader_dsn, limit).text
    assert post(reader_dsn, limit, max_execution_time="7").text == "7\n"
    assert {post(reader_dsn, limit).text for _ in range(12)} == {before}


@pytest.mark.parametrize("database", ["system", "default", "information_schema"])
def test_no_database_opens_the_inside_or_the_file_system(database: str, store_server: Embedded) -> None:
    with pytest.raises(UserError, match="may not work in the database"):
        connect(store_server.reader_dsn.rpartition("/")[0] + "/" + database)


def test_a_file_in_the_working_directory_is_no_table(reader_dsn: str) -> None:
    """The store's own directory is where it works, and its server.json has the writer's password."""
    answer = post(reader_dsn, "SELECT * FROM `server.json`")
    assert answer.status == 404
    assert "password" not in answer.text


def test_a_reader_leaves_the_writer_able_to_write(store_server: Embedded, reader: Client) -> None:
    reader.raw_query("SELECT 1", settings={"max_threads": "1"})
    connect(store_server.dsn).command("INSERT INTO deploys VALUES (now64(6), '', 'after a reader', '', '')")
    assert reader.query("SELECT count() FROM deploys WHERE name = 'after a reader'").first_row == (1,)


def test_a_stock_client_inserts_nothing_as_a_reader(reader: Client) -> None:
    with pytest.raises(ClickHouseError, match="497"):
        reader.insert("deploys", [["x"]], column_names=["name"])


def test_a_readers_memory_is_bounded_and_the_store_lives(reader: Client) -> None:
    with pytest.raises(ClickHouseError, match="241"):
        reader.query("SELECT length(groupArray(repeat('x', 1000))) FROM numbers(10000000)")
    assert reader.query("SELECT 1").first_row == (1,)
