"""The public reports that ask a collector for the right figure, or the right warning, each with a small input.

A report says its row in the list of threads, the thread, the symptom in our words, what the server sends, and what must
come of it (`form` has the words for that). Where the cause is not stated publicly the warning is that the telemetry
contradicts itself.

    no_hits      1, 3, 7, 9, 10, 11, 14, 18, 98        hits that never come
    counters     29, 30                                lookups that are counted twice
    gauges       34, 36, 37, 38                        gauges, and names that change
    kv_events    24, 60, 62, 99, 101, 102, 112         KV events, adapters, preemptions
    coverage     26, 43, 44, 46, 67, 94                what is told by half or not at all, and logs
    usage        32, 39, 49, 50, 52 to 54, 56 to 59    what responses and spans tell of their tokens
"""

from __future__ import annotations

from tests.field_reports import counters, coverage, gauges, kv_events, no_hits, usage
from tests.field_reports.form import FieldReport

REPORTS: tuple[FieldReport, ...] = (
    *no_hits.REPORTS,
    *counters.REPORTS,
    *gauges.REPORTS,
    *kv_events.REPORTS,
    *coverage.REPORTS,
    *usage.REPORTS,
)
