"""A service of all four kinds of method, sync and async, told by each request what to do; and its clients.

No generated code: messages are JSON, so that a request has fields to read cache.key from.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import grpc
from opentelemetry import trace

SERVICE = "hitmap.test.Talk"
KINDS = ("UnaryUnary", "UnaryStream", "StreamUnary", "StreamStream")
WAIT_S = 20.0


@dataclass
class Ask:
    """do: ok, abort, raise, code, code_raise, hang, hang_streaming."""

    do: str = "ok"
    cache_key: str = ""
    salt: str = ""
    hit: str = ""

    @property
    def prompt(self) -> SimpleNamespace:
        return SimpleNamespace(salt=self.salt)


def pack(message: Any) -> bytes:
    if isinstance(message, bytes):  # grpc.aio makes bytes of a str before it asks the serializer
        message = message.decode()
    return json.dumps(message if isinstance(message, str) else vars(message)).encode()


def unpack_ask(data: bytes) -> Ask:
    return Ask(**json.loads(data))


class Service:
    """Handlers. `entered` is set when one runs that hangs, `release` lets it go on."""

    def __init__(self) -> None:
        self.entered, self.release = threading.Event(), threading.Event()
        self.tracer: trace.Tracer | None = None

    def _work(self) -> None:
        if self.tracer is not None:
            with self.tracer.start_as_current_span("child"):
                pass

    def _begin(self, ask: Ask, context: Any) -> None:
        self._work()
        if ask.hit:
            context.set_trailing_metadata((("other", "x"), ("cache-hit", ask.hit)))
        if ask.do.startswith("code"):
            context.set_code(grpc.StatusCode.NOT_FOUND)
            context.set_details("not here")
        if ask.do in ("raise", "code_raise"):
            raise RuntimeError("by accident")

    def one(self, asks: Any, context: Any) -> str:
        ask, *_ = [asks] if isinstance(asks, Ask) else asks
        self._begin(ask, context)
        if ask.do == "abort":
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
        if ask.do == "hang":
            self.entered.set()
            while context.is_active() and not self.release.wait(0.01):
                pass
        return "answer"

    def many(self, asks: Any, context: Any) -> Iterator[str]:
        ask, *_ = [asks] if isinstance(asks, Ask) else asks
        self._begin(ask, context)
        for i in range(10_000 if ask.do == "hang" else 3):
            yield f"answer {i}"
            self._work()
            if ask.do == "abort":
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
            if ask.do == "half":
                raise RuntimeError("half done")
            if ask.do == "hang":
                self.entered.set()
                time.sleep(0.01)

    async def aio_one(self, asks: Any, context: Any) -> str:
        ask, *_ = [asks] if isinstance(asks, Ask) else [ask async for ask in asks]
        self._begin(ask, context)
        if ask.do == "abort":
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
        if ask.do == "hang":
            self.entered.set()
            await asyncio.sleep(WAIT_S)
        return "answer"

    async def aio_many(self, asks: Any, context: Any) -> Any:
        ask, *_ = [asks] if isinstance(asks, Ask) else [ask async for ask in asks]
        self._begin(ask, context)
        for i in range(10_000 if ask.do == "hang" else 3):
            yield f"answer {i}"
            self._work()
            if ask.do == "abort":
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
            if ask.do == "half":
                raise RuntimeError("half done")
            if ask.do == "hang":
                self.entered.set()
                await asyncio.sleep(0.01)

    async def aio_written(self, asks: Any, context: Any) -> None:
        """The other way of streaming: `context.write`."""
        async for answer in self.aio_many(asks, context):
            await context.write(answer)

    def handlers(self, one: Any, many: Any) -> Any:
        coding = {"request_deserializer": unpack_ask, "response_serializer": pack}
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "UnaryUnary": grpc.unary_unary_rpc_method_handler(one, **coding),
                "UnaryStream": grpc.unary_stream_rpc_method_handler(many, **coding),
                "StreamUnary": grpc.stream_unary_rpc_method_handler(one, **coding),
                "StreamStream": grpc.stream_stream_rpc_method_handler(many, **coding),
            },
        )


def method(channel: Any, kind: str) -> Any:
    make = {
        "UnaryUnary": "unary_unary",
        "UnaryStream": "unary_stream",
        "StreamUnary": "stream_unary",
        "StreamStream": "stream_stream",
    }
    return getattr(channel, make[kind])(
        f"/{SERVICE}/{kind}", request_serializer=pack, response_deserializer=json.loads
    )


@contextmanager
def sync_server(service: Service, *interceptors: Any) -> Iterator[str]:
    """Yields where it listens."""
    server = grpc.server(ThreadPoolExecutor(8), interceptors=interceptors)
    server.add_generic_rpc_handlers((service.handlers(service.one, service.many),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        service.release.set()
        server.stop(0).wait(WAIT_S)


class AioServer:
    """style: generator, write (streams by context.write), or plain (functions that are not async)."""

    def __init__(self, service: Service, *interceptors: Any, style: str = "generator") -> None:
        self._server = grpc.aio.server(ThreadPoolExecutor(8), interceptors=interceptors)
        one, many = {
            "generator": (service.aio_one, service.aio_many),
            "write": (service.aio_one, service.aio_written),
            "plain": (service.one, service.many),
        }[style]
        self._server.add_generic_rpc_handlers((service.handlers(one, many),))
        self._port = self._server.add_insecure_port("127.0.0.1:0")

    async def __aenter__(self) -> str:
        await self._server.start()
        return f"127.0.0.1:{self._port}"

    async def __aexit__(self, *_: Any) -> None:
        await self._server.stop(0)


def call(channel: Any, kind: str, ask: Ask, **how: Any) -> tuple[Any, grpc.StatusCode]:
    """The answers and the status that a blocking client sees."""
    try:
        request = iter([ask, ask]) if kind.startswith("Stream") else ask
        how.setdefault("timeout", WAIT_S)
        if kind.endswith("Unary"):
            answer, done = method(channel, kind).with_call(request, **how)
            return answer, done.code()
        stream = method(channel, kind)(request, **how)
        return list(stream), stream.code()
    except grpc.RpcError as error:
        return None, error.code()


async def aio_call(channel: Any, kind: str, ask: Ask, **how: Any) -> tuple[Any, grpc.StatusCode]:
    """The same of an async client."""

    async def asks() -> Any:
        yield ask
        yield ask

    request = asks() if kind.startswith("Stream") else ask
    how.setdefault("timeout", WAIT_S)
    running = method(channel, kind)(request, **how)
    try:
        if kind.endswith("Unary"):
            answer = await running
        else:
            answer = [answer async for answer in running]
        return answer, await running.code()
    except grpc.RpcError as error:
        return None, error.code()
