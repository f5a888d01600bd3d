-- KV-cache events, one row per block event; hashes normalised to 64 bits (the last 8 bytes of a longer one).
CREATE TABLE IF NOT EXISTS kv_events
(
    time         DateTime64(6)          CODEC(Delta(8), ZSTD(1)) COMMENT 'when the server made the batch; when it was read, for source kv_cache_events, which tells no times',
    server       LowCardinality(String) CODEC(ZSTD(1)),
    source       LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'topic it was published under; kv_cache_events where it was drained over HTTP',
    rank         UInt16                 CODEC(T64, ZSTD(1)) COMMENT 'data-parallel rank',
    epoch        DateTime64(6)          CODEC(Delta(8), ZSTD(1)) COMMENT 'which life of the publisher: when the first batch of it that was seen was made',
    seq          UInt64                 CODEC(Delta, ZSTD(1)) COMMENT 'sequence number of the message or drained event',
    pos          UInt32                 CODEC(T64, ZSTD(1)) COMMENT 'position of the row in its message, from 1: order matters; 0 for what precedes the message (gap, restart)',
    action       Enum8('stored' = 1, 'removed' = 2, 'cleared' = 3, 'gap' = 4, 'restart' = 5, 'unknown' = 6, 'created' = 7, 'updated' = 8, 'resolved' = 9)
                 COMMENT 'created: an empty cache, its capacity in detail; updated: no more than a priority; resolved: nothing happened, but the place of a block whose parent was not known is now',
    block        Nullable(UInt64)       CODEC(ZSTD(1)),
    parent       Nullable(UInt64)       CODEC(ZSTD(1)) COMMENT 'the block before it in its chain',
    depth        Nullable(UInt32)       CODEC(T64, ZSTD(1)) COMMENT 'blocks before it in its chain and group; NULL where the parent was not seen, and where a connector told no more than the hash of a block that was not seen',
    content      Nullable(UInt64)       CODEC(ZSTD(1)) COMMENT 'hash of its tokens and all before them (cachemodel/content.py): the same on every server; NULL where these are not known',
    isolation    Nullable(UInt64)       CODEC(ZSTD(1)) COMMENT 'hash of the salt, adapter and image keys of its chain so far; 0: none; NULL where not known',
    local        Nullable(UInt64)       CODEC(ZSTD(1)) COMMENT 'stored rows: hash of its tokens alone; NULL where they are not known',
    block_size   Nullable(UInt32)       CODEC(T64, ZSTD(1)) COMMENT 'tokens; a connector''s chunks can be larger than the blocks of its engine',
    medium       LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'as the server said: GPU, CPU, CPU_PINNED, STORAGE, cache_level=0, ...; empty where it did not',
    tier         LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'device, host or remote; empty where the medium is unknown',
    ownership    LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'which of the server''s caches, where it has several',
    group_idx    Nullable(UInt32)       CODEC(T64, ZSTD(1)) COMMENT 'KV-cache group; TensorRT-LLM: layer group, else attention window in tokens',
    kv_cache_spec_kind LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'full_attention, sliding_window, mamba, ... of the group',
    lora_name    LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'adapter; empty for the base model',
    lora_id      LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'adapter, as numbered in the server''s process',
    extra_keys   String                 CODEC(ZSTD(1)) COMMENT 'salt, adapter and image keys as JSON, texts as pseudonyms; empty where none',
    token_count  Nullable(UInt32)       CODEC(T64, ZSTD(1)) COMMENT 'NULL where only the hash was told',
    detail       String                 CODEC(ZSTD(1)) COMMENT 'fields that have no column, as JSON; for a gap what is missing',
    ingest_batch LowCardinality(String) DEFAULT getSetting('log_comment') CODEC(ZSTD(1)),
    INDEX time_range time TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (toStartOfHour(time), server, source, rank, epoch, seq, pos)
SETTINGS non_replicated_deduplication_window = 1000;

-- What befell each block, to be found by its content: the history of the blocks of one prompt without reading the rest.
CREATE TABLE IF NOT EXISTS kv_block_events
(
    content    UInt64,
    isolation  UInt64,
    server     LowCardinality(String),
    source     LowCardinality(String),
    rank       UInt16,
    epoch      DateTime64(6),
    seq        UInt64,
    pos        UInt32,
    time       DateTime64(6),
    action     Enum8('stored' = 1, 'removed' = 2),
    tier       LowCardinality(String),
    group_idx  UInt32,
    block_size UInt32
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (content, server, rank, epoch, seq, pos)
-- a block is looked up by a hash that stands beside no other of its prompt: each costs one small piece of one file
SETTINGS index_granularity = 256, min_compress_block_size = 4096, max_compress_block_size = 4096,
    min_rows_for_wide_part = 1000000000000, min_bytes_for_wide_part = 1000000000000,
    non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS kv_block_events_feed TO kv_block_events AS
SELECT
    assumeNotNull(content) AS content, ifNull(isolation, 0) AS isolation, server, source, rank, epoch, seq, pos, time,
    CAST(action, 'Enum8(\'stored\' = 1, \'removed\' = 2)') AS action, tier, ifNull(group_idx, 0) AS group_idx,
    ifNull(block_size, 0) AS block_size
FROM kv_events
WHERE kv_events.action IN ('stored', 'removed') AND kv_events.content IS NOT NULL; -- not the columns made above

-- What befell a block before its place was known, at the time when that was: each `resolved` row carries one such event.
CREATE MATERIALIZED VIEW IF NOT EXISTS kv_block_events_feed_late TO kv_block_events AS
SELECT
    assumeNotNull(content) AS content, ifNull(isolation, 0) AS isolation, server, source, rank, epoch,
    JSONExtractUInt(detail, 'told', 'seq') AS seq, toUInt32(JSONExtractUInt(detail, 'told', 'pos')) AS pos,
    toDateTime64(JSONExtractFloat(detail, 'told', 'time'), 6) AS time,
    CAST(JSONExtractString(detail, 'told', 'action'), 'Enum8(\'stored\' = 1, \'removed\' = 2)') AS action, tier,
    ifNull(group_idx, 0) AS group_idx, ifNull(block_size, 0) AS block_size
FROM kv_events
WHERE kv_events.action = 'resolved' AND kv_events.content IS NOT NULL;

-- What each rank holds after all that was told, one row a block on a medium. Several sources can tell of the same block
-- (tensor-parallel ranks) and one source several times (full reports): such stored rows are counted as repeats.
--
-- resident: 1, 0, or NULL where it cannot be known: after a gap, after a clear or a restart for what is not on the
-- device (host memory ends with the process too), and after a collector joined a life of the publisher late.
-- Filter by server and rank: those are pushed down; a time is not.
CREATE VIEW IF NOT EXISTS kv_residency AS
WITH
    marks AS
    (
        SELECT
            server, rank, source,
            max(epoch) AS life,
            maxIf((epoch, seq, pos), action = 'gap') AS lost,
            arraySort(groupArrayIf((epoch, seq, pos, ownership), action = 'cleared')) AS clears
        FROM kv_events
        GROUP BY server, rank, source
    ),
    told AS
    (
        SELECT
            server, rank, source, medium, tier, ownership, group_idx, block,
            arraySort(groupArray((epoch, seq, pos, time, action = 'stored'))) AS rows,
            (rows[-1].1, rows[-1].2, rows[-1].3) AS last_at
        FROM kv_events
        WHERE action IN ('stored', 'removed')
        GROUP BY server, rank, source, medium, tier, ownership, group_idx, block
    ),
    by_source AS
    (
        SELECT
            server, rank, medium, tier, ownership, group_idx, block,
            arrayFilter(c -> c.4 = '' OR c.4 = ownership, clears) AS cleared,
            (cleared[-1].1, cleared[-1].2, cleared[-1].3) AS last_clear,
            multiIf(
                tier IN ('device', '') AND last_at < last_clear AND lost < last_clear, 0,
                lost.1 = life AND last_at < lost, NULL,
                last_at.1 < life, if(tier = 'remote', NULL, 0),
                NOT rows[-1].5, 0,
                last_at < last_clear, NULL,
                1) AS state,
            -- two stored rows with a clear of their source between are no repeat: they are of different eras
            arrayMap(
                r -> (r.4, source, r.1, r.2, r.3, r.5, arrayCount(c -> (c.1, c.2, c.3) < (r.1, r.2, r.3), cleared)),
                rows) AS dated
        FROM told
        INNER JOIN marks USING (server, rank, source)
    ),
    by_block AS
    (
        SELECT
            server, rank, medium, tier, ownership, group_idx, block,
            multiIf(countIf(state = 1) > 0, 1, countIf(state IS NULL) > 0, NULL, 0) AS resident,
            arraySort(groupArrayArray(dated)) AS rows
        FROM by_source
        GROUP BY server, rank, medium, tier, ownership, group_idx, block
    )
SELECT
    server, rank, medium, tier, ownership, group_idx, block, resident,
    arrayCount(r -> r.6, rows) AS stored,
    length(rows) - stored AS removed,
    arrayCount(
        (r, before) -> r.6 AND before.6 AND r.7 = before.7 AND (r.2 != before.2 OR r.3 = before.3),
        arrayPopFront(rows), arrayPopBack(rows)) AS repeats,
    rows[-1].1 AS last_time
FROM by_block;
