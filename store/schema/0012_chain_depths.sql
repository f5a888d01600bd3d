-- How far into each prompt it had been sent before, to the same server under the same salt and adapter: what a heatmap
-- over many prompts needs, a row a prompt in place of one a block. A chained block names all before it, so that blocks
-- which were part of an earlier prompt are the first ones of a chain, and a count says which.
CREATE TABLE IF NOT EXISTS chain_depths
(
    time          DateTime64(6)          CODEC(Delta(8), ZSTD(1)),
    server        LowCardinality(String) CODEC(ZSTD(1)),
    model         LowCardinality(String) CODEC(ZSTD(1)),
    request       UInt64                 CODEC(LZ4) COMMENT 'sipHash64(server, request_id)',
    template      UInt64                 CODEC(ZSTD(1)),
    block_size    UInt32                 CODEC(T64, ZSTD(1)),
    depth         UInt32                 CODEC(T64, ZSTD(1)) COMMENT 'full blocks of the prompt',
    known         UInt32                 CODEC(T64, ZSTD(1)) COMMENT 'of these: blocks that had been part of an earlier prompt of its server and isolation, as far as that was stored before this one'
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(time)
ORDER BY (toStartOfHour(time), server, template, time, request)
SETTINGS non_replicated_deduplication_window = 1000, min_level_for_wide_part = 1;

-- Prompts that are in the store already. Views come last: a file that failed half way is run again from its beginning.
TRUNCATE TABLE chain_depths;

INSERT INTO chain_depths
SELECT any(asked.time), any(asked.server), any(asked.model), any(asked.request), any(asked.template),
       any(asked.block_size), any(asked.depth), countIf(asked.depth > 0 AND earliest.first < asked.time)
FROM
(
    SELECT row, time, server, model, request, template, block_size, depth, isolation, content
    FROM
    (
        SELECT rowNumberInAllBlocks() AS row, time, server, model, sipHash64(server, request_id) AS request, template,
               block_size, toUInt32(length(blocks)) AS depth, isolation, blocks
        FROM request_chains
    )
    LEFT ARRAY JOIN blocks AS content
) AS asked
LEFT JOIN
(
    SELECT content, server, isolation, min(chain_blocks.first) AS first
    FROM chain_blocks
    GROUP BY content, server, isolation
) AS earliest
USING (content, server, isolation)
GROUP BY asked.row
SETTINGS join_algorithm = 'grace_hash', max_bytes_before_external_group_by = 1000000000;

-- One prompt in 16, in an order that has nothing to do with what they say: reading the first part of it reads a sample
-- of all, where request_chains would have to be read as a whole.
CREATE TABLE IF NOT EXISTS chain_sample
(
    time       DateTime64(6)          CODEC(Delta(8), ZSTD(1)),
    server     LowCardinality(String) CODEC(ZSTD(1)),
    model      LowCardinality(String) CODEC(ZSTD(1)),
    request    UInt64                 CODEC(LZ4) COMMENT 'as in chain_depths; a multiple of 16',
    template   UInt64                 CODEC(ZSTD(1)),
    block_size UInt32                 CODEC(T64, ZSTD(1)),
    blocks     Array(UInt64)          CODEC(LZ4)
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(time)
ORDER BY (request, time)
SETTINGS index_granularity = 256, non_replicated_deduplication_window = 1000, min_level_for_wide_part = 1;

TRUNCATE TABLE chain_sample;

INSERT INTO chain_sample
SELECT time, server, model, sipHash64(server, request_id) AS request, template, block_size, blocks
FROM request_chains
WHERE request % 16 = 0;

-- How many blocks of a new prompt are known is found in two steps, since looking up a content costs as much as reading
-- some hundred rows: first a block in so many, and those where the collector saw the prompt part from earlier ones, then
-- what lies between the last known and the first unknown of these. low: known blocks; high: the first unknown one, from 1.
CREATE TABLE IF NOT EXISTS chain_bounds
(
    time       DateTime64(6),
    server     LowCardinality(String),
    model      LowCardinality(String),
    request    UInt64,
    template   UInt64,
    block_size UInt32,
    isolation  UInt64,
    blocks     Array(UInt64),
    low        UInt32,
    high       UInt32
)
ENGINE = Null;

-- Within a view, the table that feeds it is what is being inserted. Whether chain_blocks has been told of that by then is
-- open: the least of both times is right either way.
CREATE MATERIALIZED VIEW IF NOT EXISTS chain_depths_feed TO chain_depths AS
SELECT time, server, model, request, template, block_size, depth, toUInt32(low + found) AS known
FROM
(
    SELECT time, server, model, request, template, block_size, toUInt32(length(blocks)) AS depth, low
    FROM chain_bounds
) AS prompts
ANY LEFT JOIN
(
    SELECT asked.request AS request, asked.time AS time, countIf(earliest.first < asked.time) AS found
    FROM
    (
        SELECT request, time, server, isolation, arrayJoin(arraySlice(blocks, low + 1, high - low - 1)) AS content
        FROM chain_bounds
    ) AS asked
    LEFT JOIN
    (
        SELECT content, server, isolation, min(moment) AS first
        FROM
        (
            SELECT content, server, isolation, chain_blocks.first AS moment
            FROM chain_blocks
            WHERE content IN (SELECT arrayJoin(arraySlice(blocks, low + 1, high - low - 1)) FROM chain_bounds)
            UNION ALL
            SELECT arrayJoin(blocks) AS content, server, isolation, time AS moment
            FROM chain_bounds
        )
        GROUP BY content, server, isolation
    ) AS earliest
    USING (content, server, isolation)
    GROUP BY request, time
) AS between
USING (request, time);

CREATE MATERIALIZED VIEW IF NOT EXISTS chain_bounds_feed TO chain_bounds AS
SELECT time, server, model, request, template, block_size, isolation, blocks,
       toUInt32(last) AS low, toUInt32(if(next = 0, length(blocks) + 1, next)) AS high
FROM
(
    SELECT time, server, model, sipHash64(server, request_id) AS request, template, block_size, isolation, blocks
    FROM request_chains
) AS prompts
ANY LEFT JOIN
(
    SELECT asked.request AS request, asked.time AS time, maxIf(asked.place, earliest.first < asked.time) AS last,
           minIf(asked.place, earliest.first >= asked.time) AS next
    FROM
    (
        SELECT sipHash64(server, request_id) AS request, time, server, isolation,
               greatest(32, toUInt32(2 * sqrt(length(blocks)))) AS step,
               arrayJoin(arrayDistinct(arrayConcat(range(step, toUInt32(length(blocks)) + 1, step),
                                                   [split_depth, split_depth + 1]))) AS place,
               blocks[place] AS content
        FROM request_chains
        WHERE place BETWEEN 1 AND length(blocks)
    ) AS asked
    LEFT JOIN
    (
        SELECT content, server, isolation, min(moment) AS first
        FROM
        (
            SELECT content, server, isolation, chain_blocks.first AS moment
            FROM chain_blocks
            WHERE content IN
            (
                SELECT blocks[arrayJoin(arrayConcat(
                           range(greatest(32, toUInt32(2 * sqrt(length(blocks)))), toUInt32(length(blocks)) + 1,
                                 greatest(32, toUInt32(2 * sqrt(length(blocks))))),
                           arrayFilter(place -> place BETWEEN 1 AND length(blocks), [split_depth, split_depth + 1])))]
                FROM request_chains
            )
            UNION ALL
            SELECT arrayJoin(blocks) AS content, server, isolation, time AS moment
            FROM request_chains
        )
        GROUP BY content, server, isolation
    ) AS earliest
    USING (content, server, isolation)
    GROUP BY request, time
) AS bounds
USING (request, time);

CREATE MATERIALIZED VIEW IF NOT EXISTS chain_sample_feed TO chain_sample AS
SELECT time, server, model, sipHash64(server, request_id) AS request, template, block_size, blocks
FROM request_chains
WHERE request % 16 = 0;
