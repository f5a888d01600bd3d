-- Prompts as chains of hashed blocks: what a cache could have recognised. No text and no token ids.
-- Contents are keyed hashes (cachemodel/content.py), the same for the same tokens on every server.
CREATE TABLE IF NOT EXISTS request_chains
(
    time          DateTime64(6)          CODEC(Delta(8), ZSTD(1)) COMMENT 'when the request was sent or arrived',
    server        LowCardinality(String) CODEC(ZSTD(1)),
    model         LowCardinality(String) CODEC(ZSTD(1)),
    request_id    String                 CODEC(ZSTD(1)),
    told_by       LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'server: tokens are its own (/tokenize); tokenizer: a local one; approximation: no tokenizer, counts are rough; span: hashes on its span; reuse: its full reuse report',
    prompt_tokens UInt32                 CODEC(T64, ZSTD(1)),
    block_size    UInt32                 CODEC(T64, ZSTD(1)) COMMENT 'tokens of each block',
    isolation     UInt64                 CODEC(ZSTD(1)) COMMENT 'salt and adapter, hashed; 0: none',
    template      UInt64                 CODEC(ZSTD(1)) COMMENT 'of its system message and tools without what varies, hashed; 0: none',
    reads_off     LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'option of the request that keeps the cache from being read; empty: none',
    blocks        Array(UInt64)          CODEC(ZSTD(1)) COMMENT 'content of each full block, each naming all before it',
    split_depth   UInt32                 CODEC(T64, ZSTD(1)) COMMENT 'full blocks of it that an earlier request had',
    split_tokens  UInt32                 CODEC(T64, ZSTD(1)) COMMENT 'further tokens that it shares with an earlier request, less than a block',
    pieces_from   UInt32                 CODEC(T64, ZSTD(1)) COMMENT 'token at which pieces begin',
    pieces        Array(UInt64)          CODEC(ZSTD(1)) COMMENT 'content-defined pieces of its new part, each naming itself alone',
    piece_tokens  Array(UInt16)          CODEC(ZSTD(1)),
    ingest_batch  LowCardinality(String) DEFAULT getSetting('log_comment') CODEC(ZSTD(1)),
    key           UInt64 MATERIALIZED sipHash64(request_id) CODEC(LZ4),
    INDEX key_bloom key TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(time)
-- requests of one beginning stand together: most of a chain is that of the one before it, and compresses to nothing
ORDER BY (toStartOfHour(time), server, blocks[1], time)
SETTINGS non_replicated_deduplication_window = 1000, min_level_for_wide_part = 1;

-- When each block and each piece was first part of a prompt.
CREATE TABLE IF NOT EXISTS chain_blocks
(
    content   UInt64,
    server    LowCardinality(String),
    isolation UInt64,
    first     SimpleAggregateFunction(min, DateTime64(6)) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
ORDER BY (content, server, isolation)
SETTINGS index_granularity = 256, min_compress_block_size = 4096, max_compress_block_size = 4096,
    min_rows_for_wide_part = 1000000000000, min_bytes_for_wide_part = 1000000000000,
    non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS chain_blocks_feed TO chain_blocks AS
SELECT arrayJoin(blocks) AS content, server, isolation, min(time) AS first
FROM request_chains
GROUP BY content, server, isolation;

CREATE TABLE IF NOT EXISTS chain_pieces
(
    piece  UInt64,
    server LowCardinality(String),
    first  SimpleAggregateFunction(min, DateTime64(6)) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
ORDER BY (piece, server)
SETTINGS index_granularity = 256, min_compress_block_size = 4096, max_compress_block_size = 4096,
    min_rows_for_wide_part = 1000000000000, min_bytes_for_wide_part = 1000000000000,
    non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS chain_pieces_feed TO chain_pieces AS
SELECT arrayJoin(pieces) AS piece, server, min(time) AS first
FROM request_chains
GROUP BY piece, server;

-- Which block sizes the prompts of each server were cut into, and when: blocks of two sizes cannot be compared.
CREATE TABLE IF NOT EXISTS chain_sizes
(
    server     LowCardinality(String),
    block_size UInt32,
    first      SimpleAggregateFunction(min, DateTime64(6)),
    last       SimpleAggregateFunction(max, DateTime64(6))
)
ENGINE = AggregatingMergeTree
ORDER BY (server, block_size)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS chain_sizes_feed TO chain_sizes AS
SELECT server, block_size, min(time) AS first, max(time) AS last
FROM request_chains
GROUP BY server, block_size;

-- Prompt text in pieces that many prompts share (a message each), where capture is switched on: redacted or full.
CREATE TABLE IF NOT EXISTS prompts
(
    time         DateTime64(6)          CODEC(Delta(8), ZSTD(1)),
    server       LowCardinality(String) CODEC(ZSTD(1)),
    request_id   String                 CODEC(ZSTD(1)),
    capture      Enum8('redacted' = 1, 'full' = 2),
    segments     Array(UInt64)          CODEC(ZSTD(1)) COMMENT 'in order',
    ends         Array(UInt32)          CODEC(ZSTD(1)) COMMENT 'token of the prompt before which each ends; empty where that is not known',
    ingest_batch LowCardinality(String) DEFAULT getSetting('log_comment') CODEC(ZSTD(1)),
    key          UInt64 MATERIALIZED sipHash64(request_id) CODEC(LZ4),
    INDEX key_bloom key TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (toStartOfHour(time), server, time)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS segments
(
    segment      UInt64,
    role         LowCardinality(String) COMMENT 'of the message: system, user, assistant, tool, ...; tools: the definitions; prompt: a text without messages',
    text         String CODEC(ZSTD(3)),
    received     DateTime DEFAULT now(),
    ingest_batch LowCardinality(String) DEFAULT getSetting('log_comment')
)
ENGINE = ReplacingMergeTree
ORDER BY segment
SETTINGS non_replicated_deduplication_window = 1000;
