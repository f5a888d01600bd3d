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
from tests.store.harmless import HARMLESS
from tests.store.hostile import HOSTILE
from tests.store.plain import post

ACCESS_DENIED, SYNTAX_ERROR = 497, 62


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
        {"max_execution_time": "0"},
        {"workload": "x"},
        {"log_queries": "1"},
        {"readonly": "0", "allow_introspection_functions": "1"},
        {"dialect": "kusto"},
        {"output_format_schema": "x"},
        {"format_schema": "x"},
        {"additional_table_filters": "{}"},
    ],
)
def test_settings_in_the_url_lift_no_limit(settings: dict[str, str], reader_dsn: str) -> None:
    assert post(reader_dsn, "SELECT 1", **settings).code == ACCESS_DENIED


def test_a_deadline_beyond_ours_becomes_ours(reader_dsn: str) -> None:
    """clickhouse-go sends its caller's deadline with every query, be it a minute or a day."""
    limit = "SELECT getSetting('max_execution_time')"
    assert post(reader_dsn, limit, max_execution_time="86405").text == post(reader_dsn, limit).text == "120\n"


def test_a_statement_split_over_url_and_body_is_checked_whole(reader_dsn: str) -> None:
    assert (
        post(reader_dsn, "file('/etc/passwd', 'LineAsString')", query="SELECT * FROM").code == ACCESS_DENIED
    )
    assert post(reader_dsn, "; DROP TABLE requests", query="SELECT 1").code == SYNTAX_ERROR


@pytest.mark.parametrize(
    "name", ["DataFrame", "ArrowTable", "dataframe", "Debug", "TSV SETTINGS readonly = 0"]
)
def test_formats_that_are_no_bytes_are_refused(name: str, reader_dsn: str) -> None:
    """chDB hands out objects under some names; in a header, in the URL and in the statement."""
    answers = [
        post(reader_dsn, "SELECT 1", {"X-ClickHouse-Format": name}),
        post(reader_dsn, "SELECT 1", default_format=name),
    ]
    if " " not in name:
        answers.append(post(reader_dsn, f"SELECT 1 FORMAT {name}"))
    assert {(answer.status, answer.code) for answer in answers} == {(400, 73)}


def test_every_format_that_the_engine_lists_is_answered(reader_dsn: str) -> None:
    names = post(reader_dsn, "SELECT name FROM system.formats WHERE is_output").text.split()
    codes = {name: post(reader_dsn, "SELECT 1 AS a", default_format=name).code for name in names}
    # these want a schema, an address, other columns, or a template
    wanting = {"AvroConfluent", "GeoJSON", "PNG", "Prometheus", "Template"}
    assert {name for name, code in codes.items() if code} <= wanting | {
        "Protobuf",
        "ProtobufList",
        "ProtobufSingle",
    }
    assert len(names) > 90


def test_another_database_in_a_header_is_checked(reader_dsn: str) -> None:
    bare = reader_dsn.rpartition("/")[0]
    assert post(bare, "SELECT 1", {"X-ClickHouse-Database": "default"}).code == ACCESS_DENIED


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


ENDLESS = "9" * 5000


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        (f"SELECT 1 SETTINGS max_threads = {ENDLESS}", SYNTAX_ERROR),
        (f"SELECT 1 SETTINGS max_threads = {ENDLESS[:300]}", ACCESS_DENIED),
        (f"SELECT 1 SETTINGS max_threads = '{ENDLESS}'", ACCESS_DENIED),
        (f"SELECT 1 WHERE 0 != {ENDLESS[:300]}", 0),
        ("SELECT max(ttft_us) FROM system", 60),
        (r"DESCRIBE `\xff`", 60),
        (r"SELECT * FROM `\xff`", 60),
        (r"SELECT * FROM `\xff`.`\xff`", 81),
        (
            r"SELECT 1 SETTINGS additional_table_filters = {'requests': '\'\xff\' = file(\'/etc/passwd\')'}",
            497,
        ),
    ],
)
def test_oddities_are_answered_in_clickhouses_terms(statement: str, code: int, reader_dsn: str) -> None:
    answer = post(reader_dsn, statement)
    assert answer.code == code, answer.text


def test_endless_numbers_in_the_url_are_refused(reader_dsn: str) -> None:
    for name in ("max_threads", "max_memory_usage", "max_execution_time"):
        assert post(reader_dsn, "SELECT 1", **{name: ENDLESS}).code in (0, ACCESS_DENIED)
    assert post(reader_dsn, "SELECT 1", max_threads=ENDLESS).code == ACCESS_DENIED


def test_bytes_that_are_no_text_come_back_as_they_are(reader_dsn: str) -> None:
    assert post(reader_dsn, r"SELECT '\xff'").data == b"\xff\n"
    assert post(reader_dsn, r"SELECT 1 AS `\xff` FORMAT TSVWithNames").data == b"\xff\n1\n"
