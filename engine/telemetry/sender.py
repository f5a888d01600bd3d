"""Sends the spans of ended requests over OTLP/gRPC, on a thread of its own. Nobody waits for it: what does not fit into
its queue is dropped and counted."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from cachemodel.errors import UserError
from engine.request import Request
from engine.telemetry.spans import Tracer

_log = logging.getLogger(__name__)
_MOST_WAITING = 1024  # requests, each with the token ids of its prompt
_BATCH = 256  # requests
_EVERY_S = 0.5
_EXPORT = 512  # spans


class SpanSender:
    """endpoint: host:port of the receiver, `https://` before it for TLS.

    counts, in traces: `sent`; `failed`: the receiver did not take them; `dropped`: more waited than is kept.
    """

    def __init__(self, endpoint: str, tracer: Tracer, *, timeout_s: float = 10.0) -> None:
        self.counts: Counter[str] = Counter(sent=0, failed=0, dropped=0)
        self._tracer = tracer
        self._exporter = OTLPSpanExporter(
            endpoint=endpoint, insecure=not endpoint.startswith("https://"), timeout=timeout_s
        )
        self._waiting: queue.Queue[Request | threading.Event] = queue.Queue(_MOST_WAITING)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def put(self, request: Request) -> None:
        """Take a request that ended; returns at once."""
        try:
            self._waiting.put_nowait(request)
        except queue.Full:
            self.counts["dropped"] += 1

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Send what waits at once, and wait for that. False where it takes too long."""
        done = threading.Event()
        try:
            self._waiting.put(done, timeout=timeout_s)
        except queue.Full:
            return False
        return done.wait(timeout_s)

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what waits, as far as that is possible in time."""
        try:
            self._waiting.put(self._end, timeout=timeout_s)
        except queue.Full:
            self.counts["dropped"] += self._waiting.qsize()
        self._thread.join(timeout_s)
        self._exporter.shutdown()

    def _run(self) -> None:
        mark: threading.Event | None = None
        while mark is not self._end:
            batch, mark = self._take()
            if batch:
                self._send(batch)
            if mark:
                mark.set()

    def _take(self) -> tuple[list[Request], threading.Event | None]:
        """What ended within half a second of the first, or before a mark; and the mark, to be set once it was sent."""
        batch: list[Request] = []
        deadline = None
        while len(batch) < _BATCH:
            try:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                request = self._waiting.get(timeout=left)
            except queue.Empty:
                break
            if isinstance(request, threading.Event):
                return batch, request
            batch.append(request)
            deadline = deadline or time.monotonic() + _EVERY_S
        return batch, None

    def _send(self, batch: list[Request]) -> None:
        """In exports of some hundred spans: receivers take no message above 4 MB."""
        spans: list[ReadableSpan] = []
        requests = 0
        for number, request in enumerate(batch, 1):
            spans += self._tracer.spans(request)
            requests += 1
            if len(spans) >= _EXPORT or number == len(batch):
                self.counts["sent" if self._export(spans) else "failed"] += requests
                spans, requests = [], 0

    def _export(self, spans: list[ReadableSpan]) -> bool:
        """Whether the receiver has them."""
        try:
            return not spans or self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception:  # no trace is worth the thread that sends the others
            _log.exception("spans could not be sent")
            return False


def check_endpoint(endpoint: str) -> None:
    """Raise UserError where it is none; that nobody is there is no error."""
    try:
        told = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        known = told.scheme in ("", "http", "https") and told.hostname and told.port and not told.path
    except ValueError:
        known = False
    if not known or not endpoint.isprintable() or " " in endpoint:
        raise UserError(f"spans cannot be sent to {endpoint}: give --otlp a HOST:PORT such as 127.0.0.1:4317")
