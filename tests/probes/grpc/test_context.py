"""Trace context: in and out, nesting, sampling, baggage, and what a handler sets on its span."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from probes.grpc import (
    Recorder,
    aio_client_interceptors,
    aio_server_interceptor,
    client_interceptor,
    server_interceptor,
)
from probes.grpc.call import Method, read_traceparent
from probes.grpc.sampling import rate_of
from tests.probes.grpc.conversation import KINDS, AioServer, Ask, Service, aio_call, call, sync_server

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
METHOD = Method("a.B/C", SpanKind.SERVER)


@pytest.mark.parametrize("kind", KINDS)
def test_one_trace_from_the_caller_to_the_handler(seen: Any, kind: str) -> None:
    """caller (SDK) > client (ours) > server (ours) > child (SDK), as the stock SDK exports them."""
    service, tracer = Service(), seen.provider.get_tracer("test")
    service.tracer = tracer
    with (
        sync_server(service, server_interceptor(seen.recorder)) as where,
        grpc.insecure_channel(where) as plain,
    ):
        channel = grpc.intercept_channel(plain, client_interceptor(seen.recorder))
        with tracer.start_as_current_span("caller"):
            assert call(channel, kind, Ask())[1] is grpc.StatusCode.OK
    nested(seen)


@pytest.mark.parametrize("style", ["generator", "write", "plain"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_trace_in_aio(seen: Any, kind: str, style: str) -> None:
    service, tracer = Service(), seen.provider.get_tracer("test")
    service.tracer = tracer

    async def run() -> None:
        server = AioServer(service, aio_server_interceptor(seen.recorder), style=style)
        ours = aio_client_interceptors(seen.recorder)
        async with server as where, grpc.aio.insecure_channel(where, interceptors=ours) as channel:
            with tracer.start_as_current_span("caller"):
                assert (await aio_call(channel, kind, Ask()))[1] is grpc.StatusCode.OK

    asyncio.run(run())
    nested(seen)


def nested(seen: Any) -> None:
    [server], [client] = seen.spans(SpanKind.SERVER, 1), seen.spans(SpanKind.CLIENT, 1)
    own = [span for span in seen.exporter.get_finished_spans() if span.kind is SpanKind.INTERNAL]
    [caller] = [span for span in own if span.name == "caller"]
    children = [span for span in own if span.name == "child"]
    assert children
    assert client.parent.span_id == caller.context.span_id
    assert server.parent.span_id == client.context.span_id
    assert {child.parent.span_id for child in children} == {server.context.span_id}
    assert len({span.context.trace_id for span in (*own, server, client)}) == 1
    # the times are the call's own, on the SDK's clock; two clocks are read one after the other: a millisecond
    for outer, inner in ((caller, client), (server, children[0])):
        assert (
            outer.start_time - 1_000_000 <= inner.start_time <= inner.end_time <= outer.end_time + 1_000_000
        )


def test_calls_beside_each_other_keep_their_own_children(seen: Any) -> None:
    """Tasks of one loop, which interleave."""
    service = Service()
    service.tracer = seen.provider.get_tracer("test")

    async def run() -> None:
        server = AioServer(service, aio_server_interceptor(seen.recorder))
        async with server as where, grpc.aio.insecure_channel(where) as channel:
            await asyncio.gather(*(aio_call(channel, "UnaryStream", Ask()) for _ in range(40)))

    asyncio.run(run())
    servers = {span.context.span_id: span for span in seen.spans(SpanKind.SERVER, 40)}
    children = [span for span in seen.exporter.get_finished_spans() if span.name == "child"]
    assert len(children) == 160
    for child in children:
        assert servers[child.parent.span_id].context.trace_id == child.context.trace_id


def test_nothing_stays_current_after_a_call(seen: Any) -> None:
    """In the server's threads, nor in the caller's."""
    left: list[context.Context] = []

    class Outer(grpc.ServerInterceptor):
        def intercept_service(self, continuation: Any, details: Any) -> Any:
            handler = continuation(details)

            def around(request: Any, ctx: Any) -> Any:
                try:
                    return handler.unary_unary(request, ctx)
                finally:
                    left.append(context.get_current())

            return grpc.unary_unary_rpc_method_handler(
                around, handler.request_deserializer, handler.response_serializer
            )

    with (
        sync_server(Service(), Outer(), server_interceptor(seen.recorder)) as where,
        grpc.insecure_channel(where) as plain,
    ):
        channel = grpc.intercept_channel(plain, client_interceptor(seen.recorder))
        for do in ("ok", "abort", "raise"):
            call(channel, "UnaryUnary", Ask(do))
    assert left == [{}, {}, {}]
    assert context.get_current() == {}


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        (f"00-{TRACE}-{PARENT}-01", True),
        (f"cc-{TRACE}-{PARENT}-01-what-comes-later", True),
        (f"00-{TRACE}-{PARENT}-01-more", False),
        (f"ff-{TRACE}-{PARENT}-01", False),
        (f"00-{'0' * 32}-{PARENT}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE.upper()}-{PARENT}-01", False),
        (f"00-{TRACE}-{PARENT}-1", False),
        ("", False),
        ("nonsense", False),
    ],
)
def test_a_traceparent_is_taken_or_ignored(seen: Any, header: str, taken: bool) -> None:
    with (
        sync_server(Service(), server_interceptor(seen.recorder)) as where,
        grpc.insecure_channel(where) as channel,
    ):
        metadata = (("traceparent", header), ("tracestate", "vendor=1,other=2"))
        assert call(channel, "UnaryUnary", Ask(), metadata=metadata)[1] is grpc.StatusCode.OK
    [span] = seen.spans(SpanKind.SERVER, 1)
    if taken:
        assert f"{span.context.trace_id:032x}" == TRACE
        assert f"{span.parent.span_id:016x}" == PARENT
        assert span.context.trace_state.to_header() == "vendor=1,other=2"
    else:
        assert span.parent is None
        assert f"{span.context.trace_id:032x}" != TRACE


@given(
    st.one_of(st.text(), st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", fullmatch=True))
)
def test_headers_are_read_as_the_sdk_reads_them(header: str) -> None:
    ours = read_traceparent(header)
    theirs = trace.get_current_span(
        TraceContextTextMapPropagator().extract({"traceparent": header}, context.Context())
    ).get_span_context()
    assert (ours is not None) == theirs.is_valid or header != header.strip()
    if ours is not None and theirs.is_valid:
        assert (ours.trace_id, ours.span_id) == (theirs.trace_id, theirs.span_id)
        assert bool(ours.flags & 1) == theirs.trace_flags.sampled


@pytest.mark.parametrize("kind", KINDS)
def test_a_parent_that_is_not_sampled_has_no_spans_below(seen: Any, kind: str) -> None:
    service = Service()
    service.tracer = seen.provider.get_tracer("test")
    with (
        sync_server(service, server_interceptor(seen.recorder)) as where,
        grpc.insecure_channel(where) as channel,
    ):
        header = (("traceparent", f"00-{TRACE}-{PARENT}-00"),)
        assert call(channel, kind, Ask(), metadata=header)[1] is grpc.StatusCode.OK
    assert seen.recorder.flush()
    assert seen.exporter.get_finished_spans() == ()
    assert seen.recorder.lost == {}


def test_a_call_that_is_not_sampled_tells_the_next_and_its_children(make_seen: Any) -> None:
    """Ratio 0: the client's decision holds for the server, though that would sample all."""
    quiet, loud = make_seen(), make_seen()
    quiet.recorder = Recorder(quiet.provider, sample=0.0)
    service = Service()
    service.tracer = loud.provider.get_tracer("test")
    with (
        sync_server(service, server_interceptor(loud.recorder)) as where,
        grpc.insecure_channel(where) as plain,
    ):
        channel = grpc.intercept_channel(plain, client_interceptor(quiet.recorder))
        assert call(channel, "UnaryUnary", Ask())[1] is grpc.StatusCode.OK
    assert loud.recorder.flush()
    assert quiet.recorder.flush()
    assert loud.exporter.get_finished_spans() == quiet.exporter.get_finished_spans() == ()


