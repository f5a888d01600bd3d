"""What `opentelemetry-instrument` loads: every gRPC server and channel that is made afterwards gets our interceptors.

The only module that needs opentelemetry-instrumentation, which is there where that command is. Settings come from the
environment: HITMAP_GRPC_CACHE_KEY (dotted path of a field of the request), HITMAP_GRPC_CACHE_HIT (key of trailing
metadata), and OpenTelemetry's OTEL_PYTHON_GRPC_EXCLUDED_SERVICES (comma-separated). Switch its own off, lest each call
has two spans: OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=grpc_client,grpc_server,grpc_aio_client,grpc_aio_server
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection
from typing import Any

import grpc
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from . import aio_client_interceptors, aio_server_interceptor, client_interceptor, server_interceptor
from .recorder import Recorder

Make = Callable[..., Any]


class GrpcProbes(BaseInstrumentor):  # type: ignore[misc]  # no types that mypy sees
    """`instrument(tracer_provider=, meter_provider=, sample=, cache_key=, cache_hit=, exclude=)`; `uninstrument()`
    leaves servers and channels alone that were made before."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """What must be installed for this to be of use."""
        return ("grpcio >= 1.66",)

    def _instrument(self, **kwargs: Any) -> None:
        recorder = Recorder(
            kwargs.get("tracer_provider"), kwargs.get("meter_provider"), sample=kwargs.get("sample")
        )
        excluded = os.environ.get("OTEL_PYTHON_GRPC_EXCLUDED_SERVICES", "").split(",")
        how: dict[str, Any] = {
            "cache_key": kwargs.get("cache_key") or os.environ.get("HITMAP_GRPC_CACHE_KEY") or None,
            "cache_hit": kwargs.get("cache_hit") or os.environ.get("HITMAP_GRPC_CACHE_HIT") or "cache-hit",
            "exclude": kwargs.get("exclude", [name.strip() for name in excluded if name.strip()]),
        }
        self.recorder = recorder
        self._made: list[tuple[Any, str, Make]] = []
        self._replace(grpc, "server", lambda make: _with(make, [server_interceptor(recorder, **how)]))
        self._replace(grpc.aio, "server", lambda make: _with(make, [aio_server_interceptor(recorder, **how)]))
        for name in ("insecure_channel", "secure_channel"):
            self._replace(grpc, name, lambda make: _around(make, client_interceptor(recorder, **how)))
            self._replace(grpc.aio, name, lambda make: _with(make, aio_client_interceptors(recorder, **how)))

    def _uninstrument(self, **kwargs: Any) -> None:
        for module, name, make in self._made:
            setattr(module, name, make)
        self.recorder.close()

    def _replace(self, module: Any, name: str, wrap: Callable[[Make], Make]) -> None:
        make = getattr(module, name)
        self._made.append((module, name, make))
        setattr(module, name, wrap(make))


def _with(make: Make, ours: list[Any]) -> Make:
    """The constructor, with our interceptors before those of the user."""
    signature = inspect.signature(make)

    def made(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.arguments["interceptors"] = [*ours, *(bound.arguments.get("interceptors") or ())]
        return make(*bound.args, **bound.kwargs)

    return made


def _around(make: Make, client: Any) -> Make:
    """The constructor of a channel, with our interceptor nearest to the wire."""

    def made(*args: Any, **kwargs: Any) -> Any:
        return grpc.intercept_channel(make(*args, **kwargs), client)

    return made
