"""OTLP/gRPC over a real socket, mostly with the stock OpenTelemetry SDK as the sender."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from benchmarks.spans import METHOD, export_request
from cachemodel.errors import UserError
from collector.otlp.check import Window
from collector.otlp.grpc import OtlpGrpcReceiver
from collector.otlp.intake import MALFORMED, Limits
from collector.pipeline import Pipeline
from collector.spool import Spool
from collector.tally import Tally
from collector.writer import Flush
from tests.collector.grpc_door import call, eventually, listening, refusal
from tests.conftest import Database

RESOURCE = Resource.create({"service.name": "shop", "numbers": [1, 2]})


@pytest.fixture
def pipeline(db: Database, tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(db.dsn, tmp_path / "spool", flush=Flush(age_s=0.05)) as running:
        yield running


def test_sdk_traces_arrive_as_the_contrib_exporter_would_write_them(db: Database, pipeline: Pipeline) -> None:
    with listening(pipeline.sink) as receiver:
        provider = TracerProvider(resource=RESOURCE)
        exporter = OTLPSpanExporter(receiver.endpoint, insecure=True, compression=grpc.Compression.Gzip)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        tracer = provider.get_tracer("scope", "1.2")
        other = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1))
        with tracer.start_as_current_span("parent", kind=SpanKind.SERVER) as parent:
            with tracer.start_as_current_span("child", links=[Link(other, {"why": "because"})]) as child:
                child.set_attributes(
                    {"s": "grün", "i": -5, "f": 0.5, "z": 0, "t": True, "e": "", "a": [True, False]}
                )
                child.add_event("ev", {"n": 1})
            parent.set_status(Status(StatusCode.ERROR, "broke"))
        provider.shutdown()
    eventually(lambda: db.client.command("SELECT count() FROM otel_traces") == 2)
    child_row, parent_row = db.client.query("SELECT * FROM otel_traces ORDER BY SpanName").named_results()
    context = child.get_span_context()
    assert child_row["TraceId"] == trace.format_trace_id(context.trace_id)
    assert child_row["SpanId"] == trace.format_span_id(context.span_id)
    assert child_row["ParentSpanId"] == parent_row["SpanId"]
    assert parent_row["ParentSpanId"] == ""
    assert (child_row["SpanKind"], parent_row["SpanKind"]) == ("Internal", "Server")
    assert (child_row["StatusCode"], parent_row["StatusCode"]) == ("Unset", "Error")
    assert parent_row["StatusMessage"] == "broke"
    assert child_row["ServiceName"] == "shop"
    assert child_row["ResourceAttributes"]["numbers"] == "[1,2]"
    assert (child_row["ScopeName"], child_row["ScopeVersion"]) == ("scope", "1.2")
    assert child_row["SpanAttributes"] == {
        "s": "grün", "i": "-5", "f": "0.5", "z": "0", "t": "true", "e": "", "a": "[true,false]",
    }  # fmt: skip
    assert child_row["Duration"] == child.end_time - child.start_time
    times = db.client.query(
        "SELECT toUnixTimestamp64Nano(Timestamp), Events.Timestamp[1] >= Timestamp FROM otel_traces"
        " WHERE SpanName = 'child'"
    )
    assert times.result_rows == [(child.start_time, True)]
    assert (child_row["Events.Name"], child_row["Events.Attributes"]) == (["ev"], [{"n": "1"}])
    assert (child_row["Links.TraceId"], child_row["Links.SpanId"]) == ([f"{1:032x}"], [f"{2:016x}"])
    assert child_row["Links.Attributes"] == [{"why": "because"}]
    assert child_row["IngestBatch"]
    ranges = "SELECT TraceId, min(Start) <= max(End) FROM otel_traces_trace_id_ts GROUP BY TraceId"
    # what a materialized view writes is seen a little later
    eventually(lambda: db.client.query(ranges).result_rows == [(child_row["TraceId"], True)])


def test_sdk_metrics_arrive_in_their_tables(db: Database, pipeline: Pipeline) -> None:
    with listening(pipeline.sink) as receiver:
        exporter = OTLPMetricExporter(receiver.endpoint, insecure=True)
        provider = MeterProvider([PeriodicExportingMetricReader(exporter, 10**6)], resource=RESOURCE)
        meter = provider.get_meter("scope")
        meter.create_counter("count", unit="1", description="how many").add(3, {"route": "/"})
        meter.create_gauge("level").set(0.25)
        meter.create_histogram("took", explicit_bucket_boundaries_advisory=[1, 10]).record(5)
        provider.shutdown()
    eventually(lambda: pipeline.stats().kinds.get("metrics") is not None and not pipeline.stats().pending)
    sums = db.client.query(
        "SELECT MetricName, MetricUnit, Attributes, Value, IsMonotonic, AggregationTemporality, ServiceName"
        " FROM otel_metrics_sum"
    )
    assert sums.result_rows == [("count", "1", {"route": "/"}, 3.0, True, 2, "shop")]
    assert db.client.query("SELECT MetricName, Value FROM otel_metrics_gauge").result_rows == [
        ("level", 0.25)
    ]
    histograms = db.client.query(
        "SELECT Count, Sum, BucketCounts, ExplicitBounds, Min, Max FROM otel_metrics_histogram"
    )
    assert histograms.result_rows == [(1, 5.0, [0, 1, 0], [1.0, 10.0], 5.0, 5.0)]


def test_sdk_logs_arrive(db: Database, pipeline: Pipeline) -> None:
    with listening(pipeline.sink) as receiver:
        provider = LoggerProvider(resource=RESOURCE)
        provider.add_log_record_processor(
            SimpleLogRecordProcessor(OTLPLogExporter(receiver.endpoint, insecure=True))
        )
        provider.get_logger("scope").emit(
            timestamp=time.time_ns(),
            severity_text="WARN",
            body={"text": "hot", "n": [1]},
            attributes={"k": 2},
        )
        provider.shutdown()
    eventually(lambda: db.client.command("SELECT count() FROM otel_logs") == 1)
    rows = db.client.query(
        "SELECT Body, SeverityText, LogAttributes, ServiceName, ScopeName FROM otel_logs"
    ).result_rows
    assert rows == [('{"text":"hot","n":[1]}', "WARN", {"k": "2"}, "shop", "scope")]


def test_a_recording_sent_twice_is_stored_once(db: Database, pipeline: Pipeline, run1: Path) -> None:
    bodies = [file.read_bytes() for file in sorted(run1.glob("otlp/*.bin"))]
    spans = sum(
        len(s.spans)
        for b in bodies
        for r in ExportTraceServiceRequest.FromString(b).resource_spans
        for s in r.scope_spans
    )
    limits = Limits(window=Window(max_age_s=100 * 365 * 86400))
    with listening(pipeline.sink, pipeline.tally, limits=limits) as receiver:
        for body in bodies * 2:
            call(receiver, body)
        eventually(lambda: not pipeline.stats().pending)
        counts = db.client.query("SELECT count(), uniqExact(SpanId) FROM otel_traces").result_rows
    assert counts == [(spans, spans)]
    tally = pipeline.stats().kinds["traces"]
    assert (tally.accepted, tally.duplicates, tally.written) == (spans, spans, spans)


def test_partial_success_says_how_many_and_why(tmp_path: Path) -> None:
    request = ExportTraceServiceRequest.FromString(export_request(1, spans=3))
    request.resource_spans[0].scope_spans[0].spans[1].start_time_unix_nano = 1
    tally = Tally()
    box = Spool(tmp_path, tally)
    with listening(box, tally) as receiver:
        answer = call(receiver, request.SerializeToString())
    assert answer.partial_success.rejected_spans == 1
    assert answer.partial_success.error_message == "1 x time is too long ago"
    assert box.pending() == {"traces": 2}
    assert tally.snapshot()["traces"].rejected == {"time is too long ago": 1}


def test_malformed_requests_are_refused_for_good_and_counted(tmp_path: Path) -> None:
    tally = Tally()
    with listening(Spool(tmp_path, tally), tally) as receiver:
        assert refusal(receiver, b"\xff\xff").code() is grpc.StatusCode.INVALID_ARGUMENT
        assert refusal(receiver, export_request(1)[:-1]).code() is grpc.StatusCode.INVALID_ARGUMENT
        assert call(receiver, export_request(2)) == ExportTraceServiceResponse(), "the receiver goes on"
    snapshot = tally.snapshot()["traces"]
    assert (snapshot.accepted, snapshot.rejected) == (512, {MALFORMED: 2})


def test_a_call_without_a_message_is_malformed(tmp_path: Path) -> None:
    with listening(Spool(tmp_path)) as receiver, grpc.insecure_channel(receiver.endpoint) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            channel.stream_unary(METHOD)(iter(()), timeout=10)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_port_in_use_is_a_clear_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match="in use"):
            OtlpGrpcReceiver(Spool(tmp_path), Tally(), address)


def test_unknown_methods_are_refused(tmp_path: Path) -> None:
    with listening(Spool(tmp_path)) as receiver, grpc.insecure_channel(receiver.endpoint) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary("/nothing.Like/This")(b"", timeout=5)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
