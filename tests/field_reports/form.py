"""The form of a field report: what a thread tells, a small input that shows it, and what must come of it.

A report is one row of the public threads that ask for hitmap. Its inputs are what a server or a client really sends,
and they go through the real readers into a real store:

    Server       what `attach` found out: kind, version, facts, signals
    Scrapes      texts of /metrics, ten seconds apart
    Responses    lines of a request log, as JSON text or as an object
    Spans        attributes of request spans
    KvEvents     batches of KV events, one a message, a second apart
    ServerLog    lines of the server's own log

An input belongs to the server called "s" unless it says otherwise; servers of two reports never meet. Ids of responses
must be unique among all reports: begin them with the row's number. Times count from START.

What must come of it is any number of these, all of which must hold:

    Warns        a rule fires, with these figures
    Silent       a rule does not fire
    Figure       a query gives this value: `{server:String}` is the server "s"
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from cachemodel.kv_events import Event, KVEventBatch, encode_batch
from collector.kv.stream import KvStream, Message
from collector.prometheus import parse
from collector.request_log import UsageRow, parse_line
from collector.series import SeriesTracker
from collector.sink import Entry
from tests.collector.spans import START_NS, VLLM, exported, span
from tests.collector.support import HASHER
from tests.field_reports.dialects import log_reader, resolver

START = START_NS / 1e9
SCRAPE_S = 10.0


class Input(Protocol):
    """Something that a server or client sends. entries: as the collector hands it on, `name` being the server's."""

    @property
    def server(self) -> str: ...

    def entries(self, name: str) -> Sequence[Entry]: ...


@dataclass(frozen=True)
class Server:
    """What `attach` found out. signals: (signal, seen or None, evidence, flag)."""

    kind: str = "vllm"
    version: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    signals: Sequence[tuple[str, bool | None, str, str]] = ()
    server: str = "s"

    def entries(self, name: str) -> Sequence[Entry]:
        row = {
            "time": START,
            "server": name,
            "kind": self.kind,
            "version": self.version,
            "url": "http://127.0.0.1:8000",
            "models": [],
            "facts": dict(self.facts),
            "signals": [
                dict(zip(("signal", "seen", "evidence", "flag"), signal, strict=True))
                for signal in self.signals
            ],
            "notes": [],
        }
        return [_line("servers", row)]


@dataclass(frozen=True)
class Scrapes:
    """Texts of /metrics, SCRAPE_S apart, the first at START, with the names of the dialect `kind`; None is a scrape
    that failed."""

    texts: Sequence[str | None]
    kind: str = "vllm"
    server: str = "s"

    def entries(self, name: str) -> Sequence[Entry]:
        tracker, found = SeriesTracker(name, resolver(self.kind)), []
        for number, text in enumerate(self.texts):
            exposition = parse((text or "").strip().encode() + b"\n")
            assert not exposition.malformed, exposition.first_malformed
            batch = tracker.batch(exposition, round((START + number * SCRAPE_S) * 1e6), text is not None)
            tracker.commit(batch)
            found += batch.entries()
        return found


@dataclass(frozen=True)
class Responses:
    """Lines of a request log, whose `adapter` is kept as a label. Each needs a response id, and a time, which is START
    and as many seconds as its number unless the line has one."""

    lines: Sequence[str | Mapping[str, Any]]
    server: str = "s"

    def entries(self, name: str) -> Sequence[Entry]:
        found = []
        for number, line in enumerate(self.lines):
            record = json.loads(line) if isinstance(line, str) else dict(line)
            if not {"sent_unix_ns", "time", "timestamp", "created"} & record.keys():
                record["time"] = START + number
            row = parse_line(json.dumps(record).encode(), name, START, ("adapter",))
            assert isinstance(row, UsageRow), row
            found.append(row.entry())
        return found


@dataclass(frozen=True)
class Spans:
    """Request spans, a second apart: their attributes, and whose they are."""

    attributes: Sequence[Mapping[str, str | int | float]]
    scope: str = VLLM
    span_name: str = "llm_request"
    first_id: int = 1
    duration_s: float = 2.0
    server: str = "s"

    def entries(self, name: str) -> Sequence[Entry]:
        requests = [
            span(
                attributes,
                name=self.span_name,
                scope=self.scope,
                service=name,
                span_id=self.first_id + number,
                start_ns=START_NS + number * 10**9,
                duration_ns=round(self.duration_s * 1e9),
            )
            for number, attributes in enumerate(self.attributes)
        ]
        return [Entry("traces", exported(*requests), len(requests))]


@dataclass(frozen=True)
class KvEvents:
    """Messages of one publisher, a second apart from START; each is a list of events. numbers: theirs, 0, 1, 2 and so
    on by default."""

    messages: Sequence[Sequence[Event]]
    rank: int = 0
    numbers: Sequence[int] = ()
    source: str = "kv"
    server: str = "s"

    def entries(self, name: str) -> Sequence[Entry]:
        stream, found = KvStream(name, self.source, self.rank, hasher=HASHER), []
        for number, events in enumerate(self.messages):
            payload = encode_batch(KVEventBatch(START + number, list(events), self.rank))
            message = Message.read(self.numbers[number] if self.numbers else number, payload, START + number)
            assert message.batch is not None, message.error
            found += stream.take(message)
        return found


@dataclass(frozen=True)
class ServerLog:
    """Lines of a server's own log, read by the dialect `kind`, a second apart."""

    lines: Sequence[str]
    kind: str = "llama_cpp"
    server: str = "s"

    def entries(self, name: str) -> Sequence[Entry]:
        read = log_reader(self.kind)(name)
        return [entry for number, line in enumerate(self.lines) for entry in read(line, START + number)]


@dataclass(frozen=True)
class Warns:
    """A finding of `rule`. said, corrected: what the server says and what is right, `...` where any will do, None for
    unknown; evidence: some of its numbers; about: a part of its words."""

    rule: str
    said: Any = ...
    corrected: Any = ...
    evidence: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""
    server: str = "s"


@dataclass(frozen=True)
class Silent:
    """No finding of `rule`."""

    rule: str
    server: str = "s"


@dataclass(frozen=True)
class Figure:
    """The one value of a query, within one part in a million where it is a float; None is NULL."""

    sql: str
    value: Any
    server: str = "s"


Expected = Warns | Silent | Figure


@dataclass(frozen=True)
class FieldReport:
    """row: its number in the list of threads; thread: where it was told; symptom: in our words."""

    row: int
    thread: str
    symptom: str
    inputs: Sequence[Input]
    expected: Sequence[Expected]
    case: str = ""

    @property
    def id(self) -> str:
        """Names the test."""
        return f"row{self.row}" + (f"-{self.case}" if self.case else "")

    def name_of(self, server: str) -> str:
        """What a server of this report is called in the store."""
        return f"{self.id}-{server}"


def _line(kind: str, row: Mapping[str, Any]) -> Entry:
    return Entry(kind, msgspec.json.encode(row) + b"\n", 1)
