"""Spans of gRPC calls with what a cache had to do with them, at a cost that can be left on.

    server = grpc.server(pool, interceptors=[server_interceptor(cache_key="prompt.salt")])
    server = grpc.aio.server(interceptors=[aio_server_interceptor()])
    channel = grpc.intercept_channel(channel, client_interceptor())
    channel = grpc.aio.insecure_channel(target, interceptors=aio_client_interceptors())

An interceptor reads the clock twice and puts the call into a ring; a thread makes spans of OpenTelemetry's SDK of what
was sampled. `opentelemetry-instrument` finds the same as `hitmap_grpc`.

call, probe, first       one call: its ids, whose child it is, its first message
server, aio_server       interceptors of servers
client, aio_client       interceptors of channels
facts                    cache.key and cache.hit
sampling                 which calls become spans
recorder, spans          the ring, and the thread that makes spans
instrumentor             the entry point
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .aio_client import interceptors as _interceptors
from .aio_server import AioServerInterceptor
from .client import ClientInterceptor, ClientProbe
from .facts import HitOf, KeyOf
from .probe import shared
from .recorder import Recorder
from .server import ServerInterceptor

__all__ = [
    "Recorder",
    "aio_client_interceptors",
    "aio_server_interceptor",
    "client_interceptor",
    "server_interceptor",
    "shared",
]

server_interceptor = ServerInterceptor
aio_server_interceptor = AioServerInterceptor
client_interceptor = ClientInterceptor


def aio_client_interceptors(
    recorder: Recorder | None = None,
    *,
    cache_key: KeyOf | None = None,
    cache_hit: HitOf | None = "cache-hit",
    exclude: Collection[str] = (),
) -> list[Any]:
    """For `grpc.aio.insecure_channel(..., interceptors=these)`. As `client_interceptor`."""
    return _interceptors(ClientProbe(recorder, cache_key=cache_key, cache_hit=cache_hit, exclude=exclude))
