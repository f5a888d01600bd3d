"""Interceptor of a channel: `grpc.intercept_channel(channel, this)`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from typing import Any

import grpc
from opentelemetry import trace

from .call import Call
from .facts import HitOf, KeyOf
from .probe import Probe
from .recorder import Recorder

Continuation = Callable[[Any, Any], Any]


class _Details(grpc.ClientCallDetails):  # type: ignore[misc]  # grpc has no types
    """Another interceptor's details with our metadata; what it lacks gRPC fills in, as it would without us."""

    def __init__(self, details: Any, metadata: list[tuple[str, Any]]) -> None:
        self._details = details
        self.metadata = metadata

    def __getattr__(self, name: str) -> Any:
        return getattr(self._details, name)


_OWN: set[type] = set()


def with_metadata(details: Any, metadata: Any) -> Any:
    """The same details with other metadata. gRPC's own are a named tuple with the metadata third."""
    kind = type(details)
    if kind not in _OWN:
        if not kind.__module__.startswith("grpc.") or kind._fields[2] != "metadata":
            return _Details(details, metadata)
        _OWN.add(kind)
    return tuple.__new__(kind, (*details[:2], metadata, *details[3:]))


class ClientProbe(Probe):
    """What both kinds of client share."""

    def __init__(
        self,
        recorder: Recorder | None = None,
        *,
        cache_key: KeyOf | None = None,
        cache_hit: HitOf | None = "cache-hit",
        exclude: Collection[str] = (),
    ) -> None:
        super().__init__(trace.SpanKind.CLIENT, recorder, cache_key, cache_hit, exclude)


class ClientInterceptor(
    ClientProbe,
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]  # grpc has no types
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    """Hands on the very call object that it gets."""

    def intercept_unary_unary(self, continuation: Continuation, details: Any, request: Any) -> Any:
        """gRPC's interface."""
        return self._watch(continuation, details, request, asks=False, answers=False)

    def intercept_unary_stream(self, continuation: Continuation, details: Any, request: Any) -> Any:
        """gRPC's interface."""
        return self._watch(continuation, details, request, asks=False, answers=True)

    def intercept_stream_unary(self, continuation: Continuation, details: Any, requests: Any) -> Any:
        """gRPC's interface."""
        return self._watch(continuation, details, requests, asks=True, answers=False)

    def intercept_stream_stream(self, continuation: Continuation, details: Any, requests: Any) -> Any:
        """gRPC's interface."""
        return self._watch(continuation, details, requests, asks=True, answers=True)

    def _watch(
        self, continuation: Continuation, details: Any, request: Any, *, asks: bool, answers: bool
    ) -> Any:
        method = self.method(details.method)
        left = None if method is None else self.leaves(method, details.metadata)
        if left is None:
            return continuation(details, request)
        call, metadata = left
        details = with_metadata(details, metadata)
        if type(call) is not Call:
            return continuation(details, request)
        try:
            outcome = continuation(details, self.asked(call, request, asks))
        except BaseException:
            self.ended(
                call, grpc.StatusCode.INTERNAL, None
            )  # nothing was sent: a closed channel, a bad argument
            raise
        if outcome.done():
            self._done(call, outcome, answers)
            return outcome
        # by a weak reference: gRPC cancels a stream that nobody holds any more, and we must not be who holds it
        known = weakref.ref(outcome)
        if not outcome.add_callback(lambda: self._done(call, known(), answers)):
            self._done(call, outcome, answers)
        return outcome

    def _done(self, call: Call, outcome: Any, answers: bool) -> None:
        if outcome is None:
            self.ended(call, grpc.StatusCode.CANCELLED, None)
            return
        code, response = outcome.code(), None
        if self.facts.wants_response and not answers and code is grpc.StatusCode.OK:
            response = outcome.result()
        self.ended(call, code, outcome.trailing_metadata(), response)
