"""Schema files are applied once, in order, and never edited afterwards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.errors import UserError
from store.migrate import Migration, known, migrate
from tests.conftest import Database


def test_a_second_run_applies_nothing(db: Database) -> None:
    assert migrate(db.client) == []


def test_numbers_are_unique_and_rising() -> None:
    numbers = [m.number for m in known()]
    assert numbers == sorted(set(numbers))


def test_semicolons_inside_comments_and_text_do_not_split() -> None:
    sql = "-- a; b;\nSELECT ';\n', 1;\n/* it's;\n */\nSELECT `;`, '\\';' -- c; d;\n;\n-- the end;\n"
    assert Migration(1, "x", sql).statements == [
        "-- a; b;\nSELECT ';\n', 1",
        "/* it's;\n */\nSELECT `;`, '\\';' -- c; d;",
    ]


@given(st.lists(st.sampled_from(["a", "'", "\\'", ";", "--", "\n", "/*", "*/", "`", '"', " "]), max_size=12))
def test_splitting_loses_nothing_of_a_quoted_text(pieces: list[str]) -> None:
    text = "".join(pieces).replace("\\", "").replace("'", "''")
    assert Migration(1, "x", f"SELECT '{text}';\nSELECT 2;").statements == [f"SELECT '{text}'", "SELECT 2"]


def test_an_edited_file_is_an_error(db: Database) -> None:
    db.client.command(
        "ALTER TABLE hitmap_migrations UPDATE checksum = 'x' WHERE number = 4 SETTINGS mutations_sync = 1"
    )
    with pytest.raises(UserError, match=r"0004_requests\.sql was changed"):
        migrate(db.client)


def test_a_newer_database_is_an_error(db: Database) -> None:
    db.client.insert("hitmap_migrations", [[9999, "later", "x"]], column_names=["number", "name", "checksum"])
    with pytest.raises(UserError, match="newer than this hitmap"):
        migrate(db.client)


def test_every_insert_target_remembers_tokens(db: Database) -> None:
    """Without a window ClickHouse ignores deduplication tokens, and a retry would double a batch."""
    found = db.client.query(
        "SELECT DISTINCT table FROM system.columns WHERE database = currentDatabase()"
        " AND name IN ('ingest_batch', 'IngestBatch')"
    ).result_rows
    assert found
    for (table,) in found:
        if "MergeTree" in (ddl := str(db.client.command(f"SHOW CREATE TABLE {table}"))):
            assert "non_replicated_deduplication_window" in ddl, table
