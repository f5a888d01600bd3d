"""What a batch of spans is in the store right after its insert, and after the first merge."""

from __future__ import annotations

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.spans import export_request
from tests.collector.spans import START_NS, insert
from tests.conftest import Database

ATTRIBUTE_FILTERS = ("idx_res_attr_key", "idx_res_attr_value", "idx_span_attr_key", "idx_span_attr_value")
SPANS = 64


def test_attributes_can_be_searched_before_the_first_merge_builds_their_filters(db: Database) -> None:
    db.client.command("SYSTEM STOP MERGES otel_traces")
    for seed in range(2):
        insert(db.client, "traces", f"batch-{seed}", export_request(seed, SPANS))
    wanted = db.client.command(
        "SELECT SpanAttributes['gen_ai.request.id'] FROM otel_traces ORDER BY SpanId LIMIT 1"
    )
    assert (_filters(db), _found(db, wanted)) == (set(), 1)
    db.client.command("SYSTEM START MERGES otel_traces")
    db.client.command("OPTIMIZE TABLE otel_traces FINAL")
    assert (_filters(db), _found(db, wanted)) == (set(ATTRIBUTE_FILTERS), 1)


def test_a_trace_of_many_spans_has_the_range_of_time_of_all_of_them(db: Database) -> None:
    request = ExportTraceServiceRequest.FromString(export_request(1, 3))
    for second, span in enumerate(request.resource_spans[0].scope_spans[0].spans):
        span.trace_id = b"one trace, three"
        span.start_time_unix_nano = START_NS + second * 10**9
        span.end_time_unix_nano = START_NS + 9 * 10**9
    insert(db.client, "traces", "batch", request.SerializeToString())
    found = db.client.query(
        "SELECT toUnixTimestamp(min(Start)), toUnixTimestamp(max(End)) FROM otel_traces_trace_id_ts"
        " WHERE TraceId = lower(hex('one trace, three'))"
    )
    assert found.result_rows == [(START_NS // 10**9, START_NS // 10**9 + 2)]


def _filters(db: Database) -> set[str]:
    """The filters over attributes that hold anything."""
    rows = db.client.query(
        "SELECT name FROM system.data_skipping_indices"
        " WHERE database = currentDatabase() AND table = 'otel_traces' AND data_compressed_bytes > 0"
    ).result_rows
    return {name for (name,) in rows} & set(ATTRIBUTE_FILTERS)


def _found(db: Database, request_id: object) -> int:
    return int(
        db.client.command(
            "SELECT count() FROM otel_traces WHERE has(mapValues(SpanAttributes), {id:String})",
            parameters={"id": request_id},
        )
    )
