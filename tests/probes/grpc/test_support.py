"""What `hitmap doctor` says of gRPC is what was tried."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Any

import grpc
import pytest

from probes.grpc import support as module
from probes.grpc.support import EXPORTER, INSTRUMENT, INTERCEPTORS, support
from probes.support import State, Support


def rows() -> dict[str, Support]:
    found = support()
    assert {row.sensor for row in found} == {"grpc"}
    assert all(bool(row.needs) == (row.state in (State.NO, State.LESS)) for row in found)
    return {row.name: row for row in found}


def test_here_a_call_gives_a_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
    row = rows()[INTERCEPTORS]
    assert row.state is State.YES
    assert f"grpcio {grpc.__version__}" in row.how
    assert row.how.endswith("one call, one span")


def test_a_switched_off_sdk_gives_none_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    row = rows()[INTERCEPTORS]
    assert (row.state, row.needs) == (State.NO, "OTEL_SDK_DISABLED unset")
    assert row.how.endswith("one call, 0 spans")


def test_an_old_grpcio_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc, "__version__", "1.59.3")
    row = rows()[INTERCEPTORS]
    assert (row.state, row.needs) == (State.LESS, "pip install 'grpcio>=1.66'")


def test_opentelemetry_instrument_finds_the_entry_point_or_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("opentelemetry.instrumentation", reason="needs hitmap[dev]")
    entry = importlib.metadata.EntryPoint(
        "hitmap_grpc", "probes.grpc.instrumentor:GrpcProbes", "opentelemetry_instrumentor"
    )
    registered(monkeypatch, entry)
    assert rows()[INSTRUMENT].state is State.YES
    registered(monkeypatch)
    assert (rows()[INSTRUMENT].state, "hitmap_grpc" in rows()[INSTRUMENT].how) == (State.NO, True)
    registered(monkeypatch, entry)
    monkeypatch.delitem(sys.modules, "probes.grpc.instrumentor", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.instrumentation.instrumentor", None)
    row = rows()[INSTRUMENT]
    assert row.state is State.NO
    assert "pip install opentelemetry-distro" in row.needs


@pytest.mark.parametrize(
    ("told", "installed", "state", "says"),
    [
        (None, ("otlp_proto_grpc",), State.YES, "otlp, set up by the server's program"),
        ("otlp", ("otlp_proto_http",), State.YES, "otlp"),
        ("console,otlp", ("console", "otlp_proto_grpc"), State.YES, "console, otlp"),
        (None, ("console",), State.NO, "otlp is not installed; there is console"),
        ("zipkin", ("otlp_proto_grpc",), State.NO, "zipkin is not installed"),
        (None, (), State.NO, "there is none"),
        ("none", ("otlp_proto_grpc",), State.NO, "no span goes out"),
    ],
)
def test_exporters(
    told: str | None, installed: tuple[str, ...], state: State, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if told is None:
        monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    else:
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", told)
    registered(
        monkeypatch,
        *(importlib.metadata.EntryPoint(name, "x:Y", "opentelemetry_traces_exporter") for name in installed),
    )
    row = rows()[EXPORTER]
    assert row.state is state
    assert says in row.how


def test_with_a_distro_nothing_is_left_to_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    registered(
        monkeypatch,
        importlib.metadata.EntryPoint("otlp_proto_grpc", "x:Y", "opentelemetry_traces_exporter"),
        importlib.metadata.EntryPoint("configurator", "x:Y", "opentelemetry_configurator"),
    )
    assert rows()[EXPORTER].how == "otlp"


def registered(monkeypatch: pytest.MonkeyPatch, *entries: Any) -> None:
    """These entry points are installed here, and no others."""
    monkeypatch.setattr(
        module.metadata,
        "entry_points",
        lambda group: importlib.metadata.EntryPoints(entry for entry in entries if entry.group == group),
    )
