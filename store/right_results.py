"""Settings without which ClickHouse gives wrong results.

ClickHouse 26.9 remembers, for a condition, the granules in which nothing matched, and takes what the runtime filter of
a join left out for the condition's doing: later queries with the same condition then miss rows. Seen on the embedded
engine; `tests/analysis/test_sanity.py` fails with them on.
"""

from __future__ import annotations

RIGHT_RESULTS = {"use_query_condition_cache": "0", "enable_join_runtime_filters": "0"}
