"""Spans of a chain in a real store, request by request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from clickhouse_connect.driver.client import Client

START = datetime(2026, 11, 29, 12, tzinfo=UTC)
_COLUMNS = (
    "Timestamp",
    "TraceId",
    "SpanId",
    "SpanName",
    "ServiceName",
    "ResourceAttributes",
    "SpanAttributes",
    "Duration",
)


@dataclass(frozen=True)
class Request:
    """at: seconds after START. took: ms. layers: length of the span of each layer that was reached, ms; hits: the
    layers that say that they answered."""

    at: float
    took: float
    layers: Mapping[str, float] = field(default_factory=dict)
    hits: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    service: str = "client"


def put(client: Client, requests: Iterable[Request], prefix: str = "t") -> None:
    """Insert them; prefix: of the trace ids."""
    rows = []
    for number, request in enumerate(requests):
        trace, at = f"{prefix}{number}", START + timedelta(seconds=request.at)
        rows.append(
            (at, trace, "r", "GET", request.service, {}, dict(request.attributes), round(1e6 * request.took))
        )
        for name, took in request.layers.items():
            hit = {"cache.hit": "true" if name in request.hits else "false"}
            rows.append((at, trace, name, name, name, {}, hit, round(1e6 * took)))
    client.insert("otel_traces", rows, column_names=_COLUMNS)
