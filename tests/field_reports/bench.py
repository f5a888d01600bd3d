"""Puts what servers sent into a store: entries of all kinds, a batch a kind, then the finaliser."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from clickhouse_connect.driver.client import Client

from collector.finaliser import Finaliser
from collector.kv.stream import KvStream, Message
from collector.prometheus import parse
from collector.request_log import UsageRow, parse_line
from collector.series import SeriesTracker
from collector.sink import Entry
from tests.collector.spans import insert
from tests.collector.support import HASHER
from tests.field_reports.dialects import log_reader, resolver


def store(client: Client, entries: Iterable[Entry], batch: str) -> None:
    """Insert the entries and build `requests` from them, logs without a span included."""
    payloads: dict[str, bytes] = defaultdict(bytes)
    for entry in entries:
        payloads[entry.kind] += entry.payload
    finaliser = Finaliser(client, grace_s=0)
    for kind, payload in payloads.items():
        insert(client, kind, f"{batch}-{kind}", payload)
        finaliser.finalise(kind, f"{batch}-{kind}")
    finaliser.sweep()


def recorded(run: Path, server: str, kind: str = "vllm") -> list[Entry]:
    """A recording as entries, each at the time at which it was recorded."""
    tracker, found = SeriesTracker(server, resolver(kind)), []
    for scrape in _lines(run / "scrapes.jsonl"):
        exposition = parse((run / scrape["file"]).read_bytes())
        batch = tracker.batch(exposition, scrape["start_unix_ns"] // 1000)
        tracker.commit(batch)
        found += batch.entries()
    stream = KvStream(server, "kv", 0, hasher=HASHER)
    for told in _lines(run / "kv_events.jsonl"):
        _, seq, payload = (base64.b64decode(frame) for frame in told["frames_b64"])
        found += stream.take(Message.read(int.from_bytes(seq, "big"), payload, told["recv_unix_ns"] / 1e9))
    for line in (run / "requests.jsonl").read_bytes().splitlines():
        sent_s = json.loads(line)["sent_unix_ns"] / 1e9
        row = parse_line(line, server, sent_s)
        assert isinstance(row, UsageRow), row
        found.append(row.entry())
    if (log := run / "server.log").exists():
        read = log_reader(kind)(server)
        found += [
            entry for line in log.read_text(errors="replace").splitlines() for entry in read(line, sent_s)
        ]
    found += [Entry("traces", body.read_bytes(), 1) for body in sorted((run / "otlp").glob("*.bin"))]
    alias = {"kind": "service.name", "alias": "vllm-tiny", "server": server}
    return [*found, Entry("aliases", json.dumps(alias).encode() + b"\n", 1)]


def _lines(file: Path) -> list[Any]:
    """The objects of a file of JSON lines; none where there is no such file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
