"""Spans with what their thread counted, and without where that would be somebody else's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode, Tracer

from cachemodel.observed import SPAN_COUNTERS
from probes.kernel import span_processor
from probes.kernel.span_processor import ThreadSpans
from tests.probes.kernel.worker import read

PAGES = 1000
MINOR = "hitmap.thread.page_faults.minor"


class Traced:
    """A tracer with the processor, and what it exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.counting = ThreadSpans(SimpleSpanProcessor(self.exporter))
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(self.counting)
        self.tracer: Tracer = provider.get_tracer("test")

    def told(self) -> dict[str, Mapping[str, object]]:
        return {span.name: dict(span.attributes or {}) for span in self.exporter.get_finished_spans()}


@pytest.fixture
def traced() -> Traced:
    return Traced()


def test_a_span_has_the_faults_of_what_ran_inside_it(traced: Traced) -> None:
    with traced.tracer.start_as_current_span("outer"):
        with traced.tracer.start_as_current_span("quiet"):
            pass
        with traced.tracer.start_as_current_span("faults"):
            read(PAGES)
    told = traced.told()
    assert PAGES <= told["faults"][MINOR] < PAGES + 200
    assert told["quiet"][MINOR] < PAGES / 4
    assert PAGES <= told["outer"][MINOR] < PAGES + 400
    assert set(told["faults"]) <= {counter.name for counter in SPAN_COUNTERS}


def test_in_an_event_loop_nothing_is_said(traced: Traced) -> None:
    async def serve() -> None:
        with traced.tracer.start_as_current_span("task"):
            await asyncio.sleep(0)

    asyncio.run(serve())
    assert traced.told() == {"task": {}}
    assert traced.counting.skipped == {"event loop": 1, "another thread": 0, "too many open": 0}


def test_a_span_that_ends_on_another_thread_has_nothing(traced: Traced) -> None:
    span = traced.tracer.start_span("handed on")
    other = threading.Thread(target=span.end)
    other.start()
    other.join()
    assert traced.told() == {"handed on": {}}
    assert traced.counting.skipped["another thread"] == 1


def test_all_else_of_a_span_is_as_it_was(traced: Traced) -> None:
    with traced.tracer.start_as_current_span("one", attributes={"a": 1}) as span:
        span.add_event("seen", {"b": 2})
        span.set_status(Status(StatusCode.ERROR, "no"))
    (told,) = traced.exporter.get_finished_spans()
    assert told.attributes
    assert (told.name, told.attributes["a"], told.status.description) == ("one", 1, "no")
    assert [(event.name, dict(event.attributes or {})) for event in told.events] == [("seen", {"b": 2})]
    assert told.end_time
    assert told.start_time
    assert told.context == span.get_span_context()


def test_spans_that_never_end_do_not_fill_the_memory(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_processor, "MOST_OPEN", 100)
    for _ in range(1001):
        traced.tracer.start_span("lost")
    assert traced.counting.skipped["too many open"] == 1000
    with traced.tracer.start_as_current_span("last"):
        pass
    assert MINOR in traced.told()["last"]
