"""A call that has ended becomes a span of the OpenTelemetry SDK, with the ids and times it had.

Names and attributes: OpenTelemetry's conventions for RPC and gRPC spans,
https://opentelemetry.io/docs/specs/semconv/rpc/grpc/ (rpc.system.name, rpc.method, rpc.response.status_code).
"""

from __future__ import annotations

import grpc
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, Tracer
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.util import types

from .call import Call, span_context

SCOPE = "hitmap.probes"
SENSOR: dict[str, types.AnyValue] = {"hitmap.sensor": "grpc"}
_SCOPE = InstrumentationScope(SCOPE, "", None, SENSOR)
_UNSET, _ERROR = trace.Status(), trace.Status(trace.StatusCode.ERROR)

SERVER_ERRORS = {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
"""Codes that are a server's fault; on a client all but OK are errors."""

_BY_NUMBER = {code.value[0]: code.name for code in grpc.StatusCode}


class GivenIds(IdGenerator):
    """Hands the SDK the ids that the call has had from its beginning."""

    trace_id = 1
    span_id = 1

    def generate_trace_id(self) -> int:
        """Of a call without a parent."""
        return self.trace_id

    def generate_span_id(self) -> int:
        """Of the call."""
        return self.span_id


def code_name(code: object) -> str:
    """As gRPC spells it. code: grpc.StatusCode, its number, or None for OK; what gRPC does not know is UNKNOWN."""
    if code is None:
        return "OK"
    if isinstance(code, grpc.StatusCode):
        return str(code.name)
    number = code[0] if isinstance(code, tuple) and code else code
    return _BY_NUMBER.get(number, "UNKNOWN") if isinstance(number, int) else "UNKNOWN"


def wants_all(processor: SpanProcessor) -> bool:
    """Whether a processor must see a span begin, or change. The SDK's exporting ones want spans that have ended."""
    inner = getattr(processor, "_span_processors", (processor,))
    return any(
        type(one).on_start not in _IGNORES or getattr(type(one), "_on_ending", None) not in _NO_ENDING
        for one in inner
    )


_IGNORES = (SpanProcessor.on_start, BatchSpanProcessor.on_start, SimpleSpanProcessor.on_start)
_NO_ENDING = (None, getattr(SpanProcessor, "_on_ending", None))


def tell(call: Call, tracer: Tracer, ids: GivenIds, offset_ns: int, whole: bool) -> None:
    """Make the span. offset_ns: from the monotonic clock to the time of day. whole: as a span that begins, changes and
    ends; else, where nothing was set on it, as one that has ended, which takes a tenth of the time."""
    code = code_name(call.code)
    failed = code != "OK" and (call.method.kind is trace.SpanKind.CLIENT or code in SERVER_ERRORS)
    name = call.method.name if call.method.original is None else "grpc"
    attributes = _attributes(call, code, failed)
    above = None if call.parent is None else span_context(*call.parent)
    begin_ns, end_ns = call.start_ns + offset_ns, call.end_ns + offset_ns
    if not whole and not call.notes:
        span = ReadableSpan(
            name,
            call.get_span_context(),
            above,
            tracer.resource,
            attributes,
            kind=call.method.kind,
            status=_ERROR if failed else _UNSET,
            start_time=begin_ns,
            end_time=end_ns,
            instrumentation_info=tracer.instrumentation_info,
            instrumentation_scope=_SCOPE,
        )
        tracer.span_processor.on_end(span)
        return
    ids.trace_id, ids.span_id = call.trace_id, call.span_id
    context = (
        Context() if above is None else trace.set_span_in_context(trace.NonRecordingSpan(above), Context())
    )
    started = tracer.start_span(name, context, call.method.kind, attributes, start_time=begin_ns)
    for what, arguments in call.notes or ():
        getattr(started, what)(*arguments)
    if failed:
        started.set_status(trace.StatusCode.ERROR)
    started.end(end_ns)


def _attributes(call: Call, code: str, failed: bool) -> dict[str, types.AnyValue]:
    told: dict[str, types.AnyValue] = {
        "rpc.system.name": "grpc",
        "rpc.method": call.method.name,
        "rpc.response.status_code": code,
    }
    if failed:
        told["error.type"] = code
    if call.method.original is not None:
        told["rpc.method_original"] = call.method.original
    if call.key is not None:
        told["cache.key"] = call.key
    if call.hit is not None:
        told["cache.hit"] = call.hit
    return told
