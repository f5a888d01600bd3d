"""The ring and its thread: nothing lost unsaid, nothing twice, bounded, through forks, late providers and exits."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import SpanKind

from probes.grpc import (
    Recorder,
    aio_client_interceptors,
    aio_server_interceptor,
    client_interceptor,
    server_interceptor,
)
from probes.grpc.call import Call, Method, Parent
from probes.grpc.spans import code_name
from tests.probes.grpc.conversation import AioServer, Ask, Service, method, sync_server

SERVER = Method("a.B/C", SpanKind.SERVER)
CALLS = 10_000


def end_some(recorder: Recorder, count: int) -> None:
    for _ in range(count):
        call = recorder.begin(SERVER, None)
        assert isinstance(call, Call)
        recorder.end(call, None)


def test_ten_thousand_sync_calls_are_ten_thousand_spans(seen: Any) -> None:
    with (
        sync_server(Service(), server_interceptor(seen.recorder)) as where,
        grpc.insecure_channel(where) as plain,
    ):
        channel = grpc.intercept_channel(plain, client_interceptor(seen.recorder))
        ask = method(channel, "UnaryUnary")
        with ThreadPoolExecutor(4) as threads:
            answers = list(threads.map(lambda _: ask(Ask(), timeout=60), range(CALLS)))
    assert answers == ["answer"] * CALLS
    paired(seen)


def test_ten_thousand_aio_calls_are_ten_thousand_spans(seen: Any) -> None:
    async def run() -> None:
        server = AioServer(Service(), aio_server_interceptor(seen.recorder))
        ours = aio_client_interceptors(seen.recorder)
        async with server as where, grpc.aio.insecure_channel(where, interceptors=ours) as channel:
            ask = method(channel, "UnaryUnary")
            for _ in range(CALLS // 100):
                answers = await asyncio.gather(*(ask(Ask(), timeout=60) for _ in range(100)))
                assert answers == ["answer"] * 100

    asyncio.run(run())
    paired(seen)


def paired(seen: Any) -> None:
    servers, clients = seen.spans(SpanKind.SERVER, CALLS, 60), seen.spans(SpanKind.CLIENT, CALLS, 60)
    ids = {span.context.span_id for span in clients}
    assert len(ids) == CALLS
    assert {span.parent.span_id for span in servers} == ids
    assert len({span.context.span_id for span in servers} | ids) == 2 * CALLS
    assert seen.recorder.lost == {}


@given(st.integers(1, 50), st.integers(0, 120))
def test_a_full_ring_drops_the_newest_and_counts_them(capacity: int, calls: int) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    recorder = Recorder(provider, capacity=capacity, interval_s=3600)
    with recorder._telling:  # the thread is held up, as by a slow processor
        begun = [recorder.begin(SERVER, None) for _ in range(calls)]
        for call in begun:
            recorder.end(call, None)
        assert recorder.waiting == min(calls, capacity)
    assert recorder.flush()
    spans = exporter.get_finished_spans()
    assert [span.context.span_id for span in spans] == [call.span_id for call in begun[:capacity]]
    assert recorder.lost == ({"ring_full": calls - capacity} if calls > capacity else {})
    recorder.close()


def test_threads_at_once_lose_and_double_nothing(seen: Any) -> None:
    """Writers, the thread and two that flush."""
    seen.recorder.close()
    recorder = seen.recorder = Recorder(seen.provider, interval_s=0.001)
    threads = [threading.Thread(target=end_some, args=(recorder, 2000)) for _ in range(8)]
    threads += [threading.Thread(target=lambda: [recorder.flush() for _ in range(20)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spans = seen.spans(SpanKind.SERVER, 16_000, 60)
    assert len({span.context.span_id for span in spans}) == 16_000
    assert recorder.lost == {}


def test_half_a_ring_calls_the_thread(seen: Any) -> None:
    recorder = Recorder(seen.provider, capacity=100, interval_s=3600)
    end_some(recorder, 51)
    until = time.monotonic() + 10
    while recorder.waiting and time.monotonic() < until:
        time.sleep(0.01)
    assert recorder.waiting == 0
    recorder.close()


def test_what_is_lost_is_a_metric(make_seen: Any) -> None:
    reader = InMemoryMetricReader()
    recorder = Recorder(make_seen().provider, MeterProvider([reader]), capacity=1, interval_s=3600)
    with recorder._telling:
        end_some(recorder, 4)
    data = reader.get_metrics_data()
    [scope] = data.resource_metrics[0].scope_metrics
    [metric] = scope.metrics
    [point] = metric.data.data_points
    assert (scope.scope.name, metric.name, metric.unit) == ("hitmap.probes", "hitmap.probe.lost", "{point}")
    assert (point.value, dict(point.attributes)) == (3, {"reason": "ring_full"})
    recorder.close()


def test_after_close_calls_go_on_and_are_counted(seen: Any) -> None:
    with (
        sync_server(Service(), server_interceptor(seen.recorder)) as where,
        grpc.insecure_channel(where) as channel,
    ):
        ask = method(channel, "UnaryUnary")
        ask(Ask(), timeout=10)
        seen.spans(SpanKind.SERVER, 1)
        seen.recorder.close()
        seen.recorder.close()
        assert ask(Ask(), timeout=10) == "answer"
    assert seen.recorder.lost == {"closed": 1}
    assert len(seen.exporter.get_finished_spans()) == 1


def test_a_call_that_ends_twice_is_told_once(seen: Any) -> None:
    call = seen.recorder.begin(SERVER, None)
    seen.recorder.end(call, grpc.StatusCode.ABORTED)
    seen.recorder.end(call, None)
    [span] = seen.spans(SpanKind.SERVER, 1)
    assert span.attributes["rpc.response.status_code"] == "ABORTED"


class Broken(SpanProcessor):
    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("a processor of the user's")


def test_a_processor_that_raises_is_counted(seen: Any) -> None:
    provider = TracerProvider()
    provider.add_span_processor(Broken())
    recorder = Recorder(provider, interval_s=3600)
    end_some(recorder, 3)
    assert recorder.flush()
    assert recorder.lost == {"sdk": 3}
    recorder.close()


class Begins(SpanProcessor):
    """Wants to see spans begin, as one that adds attributes does."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        span.set_attribute("added", True)


