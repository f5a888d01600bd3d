"""The stock OpenTelemetry exporters over grpc, http/protobuf and http/json: the same rows, whichever door."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.common.http import Compression as JsonCompression
from opentelemetry.exporter.otlp.json.http._log_exporter import OTLPLogExporter as JsonLogs
from opentelemetry.exporter.otlp.json.http.metric_exporter import OTLPMetricExporter as JsonMetrics
from opentelemetry.exporter.otlp.json.http.trace_exporter import OTLPSpanExporter as JsonSpans
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from collector.otlp.grpc import OtlpGrpcReceiver
from collector.otlp.http import OtlpHttpReceiver
from collector.pipeline import Pipeline
from collector.writer import Flush
from tests.conftest import Database

RESOURCE = Resource.create({"service.name": "shop", "numbers": [1, 2]})
METRIC_TABLES = ("gauge", "sum", "histogram", "exp_histogram", "summary")

# door: what makes the exporter of each signal, told the address of gRPC and of HTTP
DOORS: dict[str, tuple[Callable[[str, str], Any], ...]] = {
    "grpc": (
        lambda at, _: GrpcSpans(at, insecure=True),
        lambda at, _: GrpcMetrics(at, insecure=True),
        lambda at, _: GrpcLogs(at, insecure=True),
    ),
    "grpc gzip": (
        lambda at, _: GrpcSpans(at, insecure=True, compression=grpc.Compression.Gzip),
        lambda at, _: GrpcMetrics(at, insecure=True, compression=grpc.Compression.Gzip),
        lambda at, _: GrpcLogs(at, insecure=True, compression=grpc.Compression.Gzip),
    ),
    "http/protobuf": (
        lambda _, at: HttpSpans(f"http://{at}/v1/traces"),
        lambda _, at: HttpMetrics(f"http://{at}/v1/metrics"),
        lambda _, at: HttpLogs(f"http://{at}/v1/logs"),
    ),
    "http/protobuf gzip": (
        lambda _, at: HttpSpans(f"http://{at}/v1/traces", compression=Compression.Gzip),
        lambda _, at: HttpMetrics(f"http://{at}/v1/metrics", compression=Compression.Gzip),
        lambda _, at: HttpLogs(f"http://{at}/v1/logs", compression=Compression.Deflate),
    ),
    "http/json": (
        lambda _, at: JsonSpans(f"http://{at}/v1/traces"),
        lambda _, at: JsonMetrics(f"http://{at}/v1/metrics"),
        lambda _, at: JsonLogs(f"http://{at}/v1/logs"),
    ),
    "http/json gzip": (
        lambda _, at: JsonSpans(f"http://{at}/v1/traces", compression=JsonCompression.GZIP),
        lambda _, at: JsonMetrics(f"http://{at}/v1/metrics", compression=JsonCompression.GZIP),
        lambda _, at: JsonLogs(f"http://{at}/v1/logs", compression=JsonCompression.GZIP),
    ),
}


def made_spans() -> Sequence[ReadableSpan]:
    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("scope", "1.2", attributes={"scope": "yes"})
    other = SpanContext(1, 2**63 + 2, is_remote=True, trace_flags=TraceFlags(1))
    with tracer.start_as_current_span("parent", kind=SpanKind.SERVER) as parent:
        with tracer.start_as_current_span("child", links=[Link(other, {"why": "because"})]) as child:
            child.set_attributes(
                {"s": "grün \u2028\0", "i": -(2**63), "j": 2**63 - 1, "f": 0.1, "z": 0, "t": True, "e": ""}
            )
            child.set_attributes({"a": [True, False], "n": [1.5, -2.0], "b": b"\0\xff"})
            child.add_event("ev", {"n": 1})
        parent.set_status(Status(StatusCode.ERROR, "broke"))
    return kept.get_finished_spans()


def made_metrics() -> MetricsData:
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], resource=RESOURCE).get_meter("scope")
    meter.create_counter("count", unit="1", description="how many").add(3, {"route": "/"})
    meter.create_gauge("level").set(0.1)
    meter.create_up_down_counter("open").add(-(2**40))
    meter.create_histogram("took", explicit_bucket_boundaries_advisory=[1, 10]).record(5)
    data = reader.get_metrics_data()
    assert data
    return data


def made_records() -> Sequence[Any]:
    kept = InMemoryLogRecordExporter()
    provider = LoggerProvider(resource=RESOURCE)
    provider.add_log_record_processor(SimpleLogRecordProcessor(kept))
    logger = provider.get_logger("scope", "3")
    logger.emit(
        timestamp=time.time_ns(),
        severity_text="WARN",
        severity_number=SeverityNumber.WARN,
        body={"text": "hot", "n": [1]},
        attributes={"k": 2},
    )
    logger.emit(timestamp=time.time_ns(), body="plain", event_name="shop.closed")
    return kept.get_finished_logs()


@contextmanager
def doors(db: Database, spool: Path) -> Iterator[tuple[Pipeline, str, str]]:
    """A pipeline with both doors open: it and their addresses."""
    with Pipeline(db.dsn, spool, flush=Flush(age_s=0.05)) as pipeline:
        receivers = [
            kind(pipeline.sink, pipeline.tally, "127.0.0.1:0")
            for kind in (OtlpGrpcReceiver, OtlpHttpReceiver)
        ]
        for receiver in receivers:
            receiver.start()
        try:
            yield pipeline, receivers[0].endpoint, receivers[1].endpoint
        finally:
            for receiver in receivers:
                receiver.stop(1)


def rows_of(db: Database, table: str) -> list[tuple[Any, ...]]:
    return sorted(db.client.query(f"SELECT * EXCEPT IngestBatch FROM {table}").result_rows, key=repr)


def test_the_same_telemetry_becomes_the_same_rows_by_every_door(db: Database, tmp_path: Path) -> None:
    tables = ("otel_traces", "otel_logs", *(f"otel_metrics_{name}" for name in METRIC_TABLES))
    spans, metrics, records = made_spans(), made_metrics(), made_records()
    seen = {}
    for number, (door, (of_spans, of_metrics, of_records)) in enumerate(DOORS.items()):
        with doors(db, tmp_path / str(number)) as (_, *addresses):
            for exporter, data, good in (
                (of_spans(*addresses), spans, SpanExportResult.SUCCESS),
                (of_metrics(*addresses), metrics, MetricExportResult.SUCCESS),
            ):
                assert exporter.export(data) is good, door
                exporter.shutdown()
            exporter = of_records(*addresses)
            assert exporter.export(records).name == "SUCCESS", door
            exporter.shutdown()
        seen[door] = {table: rows_of(db, table) for table in tables}
        for table in tables:
            db.client.command(f"TRUNCATE TABLE {table}")
    expected = seen.pop("grpc")
    assert {table: len(rows) for table, rows in expected.items() if rows} == {
        "otel_traces": 2,
        "otel_logs": 2,
        "otel_metrics_sum": 2,
        "otel_metrics_gauge": 1,
        "otel_metrics_histogram": 1,
    }
    for door, rows in seen.items():
        for table in tables:
            assert rows[table] == expected[table], (door, table)


def test_events_keep_their_names(db: Database, tmp_path: Path) -> None:
    with doors(db, tmp_path) as (_, _, at):
        JsonLogs(f"http://{at}/v1/logs").export(made_records())
    rows = db.client.query("SELECT EventName, Body FROM otel_logs ORDER BY EventName").result_rows
    assert rows == [("", '{"text":"hot","n":[1]}'), ("shop.closed", "plain")]


@pytest.mark.parametrize("exporter", [HttpSpans, JsonSpans])
def test_stock_http_exporters_wait_out_a_full_spool(
    db: Database, tmp_path: Path, exporter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.spool.RETRY_AFTER_S", 1.0)
    with doors(db, tmp_path) as (pipeline, *_):
        spool: Any = pipeline.sink
        spool.limit_bytes, limit = 10, spool.limit_bytes
        refused = []

        class Opening:
            """The sink that has room after it was found full once."""

            def put(self, entries: Any) -> int:
                try:
                    accepted: int = spool.put(entries)
                except BaseException as error:
                    refused.append(error)
                    spool.limit_bytes = limit
                    raise
                return accepted

        with_opening = OtlpHttpReceiver(Opening(), pipeline.tally, "127.0.0.1:0")
        with_opening.start()
        sender = exporter(f"http://{with_opening.endpoint}/v1/traces", timeout=20)
        assert sender.export(made_spans()) is SpanExportResult.SUCCESS
        with_opening.stop(1)
    assert len(refused) == 1
    assert db.client.command("SELECT count() FROM otel_traces") == 2
