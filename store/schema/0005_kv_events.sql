-- KV-cache events, one row per block event; hashes normalised to 64 bits (the last 8 bytes of a longer one).
CREATE TABLE IF NOT EXISTS kv_events
(
    time         DateTime64(6)          CODEC(Delta(8), ZSTD(1)) COMMENT 'when the server made the batch',
    server       LowCardinality(String) CODEC(ZSTD(1)),
    source       LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'topic it was published under',
    rank         UInt16                 CODEC(T64, ZSTD(1)) COMMENT 'data-parallel rank',
    epoch        DateTime64(6)          CODEC(Delta(8), ZSTD(1)) COMMENT 'which life of the publisher: when the first batch of it that was seen was made',
    seq          UInt64                 CODEC(Delta, ZSTD(1)) COMMENT 'sequence number of the message',
    pos          UInt32                 CODEC(T64, ZSTD(1)) COMMENT 'position of the row in its message, from 1: order matters; 0 for what precedes the message (gap, restart)',
    action       Enum8('stored' = 1, 'removed' = 2, 'cleared' = 3, 'gap' = 4, 'restart' = 5, 'unknown' = 6),
    block        Nullable(UInt64)       CODEC(ZSTD(1)),
    parent       Nullable(UInt64)       CODEC(ZSTD(1)) COMMENT 'the block before it in its chain',
    depth        Nullable(UInt32)       CODEC(T64, ZSTD(1)) COMMENT 'blocks before it in its chain; NULL where the parent was not seen',
    block_size   Nullable(UInt32)       CODEC(T64, ZSTD(1)) COMMENT 'tokens',
    medium       LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'as the server said: GPU, CPU, STORAGE, ...',
    group_idx    Nullable(UInt16)       CODEC(T64, ZSTD(1)) COMMENT 'KV-cache group',
    extra_keys   String                 CODEC(ZSTD(1)) COMMENT 'salt, adapter and image keys as JSON; empty where none',
    token_count  Nullable(UInt32)       CODEC(T64, ZSTD(1)),
    detail       String                 CODEC(ZSTD(1)) COMMENT 'fields this version does not know, as JSON; for a gap what is missing',
    ingest_batch LowCardinality(String) DEFAULT getSetting('log_comment') CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (toStartOfHour(time), server, source, rank, epoch, seq, pos)
SETTINGS non_replicated_deduplication_window = 1000;
