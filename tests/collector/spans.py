"""Spans and usage put into a real store the way the collector does, for the tests of what is built from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clickhouse_connect.driver.client import Client
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.kinds import KINDS
from collector.request_log import UsageRow, parse_line

START_NS = 1_795_953_914_000_000_000
VLLM = "vllm.tracing.otel"
Attributes = Mapping[str, str | int | float]


def insert(client: Client, kind: str, batch: str, payload: bytes) -> None:
    """What the writer does with a batch, without its care for crashes."""
    told = KINDS[kind]
    settings = {**told.settings, "log_comment": batch}
    client.raw_insert(told.intake, insert_block=payload, fmt=told.format, settings=settings)


def insert_spans(client: Client, batch: str, run: Path, shift_ns: int = 0) -> None:
    """All spans of a recording, moved in time, as one batch."""
    request = ExportTraceServiceRequest()
    for body in sorted((run / "otlp").glob("*.bin")):
        request.MergeFromString(body.read_bytes())
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                span.start_time_unix_nano += shift_ns
                span.end_time_unix_nano += shift_ns
    insert(client, "traces", batch, request.SerializeToString())


def log_rows(run: Path, server: str = "vllm-tiny") -> list[UsageRow]:
    """The request log of a recording."""
    rows = [
        parse_line(line, server, START_NS / 1e9)
        for line in (run / "requests.jsonl").read_bytes().splitlines()
    ]
    assert all(isinstance(row, UsageRow) for row in rows)
    return [row for row in rows if isinstance(row, UsageRow)]


def insert_usage(client: Client, batch: str, rows: Sequence[UsageRow]) -> None:
    insert(client, "usage", batch, b"".join(row.entry().payload for row in rows))


def usage(request_id: str, server: str = "vllm", **told: Any) -> UsageRow:
    """One row of usage, of which only `told` is known."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("prompt_tokens", "cached_tokens", "completion_tokens", "client_ttft_us", "client_e2e_us")
    )
    texts = {"model": "", "finish_reason": "", "labels": {}}
    return UsageRow(time=START_NS / 1e9, server=server, request_id=request_id, **{**nothing, **texts, **told})


def span(
    attributes: Attributes,
    *,
    name: str = "llm_request",
    scope: str = VLLM,
    service: str = "vllm",
    instance: str = "",
    span_id: int = 1,
    start_ns: int = START_NS,
    duration_ns: int = 2_000_000_000,
) -> ExportTraceServiceRequest:
    """An export of one span."""
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    for key, value in (("service.name", service), ("service.instance.id", instance)):
        resource_spans.resource.attributes.add(key=key).value.string_value = value
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = scope
    made = Span(
        trace_id=(7).to_bytes(16),
        span_id=span_id.to_bytes(8),
        name=name,
        kind=Span.SPAN_KIND_SERVER,
        start_time_unix_nano=start_ns,
        end_time_unix_nano=start_ns + duration_ns,
    )
    for key, value in attributes.items():
        any_value = made.attributes.add(key=key).value
        if isinstance(value, str):
            any_value.string_value = value
        elif isinstance(value, int):
            any_value.int_value = value
        else:
            any_value.double_value = value
    scope_spans.spans.append(made)
    return request


def exported(*requests: ExportTraceServiceRequest) -> bytes:
    """Several exports as one payload."""
    return b"".join(request.SerializeToString() for request in requests)


def rows(client: Client, columns: str = "* EXCEPT run") -> list[tuple[Any, ...]]:
    """What stands in `requests`, in one order."""
    return sorted(map(tuple, client.query(f"SELECT {columns} FROM requests").result_rows), key=repr)


def only(client: Client, columns: str) -> tuple[Any, ...]:
    """The one row that stands in `requests`."""
    (row,) = rows(client, columns)
    return row


def at(ns: int) -> datetime:
    """A point in time as the client returns it."""
    return datetime.fromtimestamp(ns // 10**9, UTC).replace(tzinfo=None)