def test_baggage_goes_along(seen: Any) -> None:
    got: list[Any] = []

    class Listening(Service):
        def one(self, asks: Any, ctx: Any) -> str:
            got.append(dict(baggage.get_all()))
            return "answer"

    with (
        sync_server(Listening(), server_interceptor(seen.recorder)) as where,
        grpc.insecure_channel(where) as plain,
    ):
        channel = grpc.intercept_channel(plain, client_interceptor(seen.recorder))
        around = baggage.set_baggage("tenant", "a b")
        with seen.provider.get_tracer("test").start_as_current_span("caller", context=around) as span:
            token = context.attach(trace.set_span_in_context(span, around))
            try:
                call(channel, "UnaryUnary", Ask())
            finally:
                context.detach(token)
    assert got == [{"tenant": "a b"}]


def test_metadata_that_the_caller_gave_go_along_and_its_list_is_left_alone(seen: Any) -> None:
    got: list[Any] = []

    class Listening(Service):
        def one(self, asks: Any, ctx: Any) -> str:
            got.append({(key, value) for key, value in ctx.invocation_metadata() if key != "user-agent"})
            return "answer"

    given_ = [("tenant", "a"), ("traceparent", f"00-{TRACE}-{PARENT}-01")]
    with (
        sync_server(Listening()) as where,
        grpc.insecure_channel(where) as plain,
    ):
        channel = grpc.intercept_channel(plain, client_interceptor(seen.recorder))
        call(channel, "UnaryUnary", Ask(), metadata=given_)
    [span] = seen.spans(SpanKind.CLIENT, 1)
    assert got == [{("tenant", "a"), ("traceparent", f"00-{TRACE}-{span.context.span_id:016x}-01")}]
    assert given_ == [("tenant", "a"), ("traceparent", f"00-{TRACE}-{PARENT}-01")]
    assert f"{span.parent.span_id:016x}" == PARENT


