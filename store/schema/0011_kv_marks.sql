-- What concerns a whole cache, found without reading the events of its blocks.
CREATE TABLE IF NOT EXISTS kv_marks
(
    server LowCardinality(String),
    source LowCardinality(String),
    rank   UInt16,
    epoch  DateTime64(6),
    seq    UInt64,
    pos    UInt32,
    time   DateTime64(6),
    action Enum8('cleared' = 3, 'gap' = 4, 'restart' = 5)
)
ENGINE = ReplacingMergeTree
ORDER BY (server, source, rank, epoch, seq, pos, action)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS kv_marks_feed TO kv_marks AS
SELECT
    server, source, rank, epoch, seq, pos, time,
    -- what a server cleared of one of its caches only is, for all of them together, a change that nobody saw
    CAST(if(kv_events.action = 'cleared' AND ownership != '', 'gap', toString(kv_events.action)),
         'Enum8(\'cleared\' = 3, \'gap\' = 4, \'restart\' = 5)') AS action
FROM kv_events
WHERE kv_events.action IN ('cleared', 'gap', 'restart');

-- The lives of each publisher, and when the first and the last event of each came.
CREATE TABLE IF NOT EXISTS kv_lives
(
    server LowCardinality(String),
    source LowCardinality(String),
    rank   UInt16,
    epoch  DateTime64(6),
    first  SimpleAggregateFunction(min, DateTime64(6)),
    last   SimpleAggregateFunction(max, DateTime64(6))
)
ENGINE = AggregatingMergeTree
ORDER BY (server, source, rank, epoch)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS kv_lives_feed TO kv_lives AS
SELECT server, source, rank, epoch, min(time) AS first, max(time) AS last
FROM kv_events
GROUP BY server, source, rank, epoch;

-- Stores of blocks whose content was not known, and which of these blocks were placed later.
CREATE TABLE IF NOT EXISTS kv_orphans
(
    server   LowCardinality(String),
    rank     UInt16,
    block    UInt64,
    resolved Bool,
    time     DateTime64(6)
)
ENGINE = ReplacingMergeTree
ORDER BY (server, rank, block, resolved, time)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS kv_orphans_feed TO kv_orphans AS
SELECT server, rank, ifNull(block, 0) AS block, kv_events.action = 'resolved' AS resolved, time
FROM kv_events
WHERE (kv_events.action = 'stored' AND kv_events.content IS NULL)
    OR (kv_events.action = 'resolved' AND kv_events.content IS NOT NULL);
