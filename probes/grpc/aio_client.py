"""Interceptors of an async channel: `grpc.aio.insecure_channel(target, interceptors=aio_client_interceptors())`.

Four objects, since grpc.aio files an interceptor under the first kind of method that it knows, and under no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import grpc

from .call import Call
from .client import ClientProbe, with_metadata

Continuation = Callable[[Any, Any], Awaitable[Any]]


class _Watch:
    def __init__(self, probe: ClientProbe) -> None:
        self._probe = probe

    async def _watch(self, continuation: Continuation, details: Any, request: Any, asks: bool) -> Any:
        """Hands on the very call object that it gets."""
        probe = self._probe
        method = probe.method(details.method)
        left = None if method is None else probe.leaves(method, details.metadata)
        if left is None:
            return await continuation(details, request)
        call, metadata = left
        details = with_metadata(details, grpc.aio.Metadata(*metadata))
        if type(call) is not Call:
            return await continuation(details, request)
        try:
            outcome = await continuation(details, probe.asked(call, request, asks))
        except BaseException as error:
            gone = isinstance(error, asyncio.CancelledError)
            probe.ended(call, grpc.StatusCode.CANCELLED if gone else grpc.StatusCode.INTERNAL, None)
            raise
        if outcome.done():
            self._done(call, outcome)
        else:
            outcome.add_done_callback(lambda done: self._done(call, done))
        return outcome

    def _done(self, call: Call, outcome: Any) -> None:
        code = _now(outcome.code())
        self._probe.ended(
            call, grpc.StatusCode.UNKNOWN if code is None else code, _now(outcome.trailing_metadata())
        )


class _UnaryUnary(_Watch, grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # grpc has no types
    async def intercept_unary_unary(self, continuation: Continuation, details: Any, request: Any) -> Any:
        return await self._watch(continuation, details, request, False)


class _UnaryStream(_Watch, grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc]
    async def intercept_unary_stream(self, continuation: Continuation, details: Any, request: Any) -> Any:
        return await self._watch(continuation, details, request, False)


class _StreamUnary(_Watch, grpc.aio.StreamUnaryClientInterceptor):  # type: ignore[misc]
    async def intercept_stream_unary(self, continuation: Continuation, details: Any, requests: Any) -> Any:
        return await self._watch(continuation, details, requests, True)


class _StreamStream(_Watch, grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc]
    async def intercept_stream_stream(self, continuation: Continuation, details: Any, requests: Any) -> Any:
        return await self._watch(continuation, details, requests, True)


def interceptors(probe: ClientProbe) -> list[Any]:
    """One for each kind of method, around one probe."""
    return [_UnaryUnary(probe), _UnaryStream(probe), _StreamUnary(probe), _StreamStream(probe)]


def _now(answer: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine of a call that is done returns: it has nothing to wait for, so that no task is needed."""
    try:
        answer.send(None)
    except StopIteration as done:
        return done.value
    answer.close()
    return None
