-- Deploy markers: who changed what, when. `hitmap deploy mark` writes them, reports compare before and after.
CREATE TABLE IF NOT EXISTS deploys
(
    time   DateTime64(6),
    server LowCardinality(String) COMMENT 'empty: every server',
    name   String,
    who    String,
    what   String
)
ENGINE = MergeTree
ORDER BY time;
