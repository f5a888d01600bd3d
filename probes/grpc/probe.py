"""What the interceptors of both sides share: the methods they know, whose child a call is, how it ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import grpc
from opentelemetry import baggage, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context

from . import current
from .call import Call, Light, Method, Parent, parent_in
from .current import KEY
from .facts import Facts, HitOf, KeyOf
from .first import first_of
from .recorder import Recorder

MAX_METHODS = 4096
"""Method names that are kept; a server or client that uses more gets `_OTHER` for the rest."""
MAX_NAME = 256
CLOSE_TO_DEADLINE_S = 0.02
"""gRPC tells a server of a deadline and of a client's cancellation alike, and the client's deadline comes first by
the way of the message: a cancellation this near the deadline is taken for the deadline."""

_CARRIERS = frozenset(("traceparent", "baggage"))

Pairs = Iterable[tuple[str, Any]]


class Probe:
    """recorder: where calls go, the process's own by default. exclude: services (`grpc.health.v1.Health`) that are
    left alone. cache_key, cache_hit: see `facts`."""

    def __init__(
        self,
        kind: trace.SpanKind,
        recorder: Recorder | None,
        cache_key: KeyOf | None,
        cache_hit: HitOf | None,
        exclude: Collection[str],
    ) -> None:
        self.recorder = recorder or shared()
        self.facts = Facts(cache_key, cache_hit, self.recorder.lose)
        self._begin = self.recorder.begin
        self._kind = kind
        self._exclude = frozenset(exclude)
        self._methods: dict[str | bytes, Method | None] = {}

    def method(self, path: str | bytes) -> Method | None:
        """The method by gRPC's path, `/package.Service/Method`. None where it is left alone."""
        try:
            return self._methods[path]
        except KeyError:
            pass
        name = path.decode("utf-8", "replace") if isinstance(path, bytes) else path
        method = None if self.excluded(name) else Method(name.lstrip("/")[:MAX_NAME], self._kind)
        if len(self._methods) >= MAX_METHODS:
            return method and self.unknown(name)
        self._methods[path] = method
        return method

    def excluded(self, path: str) -> bool:
        """It belongs to a service that is left alone."""
        return path.lstrip("/").rpartition("/")[0] in self._exclude

    def unknown(self, path: str) -> Method:
        """A method that this side does not know, or cannot keep in mind."""
        return Method("_OTHER", self._kind, path.lstrip("/")[:MAX_NAME])

    def arrived(self, method: Method, metadata: Pairs | None) -> tuple[Light, Context]:
        """A call that came over the wire, and the context its handler runs in."""
        around = current.now()
        for key, _ in metadata or ():
            if key in _CARRIERS:
                span = self._begin(method, parent_in(metadata))
                return span, current.with_span(span, _with_baggage(metadata, around))
        span = self._begin(method, None)
        return span, current.with_span(span, around) if around else Context({KEY: span})

    def leaves(self, method: Method, metadata: Pairs | None) -> tuple[Light, list[tuple[str, Any]]] | None:
        """A call that goes out, and its metadata with the trace context. None where OpenTelemetry is told to look
        away (its own exporters do, lest each export makes a span to export)."""
        around = current.now()
        if around and _suppressed(around):
            return None
        parent = _parent(around) if around else None
        if metadata:
            parent = parent or parent_in(metadata)
            sent = [pair for pair in metadata if pair[0] not in ("traceparent", "tracestate")]
        else:
            sent = []
        span = self._begin(method, parent)
        sent.append(("traceparent", span.traceparent()))
        if span.state:
            sent.append(("tracestate", span.state))
        if len(around) > 1 and baggage.get_all(around):
            carrier: dict[str, str] = {}
            W3CBaggagePropagator().inject(carrier, around)
            sent.extend(carrier.items())
        return span, sent

    def asked(self, call: Call, request: Any, streams: bool) -> Any:
        """Read cache.key off the request; of a stream, off its first message when that passes."""
        if not self.facts.wants_request:
            return request
        if streams:
            return first_of(request, lambda message: self._keyed(call, message))
        self._keyed(call, request)
        return request

    def _keyed(self, call: Call, message: Any) -> None:
        call.key = self.facts.key(message)

    def ended(self, call: Call, code: object, trailing: Pairs | None, response: Any = None) -> None:
        """With what the other side, or the handler, said at the end."""
        if not call.end_ns:
            if trailing or self.facts.wants_response:
                call.hit = self.facts.hit(trailing, response)
            self.recorder.end(call, code)


def _with_baggage(metadata: Pairs | None, around: Context) -> Context:
    for key, value in metadata or ():
        if key == "baggage":
            around = W3CBaggagePropagator().extract({"baggage": value}, around)
    return around


def _suppressed(around: Context) -> bool:
    return bool(around.get(_SUPPRESS_INSTRUMENTATION_KEY) or around.get("suppress_instrumentation"))


def _parent(around: Context) -> Parent | None:
    span = current.span_of(around)
    if isinstance(span, Light):
        return Parent(span.trace_id, span.span_id, span.flags, span.state, False)
    ids = trace.INVALID_SPAN_CONTEXT if span is None else span.get_span_context()
    if not ids.is_valid:
        return None
    return Parent(ids.trace_id, ids.span_id, int(ids.trace_flags), ids.trace_state.to_header(), ids.is_remote)


def cancelled(call: Any) -> grpc.StatusCode:
    """Why a server's call was cut off. call: its servicer context."""
    left = call.time_remaining()
    late = left is not None and left <= CLOSE_TO_DEADLINE_S
    return grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED


_shared: Recorder | None = None


def shared() -> Recorder:
    """The process's own recorder, with OpenTelemetry's global providers."""
    global _shared
    if _shared is None:
        _shared = Recorder()
    return _shared
