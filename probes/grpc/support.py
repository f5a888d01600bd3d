"""What of gRPC can be watched here: a call is made and its span looked for."""

from __future__ import annotations

import os
from importlib import metadata

import grpc
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from probes.support import State, Support

from .client import ClientInterceptor
from .recorder import Recorder

INTERCEPTORS, INSTRUMENT, EXPORTER = "interceptors", "opentelemetry-instrument", "exporter of spans"
OLDEST = (1, 66)
"""The oldest grpcio that hitmap is installed with."""
_ENTRY, _GROUP = "hitmap_grpc", "opentelemetry_instrumentor"
_EXPORTERS = "opentelemetry_traces_exporter"
_CONFIGURATORS = "opentelemetry_configurator"
_OTLP = "otlp_proto_grpc", "otlp_proto_http"
_INSTALL = "pip install opentelemetry-distro opentelemetry-exporter-otlp"


def support() -> list[Support]:
    """Takes some milliseconds: the call goes to a port of this process where nobody listens."""
    return [_interceptors(), _instrument(), _exporter()]


def _interceptors() -> Support:
    versions = f"grpcio {_version('grpcio')}, OpenTelemetry SDK {_version('opentelemetry-sdk')}"
    if _numbers(grpc.__version__) < OLDEST:
        needs = f"pip install 'grpcio>={OLDEST[0]}.{OLDEST[1]}'"
        return Support("grpc", INTERCEPTORS, State.LESS, f"{versions}: older than what was tried", needs)
    spans = _spans_of_a_call()
    if spans == 1:
        return Support("grpc", INTERCEPTORS, State.YES, f"{versions}: one call, one span")
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    needs = "OTEL_SDK_DISABLED unset" if off else "pip install --upgrade grpcio opentelemetry-sdk"
    return Support("grpc", INTERCEPTORS, State.NO, f"{versions}: one call, {spans} spans", needs)


def _spans_of_a_call() -> int:
    """A call that is refused has a span like any other, and needs no server."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    recorder = Recorder(provider, sample=1.0)
    try:
        with grpc.insecure_channel("127.0.0.1:1", options=[("grpc.enable_http_proxy", 0)]) as channel:
            watched = grpc.intercept_channel(channel, ClientInterceptor(recorder))
            watched.unary_unary("/hitmap.doctor/Call")(b"", timeout=1.0)
    except grpc.RpcError:  # nobody is there
        pass
    finally:
        recorder.flush(1.0)
        recorder.close()
        provider.shutdown()
    return len(exporter.get_finished_spans())


def _instrument() -> Support:
    """Whether that command finds the interceptors: a package's entry point that can be loaded."""
    found = [entry for entry in metadata.entry_points(group=_GROUP) if entry.name == _ENTRY]
    if not found:
        why = f"no installed package has the entry point {_ENTRY}"
        return Support("grpc", INSTRUMENT, State.NO, why, "pip install hitmap, where the server runs")
    try:
        found[0].load()
    except ImportError as error:
        why = f"opentelemetry-instrumentation cannot be imported: {error}"
        return Support("grpc", INSTRUMENT, State.NO, why, _INSTALL)
    version = _version("opentelemetry-instrumentation")
    return Support("grpc", INSTRUMENT, State.YES, f"{version}, finds the interceptors as {_ENTRY}")


def _exporter() -> Support:
    """What OTEL_TRACES_EXPORTER names, in its environment and with what is installed."""
    installed = sorted({entry.name for entry in metadata.entry_points(group=_EXPORTERS)})
    told = os.environ.get("OTEL_TRACES_EXPORTER", "otlp")
    wanted = [name.strip() for name in told.split(",") if name.strip() not in ("", "none")]
    if not wanted:
        needs = "OTEL_TRACES_EXPORTER=otlp"
        return Support(
            "grpc", EXPORTER, State.NO, f"OTEL_TRACES_EXPORTER is {told!r}: no span goes out", needs
        )
    missing = [name for name in wanted if not _there(name, installed)]
    if missing:
        why = f"{', '.join(missing)} is not installed; there is {', '.join(installed) or 'none'}"
        return Support("grpc", EXPORTER, State.NO, why, _INSTALL)
    how = ", ".join(wanted)
    if not list(metadata.entry_points(group=_CONFIGURATORS)):
        how += ", set up by the server's program itself: opentelemetry-distro is not installed"
    return Support("grpc", EXPORTER, State.YES, how)


def _there(name: str, installed: list[str]) -> bool:
    """`otlp` stands for either of its protocols."""
    return any(one in installed for one in _OTLP) if name == "otlp" else name in installed


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
