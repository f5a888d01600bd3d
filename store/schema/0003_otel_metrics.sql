-- Metric points, in the columns of the OpenTelemetry Collector's ClickHouse exporter, one table a metric type, keyed as its
-- newest version keys them (no attribute in the primary key) but with times to the nanosecond as in the older one.
-- Columns more: IngestBatch.
CREATE TABLE IF NOT EXISTS otel_metrics_gauge
(
    ResourceAttributes    Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ResourceSchemaUrl     String                              CODEC(ZSTD(1)),
    ScopeName             String                              CODEC(ZSTD(1)),
    ScopeVersion          String                              CODEC(ZSTD(1)),
    ScopeAttributes       Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeDroppedAttrCount UInt32                              CODEC(ZSTD(1)),
    ScopeSchemaUrl        String                              CODEC(ZSTD(1)),
    ServiceName           LowCardinality(String)              CODEC(ZSTD(1)),
    MetricName            LowCardinality(String)              CODEC(ZSTD(1)),
    MetricDescription     String                              CODEC(ZSTD(1)),
    MetricUnit            String                              CODEC(ZSTD(1)),
    Attributes            Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    StartTimeUnix         DateTime64(9)                       CODEC(Delta(8), ZSTD(1)),
    TimeUnix              DateTime64(9)                       CODEC(Delta(8), ZSTD(1)),
    Value                 Float64                             CODEC(ZSTD(1)),
    Exemplars             Nested
    (
        FilteredAttributes Map(LowCardinality(String), String),
        TimeUnix           DateTime64(9),
        Value              Float64,
        SpanId             String,
        TraceId            String
    ) CODEC(ZSTD(1)),
    Flags                 UInt32                              CODEC(ZSTD(1)),
    IngestBatch           LowCardinality(String) DEFAULT getSetting('log_comment') CODEC(ZSTD(1)) COMMENT 'empty: not written by hitmap',

    INDEX idx_res_attr_key mapKeys(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_res_attr_value mapValues(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_scope_attr_key mapKeys(ScopeAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_scope_attr_value mapValues(ScopeAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_attr_key mapKeys(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_attr_value mapValues(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_time_unix TimeUnix TYPE minmax GRANULARITY 1,
    INDEX idx_ingest_batch IngestBatch TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(TimeUnix)
ORDER BY (ServiceName, MetricName, toStartOfHour(TimeUnix), cityHash64(Attributes), TimeUnix)
SETTINGS index_granularity = 8192,
    ttl_only_drop_parts = 1,
    non_replicated_deduplication_window = 1000,
    min_bytes_for_wide_part = 134217728;

CREATE TABLE IF NOT EXISTS otel_metrics_sum
(
    ResourceAttributes    Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ResourceSchemaUrl     String                              CODEC(ZSTD(1)),
    ScopeName             String                              CODEC(ZSTD(1)),
    ScopeVersion          String                              CODEC(ZSTD(1)),
    ScopeAttributes       Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeDroppedAttrCount UInt32                              CODEC(ZSTD(1)),
    ScopeSchemaUrl        String                              CODEC(ZSTD(1)),
    ServiceName           LowCardinality(String)              CODEC(ZSTD(1)),
    MetricName            LowCardinality(String)              CODEC(ZSTD(1)),
    MetricDescription     String                              CODEC(ZSTD(1)),
    MetricUnit            String                              CODEC(ZSTD(1)),
    Attributes            Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    StartTimeUnix         DateTime64(9)                       CODEC(Delta(8), ZSTD(1)),
    TimeUnix              DateTime64(9)                       CODEC(Delta(8), ZSTD(1)),
    Value                 Float64                             CODEC(ZSTD(1)),
    AggregationTemporality Int32                               CODEC(ZSTD(1)),
    IsMonotonic           Boolean                             CODEC(Delta, ZSTD(1)),
    Exemplars             Nested
    (
        FilteredAttributes Map(LowCardinality(String), String),
        TimeUnix           DateTime64(9),
        Value              Float64,
        SpanId             String,
        TraceId            String
    ) CODEC(ZSTD(1)),
    Flags                 UInt32                              CODEC(ZSTD(1)),
    IngestBatch           LowCardinality(String) DEFAULT getSetting('log_comment') CODEC(ZSTD(1)) COMMENT 'empty: not written by hitmap',

    INDEX idx_res_attr_key mapKeys(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_res_attr_value mapValues(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_scope_attr_key mapKeys(ScopeAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_scope_attr_value mapValues(ScopeAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_attr_key mapKeys(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_attr_value mapValues(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_time_unix TimeUnix TYPE minmax GRANULARITY 1,
    INDEX idx_ingest_batch IngestBatch TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(TimeUnix)
ORDER BY (ServiceName, MetricName, toStartOfHour(TimeUnix), cityHash64(Attributes), TimeUnix)
SETTINGS index_granularity = 8192,
    ttl_only_drop_parts = 1,
    non_replicated_deduplication_window = 1000,
    min_bytes_for_wide_part = 134217728;

CREATE TABLE IF NOT EXISTS otel_metrics_histogram
(
    ResourceAttributes    Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ResourceSchemaUrl     String                              CODEC(ZSTD(1)),
    ScopeName             String                              CODEC(ZSTD(1)),
    ScopeVersion          String                              CODEC(ZSTD(1)),
    ScopeAttributes       Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeDroppedAttrCount UInt32                              CODEC(ZSTD(1)),
    ScopeSchemaUrl        String                              CODEC(ZSTD(1)),
    ServiceName           LowCardinality(String)              CODEC(ZSTD(1)),
    MetricName            LowCardinality(String)              CODEC(ZSTD(1)),
    MetricDescription     String                              CODEC(ZSTD(1)),
    MetricUnit            String                              CODEC(ZSTD(1)),
    Attributes            Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    StartTimeUnix         DateTime64(9)                       CODEC(Delta(8), ZSTD(1)),
    TimeUnix              DateTime64(9)                       CODEC(Delta(8), ZSTD(1)),
    Count                 UInt64                              CODEC(Delta, ZSTD(1)),
    Sum                   Float64                             CODEC(ZSTD(1)),
    BucketCounts          Array(UInt64)                       CODEC(ZSTD(1)),
    ExplicitBounds        Array(Float64)                      CODEC(ZSTD(1)),
    Min                   Float64                             CODEC(ZSTD(1)),
    Max                   Float64                             CODEC(ZSTD(1)),
    AggregationTemporality Int32                               CODEC(ZSTD(1)),
    Exemplars             Nested
    (
        FilteredAttributes Map(LowCardinality(String), String),
        TimeUnix           DateTime64(9),
        Value              Float64,
        SpanId             String,
        TraceId            String
    ) CODEC(ZSTD(1)),
    Flags                 UInt32                              CODEC(ZSTD(1)),
    IngestBatch           LowCardinality(String) DEFAULT getSetting('log_comment') CODEC(ZSTD(1)) COMMENT 'empty: not written by hitmap',

    INDEX idx_res_attr_key mapKeys(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_res_attr_value mapValues(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_scope_attr_key mapKeys(ScopeAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_scope_attr_value mapValues(ScopeAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_attr_key mapKeys(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_attr_value mapValues(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_time_unix TimeUnix TYPE minmax GRANULARITY 1,
    INDEX idx_ingest_batch IngestBatch TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(TimeUnix)
ORDER BY (ServiceName, MetricName, toStartOfHour(TimeUnix), cityHash64(Attributes), TimeUnix)
SETTINGS index_granularity = 8192,
    ttl_only_drop_parts = 1,
    non_replicated_deduplication_window = 1000,
    min_bytes_for_wide_part = 134217728;

CREATE TABLE IF NOT EXISTS otel_metrics_exp_histogram
(
    ResourceAttributes    Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ResourceSchemaUrl     String                              CODEC(ZSTD(1)),
    ScopeName             String                              CODEC(ZSTD(1)),
    ScopeVersion          String                              CODEC(ZSTD(1)),
    ScopeAttributes       Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeDroppedAttrCount UInt32                              CODEC(ZSTD(1)),
    ScopeSchemaUrl        String                              CODEC(ZSTD(1)),
    ServiceName           LowCardinality(String)              CODEC(ZSTD(1)),
    MetricName            LowCardinality(String)              CODEC(ZSTD(1)),
    MetricDescription     String                              CODEC(ZSTD(1)),
    MetricUnit            String                              CODEC(ZSTD(1)),
    Attributes            Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    StartTimeUnix         DateTime64(9)                       CODEC(Delta(8), ZSTD(1)),
    TimeUnix              DateTime64(9)                       CODEC(Delta(8), ZSTD(1)),
    Count                 UInt64                              CODEC(Delta, ZSTD(1)),
    Sum                   Float64                             CODEC(ZSTD(1)),
    Scale                 Int32                               CODEC(ZSTD(1)),
    ZeroCount             UInt64                              CODEC(ZSTD(1)),
    PositiveOffset        Int32                               CODEC(ZSTD(1)),
    PositiveBucketCounts  Array(UInt64)                       CODEC(ZSTD(1)),
    NegativeOffset        Int32                               CODEC(ZSTD(1)),
    NegativeBucketCounts  Array(UInt64)                       CODEC(ZSTD(1)),
    Min                   Float64                             CODEC(ZSTD(1)),
    Max                   Float64                             CODEC(ZSTD(1)),
    AggregationTemporality Int32                               CODEC(ZSTD(1)),
    Exemplars             Nested
    (
        FilteredAttributes Map(LowCardinality(String), String),
        TimeUnix           DateTime64(9),
        Value              Float64,
        SpanId             String,
        TraceId            String
    ) CODEC(ZSTD(1)),
    Flags                 UInt32                              CODEC(ZSTD(1)),
    IngestBatch           LowCardinality(String) DEFAULT getSetting('log_comment') CODEC(ZSTD(1)) COMMENT 'empty: not written by hitmap',

    INDEX idx_res_attr_key mapKeys(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_res_attr_value mapValues(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_scope_attr_key mapKeys(ScopeAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_scope_attr_value mapValues(ScopeAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_attr_key mapKeys(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_attr_value mapValues(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_time_unix TimeUnix TYPE minmax GRANULARITY 1,
    INDEX idx_ingest_batch IngestBatch TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(TimeUnix)
ORDER BY (ServiceName, MetricName, toStartOfHour(TimeUnix), cityHash64(Attributes), TimeUnix)
SETTINGS index_granularity = 8192,
    ttl_only_drop_parts = 1,
    non_replicated_deduplication_window = 1000,
    min_bytes_for_wide_part = 134217728;

CREATE TABLE IF NOT EXISTS otel_metrics_summary
(
    ResourceAttributes    Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ResourceSchemaUrl     String                              CODEC(ZSTD(1)),
    ScopeName             String                              CODEC(ZSTD(1)),
    ScopeVersion          String                              CODEC(ZSTD(1)),
    ScopeAttributes       Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeDroppedAttrCount UInt32                              CODEC(ZSTD(1)),
    ScopeSchemaUrl        String                              CODEC(ZSTD(1)),
    ServiceName           LowCardinality(String)              CODEC(ZSTD(1)),
    MetricName            LowCardinality(String)              CODEC(ZSTD(1)),
    MetricDescription     String                              CODEC(ZSTD(1)),
    MetricUnit            String                              CODEC(ZSTD(1)),
    Attributes            Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    StartTimeUnix         DateTime64(9)                       CODEC(Delta(8), ZSTD(1)),
    TimeUnix              DateTime64(9)                       CODEC(Delta(8), ZSTD(1)),
    Count                 UInt64                              CODEC(Delta, ZSTD(1)),
    Sum                   Float64                             CODEC(ZSTD(1)),
    ValueAtQuantiles      Nested(Quantile Float64, Value Float64) CODEC(ZSTD(1)),
    Flags                 UInt32                              CODEC(ZSTD(1)),
    IngestBatch           LowCardinality(String) DEFAULT getSetting('log_comment') CODEC(ZSTD(1)) COMMENT 'empty: not written by hitmap',

    INDEX idx_res_attr_key mapKeys(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_res_attr_value mapValues(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_scope_attr_key mapKeys(ScopeAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_scope_attr_value mapValues(ScopeAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_attr_key mapKeys(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_attr_value mapValues(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_time_unix TimeUnix TYPE minmax GRANULARITY 1,
    INDEX idx_ingest_batch IngestBatch TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(TimeUnix)
ORDER BY (ServiceName, MetricName, toStartOfHour(TimeUnix), cityHash64(Attributes), TimeUnix)
SETTINGS index_granularity = 8192,
    ttl_only_drop_parts = 1,
    non_replicated_deduplication_window = 1000,
    min_bytes_for_wide_part = 134217728;

-- One row is one ExportMetricsServiceRequest (collector/otlp/otlp.proto); five views take their points.
CREATE TABLE IF NOT EXISTS otlp_metrics
(
    resource_metrics Array(Tuple(
        resource Tuple(attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String)))),
        scope_metrics Array(Tuple(
            scope Tuple(name String, version String, attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String))), dropped_attributes_count UInt32),
            metrics Array(Tuple(
                name String, description String, unit String,
                gauge Tuple(
                    data_points Array(Tuple(
                        attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String))),
                        start_time_unix_nano UInt64, time_unix_nano UInt64, flags UInt32, value Int8, as_double Float64, as_int Int64,
                        exemplars Array(Tuple(filtered_attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String))), time_unix_nano UInt64, value Int8, as_double Float64, as_int Int64, span_id String, trace_id String))))),
                sum Tuple(
                    data_points Array(Tuple(
                        attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String))),
                        start_time_unix_nano UInt64, time_unix_nano UInt64, flags UInt32, value Int8, as_double Float64, as_int Int64,
                        exemplars Array(Tuple(filtered_attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String))), time_unix_nano UInt64, value Int8, as_double Float64, as_int Int64, span_id String, trace_id String)))),
                    aggregation_temporality Int32, is_monotonic Bool),
                histogram Tuple(
                    data_points Array(Tuple(
                        attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String))),
                        start_time_unix_nano UInt64, time_unix_nano UInt64, flags UInt32, count UInt64, sum Float64, min Float64, max Float64,
                        bucket_counts Array(UInt64), explicit_bounds Array(Float64),
                        exemplars Array(Tuple(filtered_attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String))), time_unix_nano UInt64, value Int8, as_double Float64, as_int Int64, span_id String, trace_id String)))),
                    aggregation_temporality Int32),
                exponential_histogram Tuple(
                    data_points Array(Tuple(
                        attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String))),
                        start_time_unix_nano UInt64, time_unix_nano UInt64, flags UInt32, count UInt64, sum Float64, min Float64, max Float64, scale Int32, zero_count UInt64,
                        positive Tuple(offset Int32, bucket_counts Array(UInt64)),
                        negative Tuple(offset Int32, bucket_counts Array(UInt64)),
                        exemplars Array(Tuple(filtered_attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String))), time_unix_nano UInt64, value Int8, as_double Float64, as_int Int64, span_id String, trace_id String)))),
                    aggregation_temporality Int32),
                summary Tuple(
                    data_points Array(Tuple(
                        attributes Array(Tuple(key String, value Tuple(value Int8, string_value String, bool_value Bool, int_value Int64, double_value Float64, bytes_value String))),
                        start_time_unix_nano UInt64, time_unix_nano UInt64, flags UInt32, count UInt64, sum Float64,
                        quantile_values Array(Tuple(quantile Float64, value Float64))))))),
            schema_url String)),
        schema_url String))
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS otlp_metrics_gauge_mv TO otel_metrics_gauge AS
WITH
    (v -> multiIf(
        v.value = 1, v.string_value,
        v.value = 2, toString(v.bool_value),
        v.value = 3, toString(v.int_value),
        v.value = 4, toString(v.double_value),
        v.value = 7, base64Encode(v.bytes_value), '')) AS text,
    (kvs -> CAST((kvs.key, arrayMap(v -> text(v), kvs.value)), 'Map(LowCardinality(String), String)')) AS attributes,
    resources AS (SELECT arrayJoin(resource_metrics) AS r FROM otlp_metrics),
    scopes AS (
        SELECT attributes(r.resource.attributes) AS resource, r.schema_url AS resource_url, arrayJoin(r.scope_metrics) AS s
        FROM resources),
    metrics AS (
        SELECT resource, resource_url, s.scope AS scope, attributes(s.scope.attributes) AS scope_attributes,
            s.schema_url AS scope_url, arrayJoin(s.metrics) AS m
        FROM scopes),
    points AS (SELECT *, arrayJoin(m.gauge.data_points) AS p FROM metrics)
SELECT
    resource AS ResourceAttributes,
    resource_url AS ResourceSchemaUrl,
    scope.name AS ScopeName,
    scope.version AS ScopeVersion,
    scope_attributes AS ScopeAttributes,
    scope.dropped_attributes_count AS ScopeDroppedAttrCount,
    scope_url AS ScopeSchemaUrl,
    resource['service.name'] AS ServiceName,
    m.name AS MetricName,
    m.description AS MetricDescription,
    m.unit AS MetricUnit,
    attributes(p.attributes) AS Attributes,
    fromUnixTimestamp64Nano(toInt64(p.start_time_unix_nano)) AS StartTimeUnix,
    fromUnixTimestamp64Nano(toInt64(p.time_unix_nano)) AS TimeUnix,
    if(p.value = 6, toFloat64(p.as_int), p.as_double) AS Value,
    arrayMap(kvs -> attributes(kvs), p.exemplars.filtered_attributes) AS `Exemplars.FilteredAttributes`,
    arrayMap(t -> fromUnixTimestamp64Nano(toInt64(t)), p.exemplars.time_unix_nano) AS `Exemplars.TimeUnix`,
    arrayMap(e -> if(e.value = 6, toFloat64(e.as_int), e.as_double), p.exemplars) AS `Exemplars.Value`,
    arrayMap(id -> lower(hex(id)), p.exemplars.span_id) AS `Exemplars.SpanId`,
    arrayMap(id -> lower(hex(id)), p.exemplars.trace_id) AS `Exemplars.TraceId`,
    p.flags AS Flags
FROM points;

CREATE MATERIALIZED VIEW IF NOT EXISTS otlp_metrics_sum_mv TO otel_metrics_sum AS
WITH
    (v -> multiIf(
        v.value = 1, v.string_value,
        v.value = 2, toString(v.bool_value),
        v.value = 3, toString(v.int_value),
        v.value = 4, toString(v.double_value),
        v.value = 7, base64Encode(v.bytes_value), '')) AS text,
    (kvs -> CAST((kvs.key, arrayMap(v -> text(v), kvs.value)), 'Map(LowCardinality(String), String)')) AS attributes,
    resources AS (SELECT arrayJoin(resource_metrics) AS r FROM otlp_metrics),
    scopes AS (
        SELECT attributes(r.resource.attributes) AS resource, r.schema_url AS resource_url, arrayJoin(r.scope_metrics) AS s
        FROM resources),
    metrics AS (
        SELECT resource, resource_url, s.scope AS scope, attributes(s.scope.attributes) AS scope_attributes,
            s.schema_url AS scope_url, arrayJoin(s.metrics) AS m
        FROM scopes),
    points AS (SELECT *, arrayJoin(m.sum.data_points) AS p FROM metrics)
SELECT
    resource AS ResourceAttributes,
    resource_url AS ResourceSchemaUrl,
    scope.name AS ScopeName,
    scope.version AS ScopeVersion,
    scope_attributes AS ScopeAttributes,
    scope.dropped_attributes_count AS ScopeDroppedAttrCount,
    scope_url AS ScopeSchemaUrl,
    resource['service.name'] AS ServiceName,
    m.name AS MetricName,
    m.description AS MetricDescription,
    m.unit AS MetricUnit,
    attributes(p.attributes) AS Attributes,
    fromUnixTimestamp64Nano(toInt64(p.start_time_unix_nano)) AS StartTimeUnix,
    fromUnixTimestamp64Nano(toInt64(p.time_unix_nano)) AS TimeUnix,
    if(p.value = 6, toFloat64(p.as_int), p.as_double) AS Value,
    m.sum.aggregation_temporality AS AggregationTemporality,
    m.sum.is_monotonic AS IsMonotonic,
    arrayMap(kvs -> attributes(kvs), p.exemplars.filtered_attributes) AS `Exemplars.FilteredAttributes`,
    arrayMap(t -> fromUnixTimestamp64Nano(toInt64(t)), p.exemplars.time_unix_nano) AS `Exemplars.TimeUnix`,
    arrayMap(e -> if(e.value = 6, toFloat64(e.as_int), e.as_double), p.exemplars) AS `Exemplars.Value`,
    arrayMap(id -> lower(hex(id)), p.exemplars.span_id) AS `Exemplars.SpanId`,
    arrayMap(id -> lower(hex(id)), p.exemplars.trace_id) AS `Exemplars.TraceId`,
    p.flags AS Flags
FROM points;

CREATE MATERIALIZED VIEW IF NOT EXISTS otlp_metrics_histogram_mv TO otel_metrics_histogram AS
WITH
    (v -> multiIf(
        v.value = 1, v.string_value,
        v.value = 2, toString(v.bool_value),
        v.value = 3, toString(v.int_value),
        v.value = 4, toString(v.double_value),
        v.value = 7, base64Encode(v.bytes_value), '')) AS text,
    (kvs -> CAST((kvs.key, arrayMap(v -> text(v), kvs.value)), 'Map(LowCardinality(String), String)')) AS attributes,
    resources AS (SELECT arrayJoin(resource_metrics) AS r FROM otlp_metrics),
    scopes AS (
        SELECT attributes(r.resource.attributes) AS resource, r.schema_url AS resource_url, arrayJoin(r.scope_metrics) AS s
        FROM resources),
    metrics AS (
        SELECT resource, resource_url, s.scope AS scope, attributes(s.scope.attributes) AS scope_attributes,
            s.schema_url AS scope_url, arrayJoin(s.metrics) AS m
        FROM scopes),
    points AS (SELECT *, arrayJoin(m.histogram.data_points) AS p FROM metrics)
SELECT
    resource AS ResourceAttributes,
    resource_url AS ResourceSchemaUrl,
    scope.name AS ScopeName,
    scope.version AS ScopeVersion,
    scope_attributes AS ScopeAttributes,
    scope.dropped_attributes_count AS ScopeDroppedAttrCount,
    scope_url AS ScopeSchemaUrl,
    resource['service.name'] AS ServiceName,
    m.name AS MetricName,
    m.description AS MetricDescription,
    m.unit AS MetricUnit,
    attributes(p.attributes) AS Attributes,
    fromUnixTimestamp64Nano(toInt64(p.start_time_unix_nano)) AS StartTimeUnix,
    fromUnixTimestamp64Nano(toInt64(p.time_unix_nano)) AS TimeUnix,
    p.count AS Count,
    p.sum AS Sum,
    p.bucket_counts AS BucketCounts,
    p.explicit_bounds AS ExplicitBounds,
    p.min AS Min,
    p.max AS Max,
    m.histogram.aggregation_temporality AS AggregationTemporality,
    arrayMap(kvs -> attributes(kvs), p.exemplars.filtered_attributes) AS `Exemplars.FilteredAttributes`,
    arrayMap(t -> fromUnixTimestamp64Nano(toInt64(t)), p.exemplars.time_unix_nano) AS `Exemplars.TimeUnix`,
    arrayMap(e -> if(e.value = 6, toFloat64(e.as_int), e.as_double), p.exemplars) AS `Exemplars.Value`,
    arrayMap(id -> lower(hex(id)), p.exemplars.span_id) AS `Exemplars.SpanId`,
    arrayMap(id -> lower(hex(id)), p.exemplars.trace_id) AS `Exemplars.TraceId`,
    p.flags AS Flags
FROM points;

CREATE MATERIALIZED VIEW IF NOT EXISTS otlp_metrics_exp_histogram_mv TO otel_metrics_exp_histogram AS
WITH
    (v -> multiIf(
        v.value = 1, v.string_value,
        v.value = 2, toString(v.bool_value),
        v.value = 3, toString(v.int_value),
        v.value = 4, toString(v.double_value),
        v.value = 7, base64Encode(v.bytes_value), '')) AS text,
    (kvs -> CAST((kvs.key, arrayMap(v -> text(v), kvs.value)), 'Map(LowCardinality(String), String)')) AS attributes,
    resources AS (SELECT arrayJoin(resource_metrics) AS r FROM otlp_metrics),
    scopes AS (
        SELECT attributes(r.resource.attributes) AS resource, r.schema_url AS resource_url, arrayJoin(r.scope_metrics) AS s
        FROM resources),
    metrics AS (
        SELECT resource, resource_url, s.scope AS scope, attributes(s.scope.attributes) AS scope_attributes,
            s.schema_url AS scope_url, arrayJoin(s.metrics) AS m
        FROM scopes),
    points AS (SELECT *, arrayJoin(m.exponential_histogram.data_points) AS p FROM metrics)
SELECT
    resource AS ResourceAttributes,
    resource_url AS ResourceSchemaUrl,
    scope.name AS ScopeName,
    scope.version AS ScopeVersion,
    scope_attributes AS ScopeAttributes,
    scope.dropped_attributes_count AS ScopeDroppedAttrCount,
    scope_url AS ScopeSchemaUrl,
    resource['service.name'] AS ServiceName,
    m.name AS MetricName,
    m.description AS MetricDescription,
    m.unit AS MetricUnit,
    attributes(p.attributes) AS Attributes,
    fromUnixTimestamp64Nano(toInt64(p.start_time_unix_nano)) AS StartTimeUnix,
    fromUnixTimestamp64Nano(toInt64(p.time_unix_nano)) AS TimeUnix,
    p.count AS Count,
    p.sum AS Sum,
    p.scale AS Scale,
    p.zero_count AS ZeroCount,
    p.positive.offset AS PositiveOffset,
    p.positive.bucket_counts AS PositiveBucketCounts,
    p.negative.offset AS NegativeOffset,
    p.negative.bucket_counts AS NegativeBucketCounts,
    p.min AS Min,
    p.max AS Max,
    m.exponential_histogram.aggregation_temporality AS AggregationTemporality,
    arrayMap(kvs -> attributes(kvs), p.exemplars.filtered_attributes) AS `Exemplars.FilteredAttributes`,
    arrayMap(t -> fromUnixTimestamp64Nano(toInt64(t)), p.exemplars.time_unix_nano) AS `Exemplars.TimeUnix`,
    arrayMap(e -> if(e.value = 6, toFloat64(e.as_int), e.as_double), p.exemplars) AS `Exemplars.Value`,
    arrayMap(id -> lower(hex(id)), p.exemplars.span_id) AS `Exemplars.SpanId`,
    arrayMap(id -> lower(hex(id)), p.exemplars.trace_id) AS `Exemplars.TraceId`,
    p.flags AS Flags
FROM points;

CREATE MATERIALIZED VIEW IF NOT EXISTS otlp_metrics_summary_mv TO otel_metrics_summary AS
WITH
    (v -> multiIf(
        v.value = 1, v.string_value,
        v.value = 2, toString(v.bool_value),
        v.value = 3, toString(v.int_value),
        v.value = 4, toString(v.double_value),
        v.value = 7, base64Encode(v.bytes_value), '')) AS text,
    (kvs -> CAST((kvs.key, arrayMap(v -> text(v), kvs.value)), 'Map(LowCardinality(String), String)')) AS attributes,
    resources AS (SELECT arrayJoin(resource_metrics) AS r FROM otlp_metrics),
    scopes AS (
        SELECT attributes(r.resource.attributes) AS resource, r.schema_url AS resource_url, arrayJoin(r.scope_metrics) AS s
        FROM resources),
    metrics AS (
        SELECT resource, resource_url, s.scope AS scope, attributes(s.scope.attributes) AS scope_attributes,
            s.schema_url AS scope_url, arrayJoin(s.metrics) AS m
        FROM scopes),
    points AS (SELECT *, arrayJoin(m.summary.data_points) AS p FROM metrics)
SELECT
    resource AS ResourceAttributes,
    resource_url AS ResourceSchemaUrl,
    scope.name AS ScopeName,
    scope.version AS ScopeVersion,
    scope_attributes AS ScopeAttributes,
    scope.dropped_attributes_count AS ScopeDroppedAttrCount,
    scope_url AS ScopeSchemaUrl,
    resource['service.name'] AS ServiceName,
    m.name AS MetricName,
    m.description AS MetricDescription,
    m.unit AS MetricUnit,
    attributes(p.attributes) AS Attributes,
    fromUnixTimestamp64Nano(toInt64(p.start_time_unix_nano)) AS StartTimeUnix,
    fromUnixTimestamp64Nano(toInt64(p.time_unix_nano)) AS TimeUnix,
    p.count AS Count,
    p.sum AS Sum,
    p.quantile_values.quantile AS `ValueAtQuantiles.Quantile`,
    p.quantile_values.value AS `ValueAtQuantiles.Value`,
    p.flags AS Flags
FROM points;
