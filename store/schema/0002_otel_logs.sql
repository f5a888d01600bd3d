-- Log records, in the columns of the OpenTelemetry Collector's ClickHouse exporter (bloom-filter variant), sorted as its
-- newest version sorts them; TimestampTime is kept for readers of the older one. One column more: IngestBatch.
CREATE TABLE IF NOT EXISTS otel_logs
(
    Timestamp          DateTime64(9)                       CODEC(Delta(8), ZSTD(1)),
    TimestampTime      DateTime DEFAULT toDateTime(Timestamp) CODEC(Delta(4), ZSTD(1)),
    TraceId            String                              CODEC(ZSTD(1)),
    SpanId             String                              CODEC(ZSTD(1)),
    TraceFlags         UInt8,
    SeverityText       LowCardinality(String)              CODEC(ZSTD(1)),
    SeverityNumber     UInt8,
    ServiceName        LowCardinality(String)              CODEC(ZSTD(1)),
    Body               String                              CODEC(ZSTD(1)),
    ResourceSchemaUrl  LowCardinality(String)              CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeSchemaUrl     LowCardinality(String)              CODEC(ZSTD(1)),
    ScopeName          String                              CODEC(ZSTD(1)),
    ScopeVersion       LowCardinality(String)              CODEC(ZSTD(1)),
    ScopeAttributes    Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    LogAttributes      Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    EventName          String                              CODEC(ZSTD(1)),
    IngestBatch        LowCardinality(String) DEFAULT getSetting('log_comment') CODEC(ZSTD(1)) COMMENT 'empty: not written by hitmap',

    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_res_attr_key mapKeys(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_res_attr_value mapValues(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_scope_attr_key mapKeys(ScopeAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_scope_attr_value mapValues(ScopeAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_log_attr_key mapKeys(LogAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_log_attr_value mapValues(LogAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_body Body TYPE tokenbf_v1(32768, 3, 0) GRANULARITY 8,
    INDEX idx_ingest_batch IngestBatch TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
PRIMARY KEY (toStartOfFiveMinutes(Timestamp), ServiceName)
ORDER BY (toStartOfFiveMinutes(Timestamp), ServiceName, Timestamp)
SETTINGS index_granularity = 8192,
    ttl_only_drop_parts = 1,
    non_replicated_deduplication_window = 1000,
    min_bytes_for_wide_part = 134217728;

-- One row is one ExportLogsServiceRequest (collector/otlp/otlp.proto).
CREATE TABLE IF NOT EXISTS otlp_logs
(
    resource_logs Array(Tuple(
        resource Tuple(attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String)))),
        scope_logs Array(Tuple(
            scope Tuple(name String, version String, attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String)))),
            log_records Array(Tuple(
                time_unix_nano UInt64, observed_time_unix_nano UInt64, severity_number Int32, severity_text String,
                body Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String),
                attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String))),
                flags UInt32, trace_id String, span_id String, event_name String)),
            schema_url String)),
        schema_url String))
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS otlp_logs_mv TO otel_logs AS
WITH
    (v -> multiIf(
        v.value = 1, v.string_value,
        v.value = 2, toString(v.bool_value),
        v.value = 3, toString(v.int_value),
        v.value = 4, toString(v.double_value),
        v.value = 7, base64Encode(v.bytes_value), '')) AS text,
    (kvs -> CAST((kvs.key, arrayMap(v -> text(v), kvs.value)), 'Map(LowCardinality(String), String)')) AS attributes,
    resources AS (SELECT arrayJoin(resource_logs) AS r FROM otlp_logs),
    scopes AS (
        SELECT attributes(r.resource.attributes) AS resource, r.schema_url AS resource_url, arrayJoin(r.scope_logs) AS s
        FROM resources),
    records AS (
        SELECT resource, resource_url, s.scope AS scope, attributes(s.scope.attributes) AS scope_attributes,
            s.schema_url AS scope_url, arrayJoin(s.log_records) AS record
        FROM scopes)
SELECT
    fromUnixTimestamp64Nano(toInt64(if(record.time_unix_nano = 0, record.observed_time_unix_nano, record.time_unix_nano))) AS Timestamp,
    lower(hex(record.trace_id)) AS TraceId,
    lower(hex(record.span_id)) AS SpanId,
    record.flags AS TraceFlags,
    record.severity_text AS SeverityText,
    record.severity_number AS SeverityNumber,
    resource['service.name'] AS ServiceName,
    text(record.body) AS Body,
    resource_url AS ResourceSchemaUrl,
    resource AS ResourceAttributes,
    scope_url AS ScopeSchemaUrl,
    scope.name AS ScopeName,
    scope.version AS ScopeVersion,
    scope_attributes AS ScopeAttributes,
    attributes(record.attributes) AS LogAttributes,
    record.event_name AS EventName
FROM records;
