-- Sampled numbers at microsecond time: scraped metrics and, later, probes. Labels stand once in `series`.
-- A row of `series` holds no time: a collector that starts again writes it again, byte for byte.
CREATE TABLE IF NOT EXISTS series
(
    fingerprint  UInt64                 CODEC(ZSTD(1)) COMMENT 'of server, name and labels',
    server       LowCardinality(String) CODEC(ZSTD(1)),
    metric       LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'canonical name, .bucket .sum .count for the parts of a histogram; empty where no dialect knows it',
    raw_name     LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'as the server said it',
    kind         Enum8('counter' = 1, 'gauge' = 2, 'histogram' = 3, 'summary' = 4, 'info' = 5, 'unknown' = 6),
    unit         LowCardinality(String) CODEC(ZSTD(1)),
    labels       Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ingest_batch LowCardinality(String) DEFAULT getSetting('log_comment') CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree
ORDER BY (server, metric, fingerprint)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS samples
(
    time         DateTime64(6)          CODEC(Delta(8), ZSTD(1)),
    fingerprint  UInt64                 CODEC(ZSTD(1)),
    value        Float64                CODEC(Delta(8), ZSTD(1)),
    delta        Nullable(Float64)      CODEC(ZSTD(1)) COMMENT 'counters: growth since the sample before, resets handled; NULL for the first and for gauges',
    ingest_batch LowCardinality(String) DEFAULT getSetting('log_comment') CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (toStartOfHour(time), fingerprint, time)
SETTINGS non_replicated_deduplication_window = 1000;
