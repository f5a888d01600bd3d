"""What the store cannot read, or says so of, and what that holds up: nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from clickhouse_connect.driver.exceptions import ClickHouseError

from collector import writer
from collector.batch import Batch
from collector.landing import Landing
from collector.set_aside import rejections
from collector.sink import Entry
from collector.spool import Spool
from collector.tally import Tally
from collector.writer import UNREADABLE
from tests.collector.writing import counts, eventually, samples, traces, writing
from tests.conftest import Database

pytestmark = pytest.mark.usefixtures("quick_backoff")


def test_an_entry_the_store_cannot_read_is_set_aside_and_the_rest_kept(db: Database, tmp_path: Path) -> None:
    spool, tally = Spool(tmp_path), Tally()
    bad = [
        Entry("samples", b'{"time": "never", "fingerprint": 1, "value": 1}\n', 1),
        Entry("samples", b'{"time": "2026-11-29 10:00:00", "fingerprint": 1, "unheard_of": 1}\n', 1),
        Entry("samples", b"\xff\xfe\n", 1),
    ]
    good = [samples(float(i)) for i in range(20)]
    spool.put([*good[:7], bad[0], *good[7:12], bad[1], *good[12:], bad[2]])
    with writing(spool, db.dsn, tally):
        eventually(lambda: not spool.pending())
    assert db.client.command("SELECT count(), uniqExact(value) FROM samples") == ["20", "20"]
    snapshot = tally.snapshot()["samples"]
    assert snapshot.rejected == {UNREADABLE: 3}
    assert snapshot.written == 20
    assert [rejection.rows for rejection in rejections(tmp_path)] == [1, 1, 1]


def test_protobuf_the_store_cannot_read_is_set_aside(db: Database, tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.put([traces(1), Entry("traces", b"\x0a\x7f\x0a", 1), traces(2)])
    with writing(spool, db.dsn):
        eventually(lambda: not spool.pending())
    assert counts(db) == (64, 64)
    (kept,) = rejections(tmp_path)
    assert (kept.kind, kept.rows, kept.file.read_bytes()) == ("traces", 1, b"\x0a\x7f\x0a")
    assert "rotobuf" in kept.reason


def test_what_only_the_protobuf_library_reads_is_written_anew(db: Database, tmp_path: Path) -> None:
    number = b"\x08\x01"  # resource_spans as a number: an unknown field to one, corrupt to the other
    odd = Entry("traces", traces(2).payload + number, 32)
    with pytest.raises(ClickHouseError, match="corrupted"):
        Landing(db.client, "traces").insert(Batch(1, "traces", 1, 1, 1, 32, 0, "x-1"), odd.payload)
    spool = Spool(tmp_path)
    spool.put([traces(1), odd, traces(3)])
    with writing(spool, db.dsn):
        eventually(lambda: not spool.pending())
    assert counts(db) == (96, 96)
    assert list(rejections(tmp_path)) == []


def test_a_batch_that_fails_for_unknown_reasons_lets_others_pass(db: Database, tmp_path: Path) -> None:
    db.client.command("ALTER TABLE samples ADD CONSTRAINT odd CHECK value != 13")
    spool, tally = Spool(tmp_path), Tally()
    with writing(spool, db.dsn, tally):
        spool.put([samples(13.0)])
        eventually(lambda: "samples" in tally.snapshot() and tally.snapshot()["samples"].retries > 0)
        spool.put([samples(1.0)])
        eventually(lambda: spool.pending() == {"samples": 1})
        assert db.client.command("SELECT groupArray(value) FROM samples") == "[1]"
        db.client.command("ALTER TABLE samples DROP CONSTRAINT odd")
        eventually(lambda: not spool.pending())
    assert db.client.command("SELECT arraySort(groupArray(value)) FROM samples") == "[1,13]"


def test_one_kind_in_trouble_does_not_hold_up_the_others(db: Database, tmp_path: Path) -> None:
    db.client.command("RENAME TABLE otlp_traces TO elsewhere")
    spool, tally = Spool(tmp_path), Tally()
    with writing(spool, db.dsn, tally):
        spool.put([traces(1), samples(1.0)])
        eventually(lambda: spool.pending() == {"traces": 32})
        eventually(lambda: tally.snapshot()["traces"].retries >= 2)
        assert "UNKNOWN_TABLE" in tally.snapshot()["traces"].last_error
        db.client.command("RENAME TABLE elsewhere TO otlp_traces")
        eventually(lambda: not spool.pending())
    assert counts(db) == (32, 32)
    assert tally.snapshot()["traces"].last_error == ""


def test_rows_of_more_days_than_an_insert_may_have_are_set_aside_alone(db: Database, tmp_path: Path) -> None:
    spool, tally = Spool(tmp_path), Tally()
    days = [{"time": 1.1e9 + day * 86_400, "fingerprint": 9, "value": 1} for day in range(1300)]
    odd = Entry("samples", "".join(json.dumps(row) + "\n" for row in days).encode(), 1300)
    spool.put([samples(1.0), odd, samples(2.0)])
    with writing(spool, db.dsn, tally):
        eventually(lambda: not spool.pending())
    assert db.client.command("SELECT arraySort(groupArray(value)) FROM samples") == "[1,2]"
    assert tally.snapshot()["samples"].rejected == {UNREADABLE: 1300}


def test_too_many_parts_is_the_stores_trouble_and_not_the_datas() -> None:
    partitions = ClickHouseError(
        "Code: 252. DB::Exception: Too many partitions for single INSERT block (max 1000)"
    )
    parts = ClickHouseError("Code: 252. DB::Exception: Too many parts (3000). Merges are slower than inserts")
    assert writer.is_of_data(partitions)
    assert not writer.is_of_data(parts)
