"""A recording of a live server, read from its folder.

    otlp/index.jsonl, otlp/*.bin    OTLP export bodies as received
    scrapes.jsonl, metrics/*.txt    /metrics texts
    kv_events.jsonl                 KV-event messages, three ZeroMQ frames each
    requests.jsonl                  the client's request log, with usage
    kv_event_sources.json           what the server said of its publishers

Every part may be missing, not all of them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from cachemodel.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Export:
    """One OTLP export: when it came in (Unix ns) and its protobuf body."""

    time_ns: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Scrape:
    """One /metrics text."""

    time_ns: int
    text: str


@dataclass(frozen=True, slots=True)
class KvMessage:
    """One message of the KV-event publisher."""

    time_ns: int
    topic: bytes
    seq: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the request log, written when the response was done."""

    time_ns: int
    line: bytes


Item = Export | Scrape | KvMessage | LogLine


@dataclass(frozen=True)
class Capture:
    """All of a recording, each part in recorded order. Names are what the server said of itself, empty if nowhere."""

    folder: Path
    exports: list[Export]
    scrapes: list[Scrape]
    kv: list[KvMessage]
    log: list[LogLine]
    service_name: str
    model: str
    version: str
    kv_sources: dict[str, Any] | None

    @property
    def items(self) -> list[Item]:
        """Everything, in the order it happened."""
        return sorted([*self.exports, *self.scrapes, *self.kv, *self.log], key=lambda item: item.time_ns)

    @classmethod
    def read(cls, folder: Path) -> Capture:
        """Read a folder; raises UserError saying which file is wrong."""
        if not folder.is_dir():
            raise UserError(
                f"{folder} is no folder; a capture is one, with requests.jsonl, otlp/, metrics/ in it"
            )
        exports = list(_items(folder / "otlp/index.jsonl", lambda d: _export(folder, d)))
        scrapes = list(_items(folder / "scrapes.jsonl", lambda d: _scrape(folder, d)))
        kv = list(_items(folder / "kv_events.jsonl", _kv_message))
        log = sorted(_log(folder / "requests.jsonl"), key=lambda line: line.time_ns)
        if not (exports or scrapes or kv or log):
            raise UserError(
                f"{folder} holds no capture: none of otlp/, scrapes.jsonl, kv_events.jsonl, requests.jsonl"
            )
        sources = folder / "kv_event_sources.json"
        return cls(
            folder=folder,
            exports=exports,
            scrapes=scrapes,
            kv=kv,
            log=log,
            service_name=_service_name(exports),
            model=_first(r'model_name="([^"]+)"', scrapes[0].text if scrapes else ""),
            version=_first(
                r'"system_fingerprint": ?"vllm-([0-9.]+)', b"\n".join(x.line for x in log).decode()
            ),
            kv_sources=json.loads(sources.read_text()) if sources.exists() else None,
        )


def _items(file: Path, make: Callable[[dict[str, Any]], T]) -> Iterator[T]:
    if not file.exists():
        return
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        try:
            yield make(json.loads(line))
        except FileNotFoundError as error:
            raise UserError(f"{file}, line {number}: {error.filename} is missing") from None
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise UserError(f"{file}, line {number} cannot be read: {error!r}") from None


def _export(folder: Path, entry: dict[str, Any]) -> Export:
    return Export(int(entry["recv_unix_ns"]), (folder / "otlp" / entry["file"]).read_bytes())


def _scrape(folder: Path, entry: dict[str, Any]) -> Scrape:
    return Scrape(int(entry["end_unix_ns"]), (folder / entry["file"]).read_text())


def _kv_message(entry: dict[str, Any]) -> KvMessage:
    topic, seq, payload = (base64.b64decode(frame) for frame in entry["frames_b64"])
    return KvMessage(int(entry["recv_unix_ns"]), topic, int.from_bytes(seq, "big"), payload)


def _log(file: Path) -> Iterator[LogLine]:
    if not file.exists():
        return
    for number, line in enumerate(file.read_bytes().splitlines(), start=1):
        try:
            entry = json.loads(line)
            yield LogLine(int(entry.get("done_unix_ns") or entry["sent_unix_ns"]), line)
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{file}, line {number} cannot be read: {error!r}") from None


def _service_name(exports: list[Export]) -> str:
    for export in exports:
        for resource_spans in ExportTraceServiceRequest.FromString(export.body).resource_spans:
            for attribute in resource_spans.resource.attributes:
                if attribute.key == "service.name":
                    return str(attribute.value.string_value)
    return ""


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else ""
