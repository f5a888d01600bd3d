"""`hitmap store` and `hitmap deploy` as a person calls them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cachemodel.errors import UsageError, UserError
from hitmap.cli import cli
from tests.conftest import Database


def _run(db: Database, *words: str) -> str:
    result = CliRunner(env={"HITMAP_STORE": db.dsn}).invoke(cli, words)
    if result.exception:
        raise result.exception
    return result.stdout


def test_migrate_then_nothing_to_do(empty_db: Database) -> None:
    assert _run(empty_db, "store", "migrate").startswith("applied 0001_")
    assert "up to date" in _run(empty_db, "store", "migrate")
    assert json.loads(_run(empty_db, "store", "migrate", "--json"))["applied"] == []


def test_status_counts_rows_and_bytes(db: Database) -> None:
    _run(db, "deploy", "mark", "v1")
    status = json.loads(_run(db, "store", "status", "--json"))
    deploys = next(table for table in status["tables"] if table["table"] == "deploys")
    assert deploys["rows"] == 1
    assert deploys["bytes_per_row"] == deploys["bytes"] > 0
    empty = next(table for table in status["tables"] if table["table"] == "requests")
    assert (empty["rows"], empty["bytes_per_row"]) == (0, None)
    assert "deploys" in _run(db, "store", "status")


def test_sql_prints_a_table_or_any_format(empty_db: Database) -> None:
    assert "NULL" in _run(empty_db, "store", "sql", "SELECT 1 AS a, NULL AS b")
    assert _run(empty_db, "store", "sql", "SELECT 1, 2", "--format", "CSV") == "1,2\n"
    assert json.loads(_run(empty_db, "store", "sql", "SELECT 7 AS x", "--json"))["data"] == [{"x": 7}]
    assert _run(empty_db, "store", "sql", "CREATE TABLE t (a UInt8) ENGINE = Null") == ""


def test_an_error_is_one_line_of_clickhouses(empty_db: Database) -> None:
    with pytest.raises(UserError) as caught:
        _run(empty_db, "store", "sql", "SELECT 1\nFROM nowhere")
    assert str(caught.value).startswith("the store says: Code: 60. DB::Exception: Unknown table")
    assert "\n" not in str(caught.value)


def test_deploy_markers(db: Database) -> None:
    _run(
        db,
        "deploy",
        "mark",
        "v1",
        "--at",
        "2026-11-29T10:00:00+02:00",
        "--server",
        "a",
        "--what",
        "new prompt",
    )
    _run(db, "deploy", "mark", "v2", "--at", "2026-11-29 09:00")
    newest, oldest = json.loads(_run(db, "deploy", "list", "--json"))
    assert (newest["name"], newest["time"]) == ("v2", "2026-11-29 09:00:00")
    assert (oldest["server"], oldest["what"], oldest["time"]) == ("a", "new prompt", "2026-11-29 08:00:00")
    assert "v1" in _run(db, "deploy", "list")
    with pytest.raises(UsageError):
        _run(db, "deploy", "mark", "v3", "--at", "yesterday")


def test_a_marker_set_twice_stands_once(db: Database) -> None:
    mark = ("deploy", "mark", "v1", "--at", "2026-11-29T10:00:00")
    assert _run(db, *mark, "--what", "new prompt") == "v1 marked at 2026-11-29 10:00:00 UTC\n"
    for again in (mark, (*mark, "--what", "new prompt")):
        assert _run(db, *again) == "v1 is marked at 2026-11-29 10:00:00 UTC already\n"
    with pytest.raises(UserError, match="already, as 'new prompt': use another name or --at"):
        _run(db, *mark, "--what", "new model")
    _run(db, *mark, "--server", "a")
    assert [row["server"] for row in json.loads(_run(db, "deploy", "list", "--json"))] in (
        ["", "a"],
        ["a", ""],
    )
