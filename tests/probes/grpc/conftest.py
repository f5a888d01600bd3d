"""A stock OpenTelemetry SDK that keeps its spans, and a recorder in front of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from probes.grpc import Recorder


class Seen:
    """What the SDK got. `spans(kind, n)` waits until there are n of that kind, and a moment more for one too many."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.recorder = Recorder(self.provider, interval_s=0.01)

    def spans(self, kind: SpanKind, count: int, within_s: float = 10.0) -> list[ReadableSpan]:
        until = time.monotonic() + within_s
        while len(self._of(kind)) < count and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.03)
        assert self.recorder.flush()
        found = self._of(kind)
        assert len(found) == count, [span.name for span in self.exporter.get_finished_spans()]
        return found

    def _of(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.kind is kind]


@pytest.fixture
def make_seen() -> Iterator[Callable[[], Seen]]:
    made: list[Seen] = []

    def make() -> Seen:
        made.append(Seen())
        return made[-1]

    yield make
    for seen in made:
        seen.recorder.close()
        seen.provider.shutdown()


@pytest.fixture
def seen(make_seen: Callable[[], Seen]) -> Seen:
    return make_seen()
