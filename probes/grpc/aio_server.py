"""Interceptor of `grpc.aio.server`: coroutines, async generators, and plain functions, which run in its threads."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from opentelemetry.context import Context

from . import current
from .call import Call, Light, Method
from .probe import Pairs, cancelled
from .server import Behavior, ServerProbe

_metadata: contextvars.ContextVar[Pairs | None] = contextvars.ContextVar("hitmap_grpc_metadata")
"""Of the call whose task this is: asking the context of the call again would decode it again."""


class AioServerInterceptor(ServerProbe, grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """For `grpc.aio.server(interceptors=[this])`, as the first."""

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """gRPC's interface. The handler runs later in the same task."""
        _metadata.set(details.invocation_metadata)
        handler, path = await continuation(details), details.method
        known = self.known.get(path)
        if known is not None and known[0] is handler:
            return known[1]
        return self.observe(handler, path, details.invocation_metadata)

    def around(self, behavior: Behavior, method: Method, asks: bool, answers: bool) -> Behavior:
        """In the same kind of function: the server looks at it to decide how to call it."""
        if inspect.iscoroutinefunction(behavior):
            return self._coroutine(behavior, method, asks)
        if inspect.isasyncgenfunction(behavior):
            return self._generator(behavior, method, asks)
        plain = super().around(behavior, method, asks, answers)
        return lambda request, context: plain(request, _Told(context))

    def _arrived(self, method: Method, context: Any) -> tuple[Light, Context]:
        metadata = _metadata.get(None)
        return self.arrived(method, context.invocation_metadata() if metadata is None else metadata)

    def _coroutine(self, behavior: Behavior, method: Method, asks: bool) -> Behavior:
        """With one answer, or with `context.write` for each of a stream."""

        arrived, ended, enter, leave = self.arrived, self.ended, current.enter, current.leave
        known, wants_request = _metadata.get, self.facts.wants_request

        async def coroutine(request: Any, context: Any) -> Any:
            metadata = known(None)
            call, around = arrived(method, context.invocation_metadata() if metadata is None else metadata)
            token = enter(around)
            try:
                if type(call) is not Call:
                    return await behavior(request, context)
                if wants_request:
                    request = self.asked(call, request, asks)
                try:
                    response = await behavior(request, context)
                except asyncio.CancelledError:
                    ended(call, cancelled(context), context.trailing_metadata())
                    raise
                except BaseException:
                    ended(call, _code(context), context.trailing_metadata())
                    raise
                ended(call, context.code(), context.trailing_metadata(), response)
                return response
            finally:
                leave(token)

        return coroutine

    def _generator(self, behavior: Behavior, method: Method, asks: bool) -> Behavior:
        async def generator(request: Any, context: Any) -> AsyncIterator[Any]:
            call, around = self._arrived(method, context)
            # not detached: the context is that of the call's task, and another task may close a generator
            current.enter(around)
            last = None
            if isinstance(call, Call):
                request = self.asked(call, request, asks)
                # a cancelled task leaves the generator where it stands, with no word to it
                context.add_done_callback(lambda done: self._dropped(call, done))
            try:
                async for response in behavior(request, context):
                    last = response
                    yield response
            except (asyncio.CancelledError, GeneratorExit):
                self._dropped(call, context)
                raise
            except BaseException:
                if isinstance(call, Call):
                    self.ended(call, _code(context), context.trailing_metadata())
                raise
            if isinstance(call, Call):
                self.ended(call, context.code(), context.trailing_metadata(), last)

        return generator

    def _dropped(self, call: Light, context: Any) -> None:
        if isinstance(call, Call) and not call.end_ns:
            self.ended(call, cancelled(context), context.trailing_metadata())


def _code(context: Any) -> Any:
    """Of a call whose handler raised: what it set, or UNKNOWN, as the server does."""
    code = context.code()
    return grpc.StatusCode.UNKNOWN if code in (None, 0, grpc.StatusCode.OK) else code


class _Told:
    """The context of a plain function in an async server, which does not tell again what it was told."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._code: Any = None
        self._trailing: Pairs | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def set_code(self, code: Any) -> None:
        self._context.set_code(code)
        self._code = code

    def set_trailing_metadata(self, metadata: Pairs) -> None:
        self._context.set_trailing_metadata(metadata)
        self._trailing = metadata

    def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> None:
        self._code, self._trailing = code, trailing_metadata or self._trailing
        self._context.abort(code, details, trailing_metadata)

    def code(self) -> Any:
        return self._code

    def trailing_metadata(self) -> Pairs | None:
        return self._trailing

    def is_active(self) -> bool:
        return True  # not told: its thread runs on when the call is cancelled
