"""A writer between a spool and a real store, and what the tests give it to write."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from clickhouse_connect.driver.client import Client

from benchmarks.spans import export_request
from collector.batch import Batch
from collector.sink import Entry
from collector.spool import Spool
from collector.tally import Tally
from collector.writer import Flush, Writer
from store.client import connect
from tests.conftest import Database

SOON = Flush(age_s=0.02)


class NoFinaliser:
    """Remembers what it was told."""

    def __init__(self, _: Client | None = None) -> None:
        self.told: list[tuple[str, str]] = []

    def finalise(self, kind: str, batch_id: str) -> None:
        self.told.append((kind, batch_id))

    def sweep(self, *, last: bool = False) -> int:
        return 0


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
