-- One row per LLM request: where its time went and where its prompt tokens came from.
-- Identity is (server, request_id, span_id). The finaliser replaces a row by inserting the new one and deleting the old
-- one, in that order, so that none is ever lost; nothing merges at read time.
CREATE TABLE IF NOT EXISTS requests
(
    time              DateTime64(6)            CODEC(Delta(8), ZSTD(1)) COMMENT 'arrival at the server',
    server            LowCardinality(String)   CODEC(ZSTD(1)),
    model             LowCardinality(String)   CODEC(ZSTD(1)),
    dialect           LowCardinality(String)   CODEC(ZSTD(1)) COMMENT 'whose span this was read from; log: only a request log told of it',
    request_id        String                   CODEC(ZSTD(1)) COMMENT 'the span id where the server gave none',
    span_id           UInt64                   CODEC(ZSTD(1)) COMMENT '0 where only a request log told of it',

    ttft_us           Nullable(Int64)          CODEC(T64, ZSTD(1)) COMMENT 'time to first token, as the server saw it',
    e2e_us            Nullable(Int64)          CODEC(T64, ZSTD(1)),
    queue_us          Nullable(Int64)          CODEC(T64, ZSTD(1)),
    response_us       Nullable(Int64)          CODEC(T64, ZSTD(1)),
    prefix_us         Nullable(Int64)          CODEC(T64, ZSTD(1)),
    host_us           Nullable(Int64)          CODEC(T64, ZSTD(1)),
    remote_us         Nullable(Int64)          CODEC(T64, ZSTD(1)),
    prefill_us        Nullable(Int64)          CODEC(T64, ZSTD(1)),
    decode_us         Nullable(Int64)          CODEC(T64, ZSTD(1)),
    frontend_us       Nullable(Int64)          CODEC(T64, ZSTD(1)),
    other_us          Nullable(Int64)          CODEC(T64, ZSTD(1)) COMMENT 'e2e minus the sum of the layers; signed',

    prompt_tokens     Nullable(UInt32)         CODEC(T64, ZSTD(1)) COMMENT 'all of them, cached included',
    cached_tokens     Nullable(UInt32)         CODEC(T64, ZSTD(1)) COMMENT 'served by any tier; NULL where nothing tells',
    device_tokens     Nullable(UInt32)         CODEC(T64, ZSTD(1)),
    host_tokens       Nullable(UInt32)         CODEC(T64, ZSTD(1)),
    remote_tokens     Nullable(UInt32)         CODEC(T64, ZSTD(1)),
    created_tokens    Nullable(UInt32)         CODEC(T64, ZSTD(1)) COMMENT 'of the computed ones: written to the cache; NULL where nothing tells',
    completion_tokens Nullable(UInt32)         CODEC(T64, ZSTD(1)),
    recomputed_tokens Nullable(UInt32)         CODEC(T64, ZSTD(1)) COMMENT 'computed again after a preemption, beside the prompt; NULL where nothing tells',
    preemptions       Nullable(UInt32)         CODEC(T64, ZSTD(1)),

    client_ttft_us    Nullable(Int64)          CODEC(T64, ZSTD(1)) COMMENT 'as the client saw it (request log)',
    client_e2e_us     Nullable(Int64)          CODEC(T64, ZSTD(1)),
    finish_reason     LowCardinality(String)   CODEC(ZSTD(1)) COMMENT 'empty where nothing tells',
    labels            Map(LowCardinality(String), String) CODEC(ZSTD(1)) COMMENT 'what users tag: phase, experiment',
    observed          Map(LowCardinality(String), Float64) CODEC(ZSTD(1)) COMMENT 'page faults, switches and CPU time of the threads that worked for it, as its spans tell; no entry where nothing counted',

    run               UInt64                   CODEC(Delta(8), ZSTD(1)) COMMENT 'which run of the finaliser made the row; of two rows of one identity the one of the older run is about to go'
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (toStartOfHour(time), server, model, time)
-- A fresh part is one file; a merged one has a file a column, so that a delete does not write it all anew.
SETTINGS min_level_for_wide_part = 1;

-- Where to look for a request in `requests`. A key stands here before its row does, so a key that is missing proves
-- that there is no row. Sorted by hash: asking for a few keys reads a few granules, asking for many reads 8 bytes a row,
-- which is why they are not packed tighter (ZSTD would save one byte and double the time).
CREATE TABLE IF NOT EXISTS request_keys
(
    key  UInt64   CODEC(LZ4) COMMENT 'sipHash64(request_id)',
    time DateTime CODEC(T64, ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (key, time)
SETTINGS min_level_for_wide_part = 1;

-- Rows on their way into `requests`: what a run of the finaliser found, a partition for each run, dropped at its end.
-- `run` is 0 for rows that are new and the row's run for those read from `requests`, which are to be deleted there.
-- Not in memory: rows that a restart of the store took in the middle of a run would be taken for none at all.
CREATE TABLE IF NOT EXISTS requests_staged
ENGINE = MergeTree
PARTITION BY stage
ORDER BY tuple()
SETTINGS min_level_for_wide_part = 1
EMPTY AS SELECT toUInt64(0) AS stage, toUInt64(0) AS key, * FROM requests;

-- What responses said of themselves, by request id: from request logs (JSONL), later from a proxy.
-- A second reading of the same response adds a row; readers take the newest by `received`.
CREATE TABLE IF NOT EXISTS request_usage
(
    received          DateTime64(6) DEFAULT now64(6) CODEC(Delta(8), ZSTD(1)),
    time              DateTime64(6)            CODEC(Delta(8), ZSTD(1)) COMMENT 'when the request was sent',
    server            LowCardinality(String)   CODEC(ZSTD(1)),
    model             LowCardinality(String)   CODEC(ZSTD(1)),
    request_id        String                   CODEC(ZSTD(1)),
    prompt_tokens     Nullable(UInt32)         CODEC(T64, ZSTD(1)) COMMENT 'all of them, cached included',
    cached_tokens     Nullable(UInt32)         CODEC(T64, ZSTD(1)),
    device_tokens     Nullable(UInt32)         CODEC(T64, ZSTD(1)),
    host_tokens       Nullable(UInt32)         CODEC(T64, ZSTD(1)),
    remote_tokens     Nullable(UInt32)         CODEC(T64, ZSTD(1)),
    created_tokens    Nullable(UInt32)         CODEC(T64, ZSTD(1)),
    completion_tokens Nullable(UInt32)         CODEC(T64, ZSTD(1)),
    ttft_us           Nullable(Int64)          CODEC(T64, ZSTD(1)) COMMENT 'this and the next four: as the server said',
    e2e_us            Nullable(Int64)          CODEC(T64, ZSTD(1)),
    queue_us          Nullable(Int64)          CODEC(T64, ZSTD(1)),
    prefill_us        Nullable(Int64)          CODEC(T64, ZSTD(1)),
    decode_us         Nullable(Int64)          CODEC(T64, ZSTD(1)),
    client_ttft_us    Nullable(Int64)          CODEC(T64, ZSTD(1)) COMMENT 'this and the next: as the client saw it',
    client_e2e_us     Nullable(Int64)          CODEC(T64, ZSTD(1)),
    finish_reason     LowCardinality(String)   CODEC(ZSTD(1)),
    labels            Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ingest_batch      LowCardinality(String)   DEFAULT getSetting('log_comment') CODEC(ZSTD(1)),
    key               UInt64 MATERIALIZED sipHash64(request_id) CODEC(LZ4),
    INDEX ingest_batch_bloom ingest_batch TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(time)
ORDER BY key
SETTINGS non_replicated_deduplication_window = 1000;

-- A server goes by the name given at attach or replay; telemetry that calls it something else is mapped to that name.
CREATE TABLE IF NOT EXISTS server_aliases
(
    kind         LowCardinality(String) COMMENT 'service.name | service.instance.id',
    alias        String,
    server       LowCardinality(String),
    updated      DateTime64(6) DEFAULT now64(6),
    ingest_batch LowCardinality(String) DEFAULT getSetting('log_comment')
)
ENGINE = ReplacingMergeTree(updated)
ORDER BY (kind, alias)
SETTINGS non_replicated_deduplication_window = 1000;
