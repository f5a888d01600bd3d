"""A recording of a live server, read from its folder.

    otlp/index.jsonl, otlp/*.bin    OTLP export bodies as received
    scrapes.jsonl, metrics/*.txt    /metrics texts
    kv_events.jsonl                 KV-event messages, three ZeroMQ frames each
    requests.jsonl                  the client's request log, with usage
    kv_event_sources.json           what the server said of its publisher
    slots_*.json                    llama.cpp: /slots beside the /metrics text of the same name
    props.json                      llama.cpp: /props
    server.log, server_log.json     llama.cpp: the server's own log, and when the process started (Unix ns)
    model/ or ../model/             the model's tokenizer and chat template

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

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from cachemodel.errors import UserError
from cachemodel.kv_events import decode_batch

T = TypeVar("T")

_UPTIME = re.compile(rb"(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) ")


@dataclass(frozen=True, slots=True)
class Export:
    """One OTLP export: when it came in (Unix ns) and its protobuf body."""

    time_ns: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Scrape:
    """One /metrics text. slots: what /slots gave at that moment, None where it was not asked."""

    time_ns: int
    text: str
    slots: Any = None


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


@dataclass(frozen=True, slots=True)
class ServerLogLine:
    """One line of the server's own log, written when it says it was."""

    time_ns: int
    line: bytes


Item = Export | Scrape | KvMessage | LogLine | ServerLogLine


@dataclass(frozen=True)
class Capture:
    """All of a recording, each part in recorded order. Names are what the server said of itself, empty if nowhere."""

    folder: Path
    exports: list[Export]
    scrapes: list[Scrape]
    kv: list[KvMessage]
    log: list[LogLine]
    server_log: list[ServerLogLine]
    service_name: str
    model: str
    version: str
    kv_sources: dict[str, Any] | None
    props: dict[str, Any] | None

    @property
    def tokenizer(self) -> Path | None:
        """Folder of the served model's tokenizer: in the recording or, where several are of one model, beside it."""
        places = (self.folder / "model", self.folder.parent / "model")
        return next((place for place in places if (place / "tokenizer.json").is_file()), None)

    @property
    def items(self) -> list[Item]:
        """Everything, in the order it happened."""
        return sorted(
            [*self.exports, *self.scrapes, *self.kv, *self.log, *self.server_log],
            key=lambda item: item.time_ns,
        )

    @classmethod
    def read(cls, folder: Path) -> Capture:
        """Read a folder; raises UserError saying which file is wrong."""
        if not folder.is_dir():
            raise UserError(
                f"{folder} is no folder; a capture is one, with requests.jsonl, otlp/, metrics/ in it"
            )
        exports = list(_items(folder / "otlp/index.jsonl", lambda entry, _: _export(folder, entry)))
        scrapes = list(_items(folder / "scrapes.jsonl", lambda entry, _: _scrape(folder, entry)))
        kv = list(_items(folder / "kv_events.jsonl", lambda entry, _: _kv_message(entry)))
        log = sorted(_items(folder / "requests.jsonl", _log_line), key=lambda line: line.time_ns)
        props = next(_items(folder / "props.json", lambda entry, _: entry), None)
        if not (exports or scrapes or kv or log):
            raise UserError(
                f"{folder} holds no capture: none of otlp/, scrapes.jsonl, kv_events.jsonl, requests.jsonl"
            )
        return cls(
            folder=folder,
            exports=exports,
            scrapes=scrapes,
            kv=kv,
            log=log,
            server_log=list(_server_log(folder)),
            service_name=_service_name(exports),
            model=_first(r'model_name="([^"]+)"', scrapes[0].text if scrapes else "")
            or str((props or {}).get("model_alias", "")),
            version=next(
                filter(
                    None, (_first(r'"system_fingerprint": ?"vllm-([0-9.]+)', x.line.decode()) for x in log)
                ),
                "",
            ),
            kv_sources=next(_items(folder / "kv_event_sources.json", lambda entry, _: entry), None),
            props=props,
        )


def _items(file: Path, make: Callable[[dict[str, Any], bytes], T]) -> Iterator[T]:
    """What `make` makes of each JSON object in the file and its line; nothing where there is no file."""
    if not file.is_file():
        return
    for number, line in enumerate(file.read_bytes().splitlines(), start=1):
        try:
            entry = json.loads(line.decode())
            if not isinstance(entry, dict):
                raise ValueError("it is no JSON object")
            yield make(entry, line)
        except OSError as error:
            raise UserError(
                f"{file}, line {number}: {error.filename} cannot be read: {error.strerror}"
            ) from None
        except (ValueError, KeyError, TypeError, DecodeError) as error:
            raise UserError(f"{file}, line {number} cannot be read: {error!r}") from None


def _export(folder: Path, entry: dict[str, Any]) -> Export:
    body = (folder / "otlp" / entry["file"]).read_bytes()
    ExportTraceServiceRequest.FromString(body)  # a broken one is refused here, not in the middle of the play
    return Export(int(entry["recv_unix_ns"]), body)


def _scrape(folder: Path, entry: dict[str, Any]) -> Scrape:
    file = folder / entry["file"]
    slots = folder / f"slots_{file.stem}.json"
    told = json.loads(slots.read_text()) if slots.is_file() else None
    return Scrape(int(entry["end_unix_ns"]), file.read_text(), told)


def _kv_message(entry: dict[str, Any]) -> KvMessage:
    topic, seq, payload = (base64.b64decode(frame) for frame in entry["frames_b64"])
    if len(seq) != 8:
        raise ValueError(f"its sequence number has {len(seq)} bytes, not 8")
    decode_batch(payload)
    return KvMessage(int(entry["recv_unix_ns"]), topic, int.from_bytes(seq, "big"), payload)


def _log_line(entry: dict[str, Any], line: bytes) -> LogLine:
    return LogLine(int(entry.get("done_unix_ns") or entry["sent_unix_ns"]), line)


def _server_log(folder: Path) -> Iterator[ServerLogLine]:
    """The lines of a log that tells the time since the process started; a line that tells none has that of the last."""
    for start_ns in _items(folder / "server_log.json", lambda entry, _: int(entry["start_unix_ns"])):
        time_ns = start_ns
        for line in (folder / "server.log").read_bytes().splitlines():
            if told := _UPTIME.match(line):
                minutes, seconds, micros = int(told[1]), int(told[2]), int(told[3] + told[4])
                time_ns = start_ns + (minutes * 60 + seconds) * 10**9 + micros * 1000
            yield ServerLogLine(time_ns, line)


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