@pytest.mark.parametrize("parent", [None, Parent(5, 6, 1, "v=1", True)])
@pytest.mark.parametrize("code", [None, grpc.StatusCode.INTERNAL, grpc.StatusCode.NOT_FOUND])
def test_the_short_way_to_a_span_gives_what_the_sdk_gives(code: Any, parent: Parent | None) -> None:
    """The SDK makes one that begins, changes and ends; we hand it one that has ended where that is all it wants."""
    told = []
    for processors in ((), (Begins(),)):
        exporter, provider = InMemorySpanExporter(), TracerProvider()
        for processor in (*processors, SimpleSpanProcessor(exporter)):
            provider.add_span_processor(processor)
        recorder = Recorder(provider, interval_s=3600)
        recorder.begin(SERVER, None)
        call = Call(SERVER, 0x77 if parent is None else parent.trace_id, 0x88, 1, parent)
        call.start_ns, call.key, call.hit = 10, "k", False
        recorder.end(call, code)
        assert recorder.flush()
        [span] = exporter.get_finished_spans()
        recorder.close()
        told.append(span)
    quick, whole = told
    assert dict(whole.attributes) == dict(quick.attributes) | {"added": True}
    for what in ("name", "kind", "parent", "links", "events", "instrumentation_scope"):
        assert getattr(quick, what) == getattr(whole, what), what
    assert quick.status.status_code is whole.status.status_code
    assert quick.resource.attributes == whole.resource.attributes
    assert (quick.context.trace_id, quick.context.span_id) == (whole.context.trace_id, whole.context.span_id)
    assert quick.context.trace_state == whole.context.trace_state
    assert quick.context.trace_flags == whole.context.trace_flags
    assert quick.to_json()


class Picky(Sampler):
    def should_sample(self, *args: Any, **kwargs: Any) -> SamplingResult:
        return SamplingResult(Decision.DROP)

    def get_description(self) -> str:
        return "Picky"


def test_a_sampler_of_the_users_own_decides_at_the_end() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler=Picky())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    recorder = Recorder(provider, interval_s=3600)
    end_some(recorder, 3)
    assert recorder.flush()
    assert exporter.get_finished_spans() == ()
    assert recorder.lost == {}
    recorder.close()


def test_other_tracers_of_the_provider_keep_their_ids_and_sampling(seen: Any) -> None:
    end_some(seen.recorder, 2)
    seen.spans(SpanKind.SERVER, 2)
    for scope in ({}, {"attributes": {"hitmap.sensor": "grpc"}}):
        tracer = seen.provider.get_tracer("hitmap.probes", **scope)
        ids = {tracer.start_span("x").get_span_context().span_id for _ in range(5)}
        assert len(ids) == 5


def test_a_recorder_that_nobody_has_ends_its_thread(seen: Any) -> None:
    recorder = Recorder(seen.provider, interval_s=0.01)
    end_some(recorder, 1)
    thread = recorder._thread
    assert thread is not None
    seen.spans(SpanKind.SERVER, 1)
    import atexit

    atexit.unregister(recorder.close)
    del recorder
    gc.collect()
    thread.join(5)
    assert not thread.is_alive()


