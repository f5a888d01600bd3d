"""A request that ended as one trace: a root span, and a child for each interval of its timeline. Pure.

Made when all is known, and not through a tracer: nothing is measured twice, and the core pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.trace.status import Status, StatusCode

from engine.request import Request
from engine.telemetry import names
from engine.timeline import Interval

During = Callable[[int, int], Iterable[str]]
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_new = RandomIdGenerator()
_propagator = TraceContextTextMapPropagator()


class _TheResource(Resource):
    """There is one: its hash, which the exporter takes for every span, need not be that of its JSON text."""

    def __hash__(self) -> int:
        return id(self)


class Tracer:
    """Makes the spans of requests. during: as Faults.during; full: with the text of prompt and response."""

    def __init__(
        self,
        resource: Resource,
        version: str,
        during: During = lambda start_ns, end_ns: (),
        *,
        full: bool = False,
    ) -> None:
        self._resource, self._during = _TheResource(resource.attributes, resource.schema_url), during
        self._scope = InstrumentationScope(names.SCOPE, version)
        self._attributes = names.ATTRIBUTES + (names.TEXTS if full else ())

    def spans(self, request: Request) -> list[ReadableSpan]:
        """Root and children of a request whose timeline is closed; none where its caller decided not to sample."""
        parent = _parent(request)
        if parent and not parent.trace_flags.sampled:
            return []
        trace_id = parent.trace_id if parent else _new.generate_trace_id()
        context = _context(trace_id, parent)
        root = ReadableSpan(
            names.ROOT,
            context,
            parent,
            self._resource,
            self._told(request),
            kind=SpanKind.SERVER,
            status=Status(StatusCode.ERROR, request.error) if request.error else Status(),
            start_time=request.timeline.start_ns,
            end_time=request.timeline.end_ns,
            instrumentation_scope=self._scope,
        )
        parts = request.timeline.intervals[: names.MOST_CHILDREN]
        return [root, *(self._child(part, context) for part in parts)]

    def _told(self, request: Request) -> dict[str, names.Told]:
        """The attributes of its root."""
        read = ((attribute.name, attribute.read(request)) for attribute in self._attributes)
        told = {name: value for name, value in read if value is not None}
        timeline = request.timeline
        spent_ns = timeline.layer_ns()
        told |= {name: spent_ns.get(layer, 0) / 1e9 for layer, name in names.LATENCIES.items()}
        told |= _short(timeline.spent())
        on = self._during(timeline.start_ns, timeline.intervals[-1].start_ns)  # delivery needs no cache
        if faults := dict.fromkeys((*names.faults(request), *on)):
            told[names.FAULT] = "; ".join(faults)
        return told

    def _child(self, part: Interval, parent: SpanContext) -> ReadableSpan:
        return ReadableSpan(
            names.SPANS.get(part.layer, part.layer),
            _context(parent.trace_id, parent),
            parent,
            self._resource,
            {
                "hitmap.layer": part.layer,
                **{f"hitmap.{key}": value for key, value in part.attributes.items()},
                **_short(part.spent),
            },
            start_time=part.start_ns,
            end_time=part.end_ns,
            instrumentation_scope=self._scope,
        )


def _short(spent: Mapping[str, float]) -> dict[str, float]:
    """Shares of counts need no more than thousandths."""
    return {name: round(amount, 3) for name, amount in spent.items()}


def _parent(request: Request) -> SpanContext | None:
    """The span that the request was sent in, None where its header tells none."""
    if not request.traceparent:
        return None
    carrier = {"traceparent": request.traceparent, "tracestate": request.tracestate}
    found = get_current_span(_propagator.extract(carrier)).get_span_context()
    return found if found.is_valid else None


def _context(trace_id: int, parent: SpanContext | None) -> SpanContext:
    state = parent.trace_state if parent else None
    return SpanContext(trace_id, _new.generate_span_id(), False, _SAMPLED, state)
