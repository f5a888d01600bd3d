"""How full the queues of a collector are, and how full its code promises that they become; for benchmarks.load."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.running import rss_of
from collector.attach import Attachment
from collector.kv import sockets as kv_sockets
from collector.kv import subscriber as kv_subscriber
from collector.kv.subscriber import KvSubscriber
from collector.otlp import grpc as otlp_grpc
from collector.otlp import http as otlp_http
from collector.otlp.grpc import OtlpGrpcReceiver
from collector.otlp.http import OtlpHttpReceiver
from collector.otlp.intake import Limits
from collector.pipeline import Pipeline
from collector.scrape import Scraper
from collector.sink import Entry, Sink
from collector.writer import Flush

EVERY_S = 0.1
BASE_BYTES = 160 << 20  # the process without traffic, libraries included
THREADS_OF_DOORS = 3  # HTTP's loop, gRPC's, and the one that cuts off who is slow
THREADS_OF_OURS = 4  # main, gauges, writer; and the clock of a visit while a server is attached
FILES_OF_ZEROMQ = 8  # its context
FILES_OF_A_SUBSCRIBER = 4  # two sockets, each with a mailbox and a connection
FILES_OF_A_KIND = 1  # its last segment
FILES_OF_A_WRITER = 4  # a segment that is read, the folder, the connection to the store and the one before it


class Measured:
    """A sink that remembers the fewest bytes a row took, by kind."""

    def __init__(self, sink: Sink) -> None:
        self.row_bytes: dict[str, float] = {}
        self._sink, self._lock = sink, threading.Lock()

    def put(self, entries: Sequence[Entry]) -> int:
        with self._lock:
            for kind, payload, rows in entries:
                self.row_bytes[kind] = min(len(payload) / rows, self.row_bytes.get(kind, len(payload) / rows))
        return self._sink.put(entries)


class Gauges:
    """The highest value of each queue, looked at ten times a second. attachments: filled as they start.

    published: the file with the messages of each publisher so far, the first of which belongs to the first attachment.
    """

    def __init__(
        self, pipeline: Pipeline, grpc: OtlpGrpcReceiver, http: OtlpHttpReceiver, published: Path
    ) -> None:
        self.highest: dict[str, float] = {}
        self.attachments: list[Attachment] = []
        self.grpc, self.http = grpc, http
        self._pipeline = pipeline
        self._published = np.memmap(published, np.uint64, "r")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: Exception | None = None
        self.files_at_rest = _open_files()

    def __enter__(self) -> Gauges:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stopping.set()
        self._thread.join()
        if self._error:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stopping.wait(EVERY_S):
                for name, value in self._now().items():
                    self.highest[name] = max(value, self.highest.get(name, 0))
        except Exception as error:  # marks from before it would look like a success
            self._error = error

    def _now(self) -> dict[str, float]:
        stats = self._pipeline.stats()
        return {
            "spool, bytes": stats.spool_bytes,
            **{f"rows waiting, {kind}": rows for kind, rows in stats.pending.items()},
            "HTTP bodies held, bytes": self.http.held_bytes,
            "HTTP requests under way": self.http.intake.under_way,
            "gRPC requests under way": self.grpc.intake.under_way,
            "KV messages waiting": self._kv_waiting(),
            "threads": threading.active_count(),
            "open files": _open_files(),
            "resident memory, bytes": rss_of(os.getpid()),
        }

    def kv_untaken(self) -> list[tuple[int, int]]:
        """Of each publisher: messages that its subscriber has not taken yet, and those that it has."""
        found = []
        for number, attachment in enumerate(list(self.attachments)):
            for source in attachment.sources:
                if isinstance(source, KvSubscriber):
                    taken = source.status().counts.get("messages", 0)
                    found.append((max(0, int(self._published[number]) - taken), taken))
        return found

    def _kv_waiting(self) -> int:
        """Messages on their way, of the publisher with the most. What was published before somebody listened is not on
        its way but asked for."""
        return max((untaken for untaken, taken in self.kv_untaken() if taken), default=0)


def bounds(gauges: Gauges, sink: Measured, spool_bytes: int, connections: int) -> dict[str, float]:
    """What the code promises of each mark. connections: OTLP senders, each of which may keep one open."""
    sources = [source for attachment in gauges.attachments for source in attachment.sources]
    scrapers = sum(isinstance(source, Scraper) for source in sources)
    subscribers = sum(isinstance(source, KvSubscriber) for source in sources)
    kinds = len(sink.row_bytes)
    return {
        "spool, bytes": spool_bytes,
        **{f"rows waiting, {kind}": spool_bytes // least for kind, least in sink.row_bytes.items()},
        "HTTP bodies held, bytes": (otlp_http.BODIES + 1) * Limits().message_bytes,
        "HTTP requests under way": otlp_http.WORKERS,
        "gRPC requests under way": otlp_grpc.WORKERS,
        "KV messages waiting": kv_sockets.QUEUE + kv_subscriber.BURST,
        # a scrape has a clock of its own that cuts it off
        "threads": THREADS_OF_OURS
        + THREADS_OF_DOORS
        + otlp_grpc.WORKERS
        + otlp_http.WORKERS
        + len(sources)
        + scrapers,
        # a scrape is a connection; gRPC's have no bound but the number of senders, and HTTP's no more than those
        "open files": gauges.files_at_rest
        + FILES_OF_A_WRITER
        + FILES_OF_A_KIND * kinds
        + FILES_OF_ZEROMQ
        + FILES_OF_A_SUBSCRIBER * subscribers
        + scrapers
        + connections,
        "resident memory, bytes": BASE_BYTES
        + gauges.grpc.memory_bytes
        + gauges.http.memory_bytes
        + 3 * Flush().max_bytes,
    }


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
