-- What was measured or concluded, with its inputs, so that it can be checked and repeated.
CREATE TABLE IF NOT EXISTS findings
(
    time         DateTime64(6)          CODEC(Delta(8), ZSTD(1)) COMMENT 'when it was found',
    origin       LowCardinality(String) COMMENT 'canary, ...',
    run          String                 COMMENT 'findings of one run belong together',
    server       LowCardinality(String),
    name         LowCardinality(String) COMMENT 'alignment.unit, prefill.ms_per_token, tier.load_ms_per_token, ...',
    subject      LowCardinality(String) COMMENT 'which tier, model, ... ; empty where there is one only',
    value        Nullable(Float64)      COMMENT 'NULL where it could not be told; detail says why',
    low          Nullable(Float64)      COMMENT 'this and the next: bounds within which it lies',
    high         Nullable(Float64),
    unit         LowCardinality(String) COMMENT 'as UCUM spells it: ms, {token}, ms/{token}, 1',
    samples      UInt32                 COMMENT 'measurements it rests on',
    inputs       String                 COMMENT 'JSON: what was sent and seen',
    detail       String                 COMMENT 'one sentence for people',
    ingest_batch LowCardinality(String) DEFAULT getSetting('log_comment')
)
ENGINE = MergeTree
ORDER BY (server, name, time)
SETTINGS non_replicated_deduplication_window = 1000;
