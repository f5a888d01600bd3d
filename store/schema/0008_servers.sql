-- What was found out of each server when it was attached: the newest row by `time` is how it is now.
CREATE TABLE IF NOT EXISTS servers
(
    time         DateTime64(6),
    server       LowCardinality(String) COMMENT 'the name given at attach',
    kind         LowCardinality(String) COMMENT 'the dialect: vllm, sglang, llama_cpp, ...',
    version      LowCardinality(String) COMMENT 'empty where it does not tell',
    url          String,
    models       Array(String),
    facts        Map(LowCardinality(String), String) COMMENT 'what it says of its cache, in its own words',
    signals      Array(Tuple(signal String, seen Nullable(Bool), evidence String, flag String)) COMMENT 'what it tells; seen is NULL where nothing that can be asked tells',
    notes        Array(String) COMMENT 'what to mind when reading the numbers of this version',
    ingest_batch LowCardinality(String) DEFAULT getSetting('log_comment')
)
ENGINE = MergeTree
ORDER BY (server, time)
SETTINGS non_replicated_deduplication_window = 1000;
