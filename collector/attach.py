"""Attaches to live servers: finds out what one is, then runs the sources that its telemetry can be had from."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from cachemodel.content import ContentHasher
from cachemodel.errors import UserError
from collector.aliases import INSTANCE, SERVICE, alias
from collector.chains.memory import ChainMemory
from collector.chains.open import MEMORY_BYTES, open_chains
from collector.chains.settings import DEFAULT_CHAINS, ChainSettings
from collector.chains.source import ChainTail
from collector.detection import Detection, Probe, Visit, with_service
from collector.dialects.detectors import KNOWN, recognise
from collector.kv.endpoints import kv_endpoints, not_followed, within_bounds
from collector.kv.subscriber import KvEndpoint, KvSubscriber
from collector.log_tail import LogTail, ServerLogTail
from collector.otlp.check import DEFAULT_WINDOW, Window
from collector.resume import Stored
from collector.scrape import Scraper
from collector.sink import Backpressure, Entry, Sink
from collector.source import WAITING, Source, SourceStatus, now_us


def detect(url: str, *, api_key: str = "", otlp: str = "127.0.0.1:4317", service: str = "") -> Detection:
    """Find out what answers at `url`. For the flags that are shown, otlp: where its spans would be received; service:
    what they are to call it, empty to leave that open.

    Raises UserError where nothing answers, a key is wanted or the answer is no server that hitmap knows.
    """
    probe = Probe(url, api_key)
    detection = recognise(probe, otlp)
    for address, status in probe.locked.items():
        if detection is None or address == detection.metrics_url:
            raise UserError(f"{address} wants a key (HTTP {status}): pass --api-key")
    if detection is not None:
        return within_bounds(with_service(detection, service) if service else detection)
    raise UserError(
        f"{probe.url} answers, but not as a server hitmap knows ({KNOWN}): give the address its API is at, such as "
        "http://127.0.0.1:8000"
    )


@dataclass(frozen=True, slots=True)
class AttachOptions:
    """How one server is watched.

    server: the name its rows carry. services: what its spans call it (`service.name`), empty for what the
    server says. kv_events, replay: addresses as
    in the server's own configuration, empty for what the server says; kv_bind: whether the collector binds
    kv_events, None for vLLM's rule; kv_ranks: data-parallel ranks, on consecutive ports. log: JSONL request log.
    server_log: the server's own log. drain: also read what is gone once it was read. window: which times are kept.
    chains: what is made of the prompts in `log`.
    """

    server: str
    services: tuple[str, ...] = ()
    kv_events: str = ""
    replay: str = ""
    kv_bind: bool | None = None
    kv_ranks: int = 1
    log: Path | None = None
    server_log: Path | None = None
    drain: bool = False
    label_fields: tuple[str, ...] = ()
    interval_s: float = 5.0
    api_key: str = ""
    window: Window = DEFAULT_WINDOW
    chains: ChainSettings = DEFAULT_CHAINS

    @property
    def service(self) -> str:
        """What its spans call it, or are to call it."""
        return self.services[0] if self.services else self.server


class Attachment:
    """The running sources of one server.

    stored: lets them take up what an earlier run left off. hasher: of the installation. snapshots: folder in which what
    a cache holds outlives the collector, None for nowhere. memory: of prompts, that of other servers beside it.
    """

    def __init__(
        self,
        detection: Detection,
        options: AttachOptions,
        sink: Sink,
        stored: Stored | None = None,
        *,
        hasher: ContentHasher,
        snapshots: Path | None = None,
        memory: ChainMemory | None = None,
    ) -> None:
        self.detection = detection
        self.options = options
        self._sink = sink
        self.sources: list[Source] = []
        visit = Visit(
            *(options.server, options.api_key, options.interval_s, sink, stored, options.window),
            hasher=hasher,
        )
        if detection.metrics_url:
            target = visit.target(detection.metrics_url)
            self.sources.append(Scraper(target, detection.resolve, sink, visit.samples))
        self.sources += [door.open(visit) for door in detection.doors if options.drain or not door.drains]
        for endpoint in kv_endpoints(detection, options):
            positions = partial(stored.kv_positions, endpoint.server, endpoint.rank) if stored else dict
            snapshot = snapshots / _file_name(endpoint) if snapshots else None
            self.sources.append(KvSubscriber(endpoint, sink, positions, hasher=hasher, snapshot=snapshot))
        if options.log is not None:
            self.sources.append(
                LogTail(options.log, options.server, sink, options.label_fields, options.window)
            )
            chains = open_chains(
                options.log,
                options.server,
                sink,
                hasher,
                memory or ChainMemory(),
                detection=detection,
                settings=options.chains,
                known=stored.chains if stored else None,
                token=options.api_key,
                window=options.window,
            )
            self.sources += [chains] if chains else []
        if options.server_log is not None:
            if detection.log_reader is None:
                raise UserError(
                    f"{options.server}: the log of a {detection.kind} server is not understood: leave it out"
                )
            read_line = detection.log_reader(options.server)
            position = partial(stored.log_position, options.server) if stored else lambda: None
            self.sources.append(
                ServerLogTail(options.server_log, options.server, read_line, sink, position, options.window)
            )

    @property
    def memory_bytes(self) -> int:
        """What its chains take at most."""
        return MEMORY_BYTES if any(isinstance(source, ChainTail) for source in self.sources) else 0

    def start(self) -> None:
        """Start every source and register the server and its other names; nothing stays running where that fails."""
        try:
            for source in self.sources:
                source.start()
            self._sink.put(
                [*_aliases(self.detection, self.options), _server(self.detection, self.options.server)]
            )
        except Backpressure as full:
            self.stop()
            raise UserError(f"{self.options.server}: {full}") from None
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for source in self.sources:
            source.stop()

    def status(self) -> list[SourceStatus]:
        """How each source fares, and what the server tells of that is not followed."""
        found = [source.status() for source in self.sources]
        if left := not_followed(self.detection, self.options):
            found.append(SourceStatus(f"kv events {self.options.server}", WAITING, left, {}))
        return found

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _aliases(detection: Detection, options: AttachOptions) -> list[Entry]:
    """The server's names on its spans: those that a person gave, or its own, and always its own instance."""
    told = [(SERVICE, service) for service in options.services or (detection.service,)]
    told.append((INSTANCE, detection.instance))
    return [alias(kind, name, options.server) for kind, name in told if name]


def _file_name(endpoint: KvEndpoint) -> str:
    """Of the snapshot of one publisher: servers may have any name."""
    said = f"{endpoint.server}\0{endpoint.rank}\0{endpoint.events}"
    return f"{hashlib.blake2b(said.encode(), digest_size=8).hexdigest()}.snapshot"


def _server(detection: Detection, name: str) -> Entry:
    """What was found out of a server, for those who judge its telemetry."""
    row = {
        "time": now_us() / 1e6,
        "server": name,
        "kind": detection.kind,
        "version": detection.version,
        "url": detection.url,
        "models": detection.models,
        "facts": dict(detection.facts),
        "signals": [asdict(capability) for capability in detection.capabilities],
        "notes": detection.notes,
    }
    return Entry("servers", msgspec.json.encode(row) + b"\n", 1)
