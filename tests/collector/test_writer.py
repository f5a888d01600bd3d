"""The writer against a real store: exactly once through lost answers, outages, and data the store cannot read."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from benchmarks.spans import export_request
from collector import writer
from collector.batch import Batch
from collector.landing import Landing
from collector.pipeline import Pipeline
from collector.set_aside import rejections
from collector.sink import Entry
from collector.spool import Spool
from collector.tally import Tally
from collector.writer import UNREADABLE, Flush, Writer
from store.client import connect
from tests.conftest import Database

SOON = Flush(age_s=0.02)


class NoFinaliser:
    """Remembers what it was told."""

    def __init__(self, _: Client | None = None) -> None:
        self.told: list[tuple[str, str]] = []

    def finalise(self, kind: str, batch_id: str) -> None:
        self.told.append((kind, batch_id))

    def sweep(self) -> int:
        return 0


@pytest.fixture(autouse=True)
def quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BACKOFF_S", (0.05, 0.2))


@contextmanager
def writing(spool: Spool, dsn: str, tally: Tally | None = None) -> Iterator[Writer]:
    running = Writer(
        spool, lambda: connect(dsn, timeout_s=20), tally or Tally(), finaliser=NoFinaliser, flush=SOON
    )
    running.start()
    try:
        yield running
    finally:
        running.stop(0)


def eventually(check: Callable[[], bool], timeout_s: float = 20) -> None:
    end = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)


def traces(seed: int, spans: int = 32) -> Entry:
    return Entry("traces", export_request(seed, spans), spans)


def samples(*values: float) -> Entry:
    lines = [
        json.dumps({"time": "2026-11-29 10:00:00.25", "fingerprint": 7, "value": value}) for value in values
    ]
    return Entry("samples", ("\n".join(lines) + "\n").encode(), len(lines))


def sealed(spool: Spool, entry: Entry) -> Batch:
    """A batch as a collector leaves it that was killed around the insert."""
    spool.put([entry])
    batch = spool.seal(entry.kind, 10**6, 10**9)
    assert batch
    return batch


def counts(db: Database) -> tuple[int, int]:
    return db.client.query("SELECT count(), uniqExact(SpanId) FROM otel_traces").result_rows[0]


class CuttingProxy:
    """Passes requests on to the store; cuts the connection of the next `cuts` INSERTs, before or after they arrived."""

    def __init__(self, dsn: str, *, cuts: int, after: bool) -> None:
        self.cuts, self._after = cuts, after
        host, _, port = dsn.rpartition("@")[2].partition("/")[0].partition(":")
        self._upstream = (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open = [self._server]
        self.dsn = dsn.replace(f":{port}/", f":{self._server.getsockname()[1]}/")
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, store = self._server.accept()[0], socket.create_connection(self._upstream)
                self._open += [client, store]
                threading.Thread(target=self._serve, args=(client, store), daemon=True).start()

    def _serve(self, client: socket.socket, store: socket.socket) -> None:
        deaf = threading.Event()
        threading.Thread(target=self._answer, args=(store, client, deaf), daemon=True).start()
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if b"INSERT" in data and self.cuts:
                    self.cuts -= 1
                    deaf.set()
                    if not self._after:
                        break
                store.sendall(data)
        cut(client, store)

    def _answer(self, store: socket.socket, client: socket.socket, deaf: threading.Event) -> None:
        with suppress(OSError):
            while (data := store.recv(1 << 16)) and not deaf.is_set():
                client.sendall(data)
        cut(client, store)

    def close(self) -> None:
        cut(*self._open)


def cut(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@pytest.mark.parametrize("after", [True, False], ids=["answer lost", "request lost"])
def test_a_cut_connection_neither_loses_nor_doubles(db: Database, tmp_path: Path, after: bool) -> None:
    spool, tally = Spool(tmp_path), Tally()
    proxy = CuttingProxy(db.dsn, cuts=3, after=after)
    with writing(spool, proxy.dsn, tally):
        for seed in range(4):
            spool.put([traces(seed)])
            eventually(lambda: not spool.pending())
    proxy.close()
    assert proxy.cuts == 0
    assert tally.snapshot()["traces"].retries >= 1, "the client itself repeats some, under the same token"
    assert counts(db) == (128, 128)


def test_a_batch_that_arrived_before_the_crash_is_not_sent_again(db: Database, tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    batch = sealed(spool, traces(1))
    Landing(db.client, "traces").insert(batch, spool.payload(batch))
    db.client.command("TRUNCATE TABLE otel_traces_trace_id_ts")  # as if the crash fell between table and view
    with writing(spool, db.dsn):
        eventually(lambda: not spool.pending())
    assert counts(db) == (32, 32)
    assert db.client.command("SELECT uniqExact(TraceId) FROM otel_traces_trace_id_ts") == 32


def test_a_batch_that_arrived_in_part_is_replaced(db: Database, tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    batch = sealed(spool, traces(1))
    Landing(db.client, "traces").insert(batch, export_request(99, 5))
    with writing(spool, db.dsn):
        eventually(lambda: not spool.pending())
    assert counts(db) == (32, 32)
    assert db.client.command("SELECT count(DISTINCT IngestBatch) FROM otel_traces") == 1


def test_a_token_whose_part_was_lost_is_not_trusted(db: Database, tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    batch = sealed(spool, traces(1))
    landing = Landing(db.client, "traces")
    landing.insert(batch, spool.payload(batch))
    landing.erase(
        batch.name
    )  # the store remembers the token and has no rows: a kill between its log and its part
    landing.insert(batch, spool.payload(batch))
    assert counts(db) == (0, 0), "the store takes it for a repetition"
    with writing(spool, db.dsn):
        eventually(lambda: not spool.pending())
    assert counts(db) == (32, 32)


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


def test_kinds_that_keep_one_row_a_key_are_sent_again_without_counting(db: Database, tmp_path: Path) -> None:
    alias = {"kind": "service.name", "alias": "a", "server": "s"}
    spool = Spool(tmp_path)
    batch = sealed(spool, Entry("aliases", json.dumps(alias).encode() + b"\n", 1))
    Landing(db.client, "aliases").insert(batch, spool.payload(batch))
    with writing(spool, db.dsn):
        eventually(lambda: not spool.pending())
    assert db.client.query("SELECT alias, server FROM server_aliases FINAL").result_rows == [("a", "s")]


def test_a_store_that_is_away_fills_the_spool_and_empties_it_later(db: Database, tmp_path: Path) -> None:
    nobody = db.dsn.replace(db.dsn.rpartition(":")[2].partition("/")[0], "1")
    home, tally = {"dsn": nobody}, Tally()
    spool = Spool(tmp_path)
    running = Writer(spool, lambda: connect(home["dsn"]), tally, finaliser=NoFinaliser, flush=SOON)
    running.start()
    spool.put([traces(1)])
    eventually(lambda: "traces" in tally.snapshot() and tally.snapshot()["traces"].retries >= 2)
    assert spool.pending() == {"traces": 32}
    home["dsn"] = db.dsn
    eventually(lambda: not spool.pending())
    assert running.stop(0)
    assert counts(db) == (32, 32)


def test_a_batch_leaves_only_after_the_finaliser_was_done_with_it(db: Database, tmp_path: Path) -> None:
    class FailsTwice(NoFinaliser):
        failures = 2

        def finalise(self, kind: str, batch_id: str) -> None:
            if FailsTwice.failures:
                FailsTwice.failures -= 1
                assert spool.pending() == {"traces": 32}
                raise RuntimeError("not now")
            told.append((kind, batch_id))

    told: list[tuple[str, str]] = []
    spool = Spool(tmp_path)
    running = Writer(spool, lambda: connect(db.dsn), Tally(), finaliser=FailsTwice, flush=SOON)
    running.start()
    spool.put([traces(1), samples(1.0)])
    eventually(lambda: not spool.pending())
    running.stop(0)
    batches = db.client.query("SELECT DISTINCT IngestBatch FROM otel_traces").result_rows
    assert told == [("traces", batches[0][0])], "only kinds that concern it"
    assert counts(db) == (32, 32)


def test_the_pipeline_leaves_what_it_cannot_write_for_the_next_start(db: Database, tmp_path: Path) -> None:
    db.client.command("RENAME TABLE otlp_traces TO elsewhere")
    pipeline = Pipeline(db.dsn, tmp_path, flush=SOON)
    entry = traces(1)
    pipeline.sink.put([entry])
    assert pipeline.close(drain_s=0.3) is False
    db.client.command("RENAME TABLE elsewhere TO otlp_traces")
    with Pipeline(db.dsn, tmp_path, flush=SOON) as pipeline:
        assert pipeline.sink.put([entry]) == 0
    assert counts(db) == (32, 32)
    assert db.client.command("SELECT count() FROM requests") == 32


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
