-- Spans, in the columns of the OpenTelemetry Collector's ClickHouse exporter (its bloom-filter variant), so that what
-- reads that schema reads ours and a stock Collector may write beside us. One column more: IngestBatch.
CREATE TABLE IF NOT EXISTS otel_traces
(
    Timestamp          DateTime64(9)                       CODEC(Delta(8), ZSTD(1)),
    TraceId            String                              CODEC(ZSTD(1)),
    SpanId             String                              CODEC(ZSTD(1)),
    ParentSpanId       String                              CODEC(ZSTD(1)),
    TraceState         String                              CODEC(ZSTD(1)),
    SpanName           LowCardinality(String)              CODEC(ZSTD(1)),
    SpanKind           LowCardinality(String)              CODEC(ZSTD(1)),
    ServiceName        LowCardinality(String)              CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeName          String                              CODEC(ZSTD(1)),
    ScopeVersion       String                              CODEC(ZSTD(1)),
    SpanAttributes     Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    Duration           UInt64                              CODEC(T64, ZSTD(1)) COMMENT 'nanoseconds',
    StatusCode         LowCardinality(String)              CODEC(ZSTD(1)),
    StatusMessage      String                              CODEC(ZSTD(1)),
    Events             Nested
    (
        Timestamp  DateTime64(9),
        Name       LowCardinality(String),
        Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),
    Links              Nested
    (
        TraceId    String,
        SpanId     String,
        TraceState String,
        Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),
    ResourceAttributeItems Array(String) ALIAS arrayMap((k, v) -> concat(k, '=', v), mapKeys(ResourceAttributes), mapValues(ResourceAttributes)),
    SpanAttributeItems     Array(String) ALIAS arrayMap((k, v) -> concat(k, '=', v), mapKeys(SpanAttributes), mapValues(SpanAttributes)),
    IngestBatch        LowCardinality(String) DEFAULT getSetting('log_comment') CODEC(ZSTD(1)) COMMENT 'empty: not written by hitmap',

    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_res_attr_key mapKeys(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_res_attr_value mapValues(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_span_attr_key mapKeys(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_span_attr_value mapValues(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_duration Duration TYPE minmax GRANULARITY 1,
    INDEX idx_lower_span_name lower(SpanName) TYPE tokenbf_v1(32768, 3, 0) GRANULARITY 8,
    INDEX idx_ingest_batch IngestBatch TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
PRIMARY KEY (ServiceName, SpanName, toDateTime(Timestamp))
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp), Timestamp)
SETTINGS index_granularity = 8192,
    ttl_only_drop_parts = 1,
    non_replicated_deduplication_window = 1000,
    -- a fresh part is one file, not ninety: creating those costs more than compressing the rows
    min_bytes_for_wide_part = 134217728;

-- From a trace id to the time range to look in: min(Start) and max(End) of its rows, which merges bring down to one.
CREATE TABLE IF NOT EXISTS otel_traces_trace_id_ts
(
    TraceId String                                 CODEC(ZSTD(1)),
    Start   SimpleAggregateFunction(min, DateTime) CODEC(ZSTD(1)),
    End     SimpleAggregateFunction(max, DateTime) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toStartOfWeek(Start)
ORDER BY TraceId
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, min_bytes_for_wide_part = 134217728;

CREATE MATERIALIZED VIEW IF NOT EXISTS otel_traces_trace_id_ts_mv TO otel_traces_trace_id_ts AS
SELECT TraceId, Timestamp AS Start, Timestamp AS End
FROM otel_traces
WHERE TraceId != '';

-- Where OTLP arrives as ClickHouse parses it (collector/otlp/otlp.proto): one row is one ExportTraceServiceRequest.
CREATE TABLE IF NOT EXISTS otlp_traces
(
    resource_spans Array(Tuple(
        resource Tuple(attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String)))),
        scope_spans Array(Tuple(
            scope Tuple(name String, version String),
            spans Array(Tuple(
                trace_id String, span_id String, trace_state String, parent_span_id String,
                name String, kind Int32, start_time_unix_nano UInt64, end_time_unix_nano UInt64,
                attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String))),
                events Array(Tuple(time_unix_nano UInt64, name String, attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String))))),
                links Array(Tuple(trace_id String, span_id String, trace_state String, attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String))))),
                status Tuple(message String, code Int32)))))))
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS otlp_traces_mv TO otel_traces AS
WITH
    (v -> multiIf(
        v.value = 1, v.string_value,
        v.value = 2, toString(v.bool_value),
        v.value = 3, toString(v.int_value),
        v.value = 4, toString(v.double_value),
        v.value = 7, base64Encode(v.bytes_value), '')) AS text,
    (kvs -> CAST((kvs.key, arrayMap(v -> text(v), kvs.value)), 'Map(LowCardinality(String), String)')) AS attributes,
    resources AS (SELECT arrayJoin(resource_spans) AS r FROM otlp_traces),
    -- attributes become a map once a resource, not once a span
    scopes AS (SELECT attributes(r.resource.attributes) AS resource, arrayJoin(r.scope_spans) AS s FROM resources),
    spans AS (SELECT resource, s.scope AS scope, arrayJoin(s.spans) AS span FROM scopes)
SELECT
    fromUnixTimestamp64Nano(toInt64(span.start_time_unix_nano)) AS Timestamp,
    lower(hex(span.trace_id)) AS TraceId,
    lower(hex(span.span_id)) AS SpanId,
    lower(hex(span.parent_span_id)) AS ParentSpanId,
    span.trace_state AS TraceState,
    span.name AS SpanName,
    transform(span.kind, [0, 1, 2, 3, 4, 5], ['Unspecified', 'Internal', 'Server', 'Client', 'Producer', 'Consumer'], '') AS SpanKind,
    resource['service.name'] AS ServiceName,
    resource AS ResourceAttributes,
    scope.name AS ScopeName,
    scope.version AS ScopeVersion,
    attributes(span.attributes) AS SpanAttributes,
    span.end_time_unix_nano - span.start_time_unix_nano AS Duration,
    transform(span.status.code, [0, 1, 2], ['Unset', 'Ok', 'Error'], '') AS StatusCode,
    span.status.message AS StatusMessage,
    arrayMap(t -> fromUnixTimestamp64Nano(toInt64(t)), span.events.time_unix_nano) AS `Events.Timestamp`,
    span.events.name AS `Events.Name`,
    arrayMap(kvs -> attributes(kvs), span.events.attributes) AS `Events.Attributes`,
    arrayMap(id -> lower(hex(id)), span.links.trace_id) AS `Links.TraceId`,
    arrayMap(id -> lower(hex(id)), span.links.span_id) AS `Links.SpanId`,
    span.links.trace_state AS `Links.TraceState`,
    arrayMap(kvs -> attributes(kvs), span.links.attributes) AS `Links.Attributes`
FROM spans;
