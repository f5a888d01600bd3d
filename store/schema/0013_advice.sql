-- What people decided about suggestions of the advisor. Nothing is changed or deleted: the newest row of a key counts.
CREATE TABLE IF NOT EXISTS advice_verdicts
(
    time    DateTime64(6) COMMENT 'when it was decided',
    key     String        COMMENT 'of the suggestion, the same in every log: analysis/advisor/key.py',
    verdict Enum8('open' = 0, 'accepted' = 1, 'dismissed' = 2) COMMENT 'open: an earlier one was taken back',
    reason  String        COMMENT 'as somebody wrote it'
)
ENGINE = MergeTree
ORDER BY (key, time);
