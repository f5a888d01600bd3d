"""What a thread counted while a span was open, as attributes of the span: for servers that trace themselves.

    provider.add_span_processor(ThreadSpans(BatchSpanProcessor(exporter)))

A span has the counts of what ran inside it, spans below it included. It has none where it ended on another thread than
it began on, or began in an event loop: there other tasks run meanwhile, and their faults would be counted as its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import NamedTuple

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from probes.kernel.thread import Counts, ThreadCounters, named

MOST_OPEN = 100_000
"""Spans that are open at a time; of more, the oldest have no counts. A span that never ends stays among them."""


class _Mark(NamedTuple):
    thread: int
    counts: Counts
    began_ns: int


class ThreadSpans(SpanProcessor):
    """Hands spans on to `then` with their counts: the SDK lets no attribute be set any more when a span ends.

    skipped: spans without counts, by why: `event loop`, `another thread`, `too many open`.
    """

    def __init__(self, then: SpanProcessor) -> None:
        self.skipped = {"event loop": 0, "another thread": 0, "too many open": 0}
        self._then, self._counters = then, ThreadCounters()
        self._open: dict[int, _Mark] = {}

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Read the thread's counters."""
        self._then.on_start(span, parent_context)
        if _in_event_loop():
            self.skipped["event loop"] += 1
            return
        if len(self._open) >= MOST_OPEN:
            self._open.clear()
            self.skipped["too many open"] += MOST_OPEN
        self._open[_id(span)] = _Mark(threading.get_ident(), self._counters.read(), time.monotonic_ns())

    def on_end(self, span: ReadableSpan) -> None:
        """Read them again; on the thread that ends the span."""
        mark = self._open.pop(_id(span), None)
        if mark is not None and mark.thread != threading.get_ident():
            self.skipped["another thread"] += 1
            mark = None
        self._then.on_end(span if mark is None else self._told(span, mark))

    def shutdown(self) -> None:
        """Of what comes after it."""
        self._then.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Of what comes after it."""
        return self._then.force_flush(timeout_millis)

    def _told(self, span: ReadableSpan, mark: _Mark) -> ReadableSpan:
        spent = self._counters.delta(mark.counts, self._counters.read())
        counts = named(spent, time.monotonic_ns() - mark.began_ns)
        return ReadableSpan(
            span.name,
            span.context,
            span.parent,
            span.resource,
            {**(span.attributes or {}), **dict(counts)},
            span.events,
            span.links,
            span.kind,
            status=span.status,
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
        )


def _id(span: ReadableSpan) -> int:
    return span.context.span_id if span.context else 0


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