@pytest.mark.parametrize("bad", [{"sample": 1.5}, {"sample": -1}, {"capacity": 0}, {"interval_s": 0}])
def test_bad_settings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Recorder(**bad)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (None, "OK"),
        (0, "OK"),
        (5, "NOT_FOUND"),
        (grpc.StatusCode.ABORTED, "ABORTED"),
        (grpc.StatusCode.ABORTED.value, "ABORTED"),
        (99, "UNKNOWN"),
        ("odd", "UNKNOWN"),
    ],
)
def test_codes(code: object, name: str) -> None:
    assert code_name(code) == name


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environment,
        check=False,
    )


BEGIN = """
    import os, sys, time
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, BatchSpanProcessor
    from opentelemetry.trace import SpanKind
    from probes.grpc import Recorder, shared
    from probes.grpc.call import Method
    M = Method("a.B/C", SpanKind.SERVER)

    class Print(SpanExporter):
        def export(self, spans):
            for span in spans:
                os.write(1, f"{os.getpid()} {span.context.span_id:x}\\n".encode())

    def calls(recorder, count):
        for _ in range(count):
            recorder.end(recorder.begin(M, None), None)
"""


def test_a_fork_tells_what_waited_once_and_goes_on(seen: Any) -> None:
    """The child forks while 100 calls wait and the ring's lock is held by the thread of the parent."""
    done = run(
        BEGIN
        + """
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Print()))
    recorder = Recorder(provider, interval_s=0.05)
    calls(recorder, 100)
    recorder.lose("odd")
    recorder._telling.acquire()   # as the thread has it in the middle of a span
    child = os.fork()
    if not child:
        assert recorder.lost == {}, recorder.lost
        calls(recorder, 10)
        time.sleep(0.5)           # its own thread tells them
        assert recorder.waiting == 0
        calls(recorder, 1)
        assert recorder.flush(5)
        os._exit(0)
    recorder._telling.release()
    assert os.waitpid(child, 0)[1] == 0
    calls(recorder, 5)
    recorder.close()
    """
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert sorted(count for count in (sum(pid == p for p, _ in rows) for pid in {p for p, _ in rows})) == [
        11,
        105,
    ]
    assert len({span for _, span in rows}) == 116


@pytest.mark.parametrize("when", ["before", "after"])
def test_at_exit_all_is_told(when: str) -> None:
    """With the global provider, set before the first recorder is made or after, through its batch processor."""
    provide = """
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Print()))
    trace.set_tracer_provider(provider)"""
    made = """
    recorder = shared()"""
    body = provide + made if when == "before" else made + provide
    done = run(BEGIN + body.rstrip() + "\n    calls(recorder, 50)\n")
    assert done.returncode == 0, done.stderr
    assert len(set(done.stdout.split("\n")) - {""}) == 50
    assert done.stderr == ""


def test_without_an_sdk_calls_are_counted_and_said_once() -> None:
    done = run(
        BEGIN
        + """
    recorder = shared()
    calls(recorder, 50)
    recorder.flush()
    calls(recorder, 50)
    recorder.flush()
    print(recorder.lost)
    """
    )
    assert done.stdout.strip() == "{'no_provider': 100}"
    assert done.stderr.count("no_provider") == 1


def test_a_provider_that_comes_late_gets_what_comes_after() -> None:
    done = run(
        BEGIN
        + """
    recorder = Recorder(interval_s=3600)
    calls(recorder, 3)
    recorder.flush()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Print()))
    trace.set_tracer_provider(provider)
    calls(recorder, 4)
    recorder.flush()
    assert recorder.lost == {"no_provider": 3}
    """
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4


def test_a_hundred_thousand_waiting_calls_fit_in_the_memory_that_is_said(seen: Any) -> None:
    """A few hundred bytes each."""
    import tracemalloc

    recorder = Recorder(seen.provider, capacity=100_000, interval_s=3600)
    tracemalloc.start()
    try:
        end_some(recorder, 20_000)
        used = tracemalloc.get_traced_memory()[0] / 20_000
    finally:
        tracemalloc.stop()
    assert used < 800, used
    assert recorder.flush(60)
    recorder.close()


def test_time_that_runs_out_in_flush(seen: Any) -> None:
    recorder = Recorder(seen.provider, interval_s=3600)
    end_some(recorder, 100)
    assert not recorder.flush(0)
    assert recorder.flush(30)
    assert len(seen.spans(SpanKind.SERVER, 100)) == 100
    recorder.close()


def test_the_trace_api_sees_a_span_like_any(seen: Any) -> None:
    call = seen.recorder.begin(SERVER, None)
    with trace.use_span(call, end_on_exit=False):
        assert trace.get_current_span() is call
        assert trace.get_current_span().get_span_context().span_id == call.span_id
    assert repr(call) == f"Call({call.traceparent()})"
    assert time.monotonic_ns() >= call.start_ns
