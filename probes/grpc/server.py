"""Interceptor of `grpc.server`, and what it shares with that of `grpc.aio.server`."""

from __future__ import annotations

import contextvars
import functools
import time
from collections.abc import Callable, Collection
from typing import Any

import grpc
from opentelemetry import trace

from . import current
from .call import Call, Method
from .facts import HitOf, KeyOf
from .probe import MAX_METHODS, Pairs, Probe, cancelled
from .recorder import Recorder

HASTE_NS = 1_000_000
"""A handler that took less is not asked whether its client has gone: it has answered as far as it knows."""

Behavior = Callable[[Any, Any], Any]


class ServerProbe(Probe):
    """Watches handlers. A handler gets the very context object that it would get without us: how it ended is asked of
    that object afterwards."""

    def __init__(
        self,
        recorder: Recorder | None = None,
        *,
        cache_key: KeyOf | None = None,
        cache_hit: HitOf | None = "cache-hit",
        exclude: Collection[str] = (),
    ) -> None:
        super().__init__(trace.SpanKind.SERVER, recorder, cache_key, cache_hit, exclude)
        self.known: dict[str, tuple[Any, Any]] = {}  # by path: the handler, and what watches it

    def observe(self, handler: Any, path: str, metadata: Pairs | None) -> Any:
        """The handler, watched, for this call and all that follow: a server has one handler a method."""
        if handler is None:
            self._refused(path, metadata)
            return None
        method = self.method(path)
        watched = handler if method is None else self._watched(handler, method)
        if len(self.known) < MAX_METHODS or path in self.known:
            self.known[path] = (handler, watched)
        return watched

    def _refused(self, path: str, metadata: Pairs | None) -> None:
        """No such method: the call has no handler, and yet a span."""
        if not self.excluded(path):
            call, _ = self.arrived(self.unknown(path), metadata)
            if isinstance(call, Call):
                self.recorder.end(call, grpc.StatusCode.UNIMPLEMENTED)

    def _watched(self, handler: Any, method: Method) -> Any:
        asks, answers = handler.request_streaming, handler.response_streaming
        shape = f"{'stream' if asks else 'unary'}_{'stream' if answers else 'unary'}"
        behavior = getattr(handler, shape)
        if getattr(behavior, "experimental_non_blocking", False):
            return handler  # it answers through a callback of the server's, which shows no end
        around = functools.update_wrapper(self.around(behavior, method, asks, answers), behavior)
        make = getattr(grpc, f"{shape}_rpc_method_handler")
        return make(around, handler.request_deserializer, handler.response_serializer)

    def around(self, behavior: Behavior, method: Method, asks: bool, answers: bool) -> Behavior:
        """The behavior with its calls recorded. asks, answers: whether those are streams."""
        return self.streaming(behavior, method, asks) if answers else self.single(behavior, method, asks)

    def single(self, behavior: Behavior, method: Method, asks: bool) -> Behavior:
        """A function with one answer."""
        arrived, enter, leave = self.arrived, current.enter, current.leave
        wants_request = self.facts.wants_request

        def single(request: Any, context: Any) -> Any:
            call, around = arrived(method, context.invocation_metadata())
            token = enter(around)
            try:
                if type(call) is not Call:
                    return behavior(request, context)
                if wants_request:
                    request = self.asked(call, request, asks)
                try:
                    response = behavior(request, context)
                except BaseException:
                    self.raised(call, context)
                    raise
                self.returned(call, context, response)
                return response
            finally:
                leave(token)

        return single

    def streaming(self, behavior: Behavior, method: Method, asks: bool) -> Behavior:
        """A function with a stream of answers, mostly a generator."""

        def streaming(request: Any, context: Any) -> Any:
            call, around = self.arrived(method, context.invocation_metadata())
            own = (
                contextvars.copy_context()
            )  # an iterator runs in pieces, between which the thread does other things
            own.run(current.enter, around)
            if type(call) is not Call:
                return _Answers(own, iter(own.run(behavior, request, context)))
            request = self.asked(call, request, asks)
            try:
                answers = iter(own.run(behavior, request, context))
            except BaseException:
                self.raised(call, context)
                raise
            return _Recorded(own, answers, self, call, context)

        return streaming

    def returned(self, call: Call, context: Any, response: Any) -> None:
        """The handler returned, though the client may have gone."""
        try:
            code, trailing = context.code(), context.trailing_metadata()
            gone = time.monotonic_ns() - call.start_ns > HASTE_NS and not context.is_active()
        except (AttributeError, NotImplementedError):  # the context of another interceptor, which knows less
            code, trailing, gone = None, None, False
        self.ended(call, cancelled(context) if gone else code, trailing, response)

    def raised(self, call: Call, context: Any) -> None:
        """The handler raised: by `abort`, or by accident, which gRPC tells as UNKNOWN unless a code was set."""
        try:
            code, trailing, gone = context.code(), context.trailing_metadata(), not context.is_active()
        except (AttributeError, NotImplementedError):
            code, trailing, gone = None, None, False
        if gone:
            code = cancelled(context)
        elif code in (None, grpc.StatusCode.OK):
            code = grpc.StatusCode.UNKNOWN
        self.ended(call, code, trailing)


class ServerInterceptor(ServerProbe, grpc.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """For `grpc.server(..., interceptors=[this])`, as the first."""

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """gRPC's interface."""
        handler, path = continuation(details), details.method
        known = self.known.get(path)
        if known is not None and known[0] is handler:
            return known[1]
        return self.observe(handler, path, details.invocation_metadata)


class _Answers:
    """An iterator that runs in a context of its own."""

    def __init__(self, own: contextvars.Context, answers: Any) -> None:
        self._run = own.run
        self._answers = answers

    def __iter__(self) -> _Answers:
        return self

    def __next__(self) -> Any:
        return self._run(next, self._answers)


class _Recorded(_Answers):
    """Ends its call with the last answer, with what the handler raises, or when the server drops it half done."""

    def __init__(
        self, own: contextvars.Context, answers: Any, probe: ServerProbe, call: Call, context: Any
    ) -> None:
        super().__init__(own, answers)
        self._probe = probe
        self._call = call
        self._context = context
        self._last: Any = None

    def __next__(self) -> Any:
        try:
            answer = self._run(next, self._answers)
        except StopIteration:
            self._probe.returned(self._call, self._context, self._last)
            raise
        except BaseException:
            self._probe.raised(self._call, self._context)
            raise
        if self._probe.facts.wants_response:
            self._last = answer
        return answer

    def __del__(self) -> None:
        if not self._call.end_ns:
            self._probe.ended(self._call, cancelled(self._context), self._context.trailing_metadata())
