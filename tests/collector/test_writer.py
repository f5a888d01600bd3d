"""The writer against a real store: exactly once through lost answers and outages."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.spans import export_request
from collector.aliases import alias
from collector.landing import Landing
from collector.pipeline import Pipeline
from collector.sink import Entry
from collector.spool import Spool
from collector.tally import Tally
from collector.writer import Flush, Writer
from store.client import connect
from tests.collector.writing import SOON, NoFinaliser, counts, eventually, samples, sealed, traces, writing
from tests.conftest import Database

pytestmark = pytest.mark.usefixtures("quick_backoff")


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


def test_kinds_that_keep_one_row_a_key_are_sent_again_without_counting(db: Database, tmp_path: Path) -> None:
    row = {"kind": "service.name", "alias": "a", "server": "s"}
    spool = Spool(tmp_path)
    batch = sealed(spool, Entry("aliases", json.dumps(row).encode() + b"\n", 1))
    Landing(db.client, "aliases").insert(batch, spool.payload(batch))
    with writing(spool, db.dsn):
        eventually(lambda: not spool.pending())
    assert db.client.query("SELECT alias, server FROM server_aliases FINAL").result_rows == [("a", "s")]


def test_a_name_is_there_before_the_spans_that_came_with_it(db: Database, tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    finaliser = NoFinaliser()
    flush = Flush(age_s=60)
    running = Writer(spool, lambda: connect(db.dsn), Tally(), finaliser=lambda _: finaliser, flush=flush)
    running.start()
    spool.put([traces(1)])
    spool.put([alias("service.name", "a", "s")])
    eventually(lambda: list(spool.pending()) == ["traces"])
    assert finaliser.told == [], "the spans wait for more"
    assert db.client.query("SELECT alias, server FROM server_aliases FINAL").result_rows == [("a", "s")]
    assert running.stop(20)
    assert [kind for kind, _ in finaliser.told] == ["traces"]


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