def test_what_a_handler_sets_on_its_span_is_told(seen: Any) -> None:
    class Setting(Service):
        def one(self, asks: Any, ctx: Any) -> str:
            span = trace.get_current_span()
            assert span.is_recording()
            span.set_attribute("tokens", 7)
            span.set_attributes({"model": "m"})
            span.add_event("prefill", {"n": 1})
            span.add_link(trace.SpanContext(1, 2, False))
            span.update_name("generate")
            span.record_exception(ValueError("odd"))
            span.set_status(trace.StatusCode.ERROR, "said so")
            for i in range(200):
                span.set_attribute("i", i)
            return "answer"

    with (
        sync_server(Setting(), server_interceptor(seen.recorder)) as where,
        grpc.insecure_channel(where) as channel,
    ):
        call(channel, "UnaryUnary", Ask())
    [span] = seen.spans(SpanKind.SERVER, 1)
    assert span.name == "generate"
    assert (span.attributes["tokens"], span.attributes["model"]) == (7, "m")
    assert [event.name for event in span.events] == ["prefill", "exception"]
    assert span.start_time <= span.events[0].timestamp <= span.end_time
    assert span.events[1].attributes["exception.type"] == "ValueError"
    assert span.links[0].context.trace_id == 1
    assert span.status.description == "said so"
    assert seen.recorder.lost == {"notes": 200 + 7 - 128}


def test_exporters_are_left_alone(seen: Any) -> None:
    """OpenTelemetry's exporters speak gRPC too: a span for each export would be a span to export."""
    with (
        sync_server(Service()) as where,
        grpc.insecure_channel(where) as plain,
    ):
        channel = grpc.intercept_channel(plain, client_interceptor(seen.recorder))
        token = context.attach(context.set_value(context._SUPPRESS_INSTRUMENTATION_KEY, True))
        try:
            assert call(channel, "UnaryUnary", Ask())[1] is grpc.StatusCode.OK
        finally:
            context.detach(token)
    assert seen.recorder.flush()
    assert seen.exporter.get_finished_spans() == ()


def test_excluded_services_are_left_alone(seen: Any) -> None:
    ours = server_interceptor(seen.recorder, exclude=["hitmap.test.Talk"])
    with sync_server(Service(), ours) as where, grpc.insecure_channel(where) as channel:
        assert call(channel, "UnaryStream", Ask())[1] is grpc.StatusCode.OK
    assert seen.recorder.flush()
    assert seen.exporter.get_finished_spans() == ()


@pytest.mark.parametrize(
    ("sampler", "rate"),
    [
        (ALWAYS_ON, 1.0),
        (ALWAYS_OFF, 0.0),
        (ParentBased(ALWAYS_OFF), 0.0),
        (TraceIdRatioBased(0.25), 0.25),
        (ParentBased(TraceIdRatioBased(1e-6)), 1e-6),
    ],
)
def test_the_rate_is_that_of_the_provider(sampler: Any, rate: float) -> None:
    assert rate_of(TracerProvider(sampler=sampler)) == rate


@given(st.floats(0, 1), st.integers(1, 2**128 - 1))
def test_a_trace_is_chosen_as_the_sdk_chooses_it(rate: float, trace_id: int) -> None:
    from probes.grpc.sampling import bound_of

    theirs = TraceIdRatioBased(rate).should_sample(None, trace_id, "").decision.is_sampled()
    assert (trace_id & (2**64 - 1) < bound_of(rate)) == theirs


def test_ids_and_share_of_what_is_sampled() -> None:
    """10,000 roots at a quarter: within five standard deviations, no id twice, and unsampled ones keep theirs."""
    recorder = Recorder(TracerProvider(), sample=0.25)
    spans = [recorder.begin(METHOD, None) for _ in range(10_000)]
    sampled = [span for span in spans if span.flags]
    assert abs(len(sampled) - 2500) < 5 * (10_000 * 0.25 * 0.75) ** 0.5
    assert len({span.trace_id for span in spans}) == len({span.span_id for span in spans}) == 10_000
    quiet = next(span for span in spans if not span.flags)
    assert quiet.traceparent() == quiet.traceparent()
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", quiet.traceparent())
    assert quiet.get_span_context().is_valid
    assert all(span.trace_id & (2**64 - 1) >= 2**62 for span in spans if not span.flags)
    recorder.close()
