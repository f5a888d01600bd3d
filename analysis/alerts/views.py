"""What alert rules select from. Parameters: `from`, `to` (the range that is read), `window` (whole seconds), `servers`
and the rule's `metrics`.

A window is named by the second at which it begins, counted from the epoch: `start_of(column)`.
"""

from __future__ import annotations

import re

from analysis.sanity.views import VIEWS as OF_SANITY
from analysis.selection import TIME
from cachemodel.observed import EXECUTABLE, GPU_ID, GPU_NAME, HOST, PID, SERVER, SERVICE, SOURCE, THREAD_ID


def _during(column: str) -> str:
    return f"{column} >= {{from:{TIME}}} AND {column} < {{to:{TIME}}}"


_SENT = f"ServiceName = '{SERVICE}' AND MetricName IN {{metrics:Array(String)}} AND {_during('TimeUnix')}"
_NO_VALUE = 1  # in Flags: OTLP's mark of a point that stands for a missing one
_DELTA = 1  # AggregationTemporality

VIEWS = {
    "told": OF_SANITY["told"],
    # requests whose prompt and hits are known
    "answered": f"""
        SELECT start_of(time) AS at, server, prompt_tokens, cached_tokens
        FROM requests
        WHERE {_during("time")} AND prompt_tokens > 0 AND cached_tokens IS NOT NULL""",
    # the series of the rule's metrics, as servers expose them
    "named": """
        SELECT fingerprint, server, metric, labels
        FROM series
        WHERE metric IN {metrics:Array(String)}
        LIMIT 1 BY fingerprint""",
    # of each such series and window: middle: the median of its values
    "scraped": f"""
        SELECT at, server, metric, labels, grown, first, latest, middle, scrapes
        FROM
        (
            SELECT fingerprint, start_of(time) AS at, sum(delta) AS grown, argMin(value, time) AS first,
                   argMax(value, time) AS latest, quantileExact(0.5)(value) AS middle, count() AS scrapes
            FROM samples
            WHERE {_during("time")} AND fingerprint IN (SELECT fingerprint FROM named)
            GROUP BY fingerprint, at
        ) AS seen
        INNER JOIN named USING (fingerprint)""",
    # tokens by the counters of servers; each ratio within one family, whose counters grow at the same moment
    "tokens": """
        SELECT at, server,
            coalesce(
                sumOrNullIf(grown, metric = 'cached_tokens'), sumOrNullIf(grown, metric = 'cached_tokens_by_tier')
            ) AS finished_cached,
            coalesce(
                sumOrNullIf(grown, metric = 'prompt_tokens'),
                sumOrNullIf(grown, metric = 'prompt_tokens.computed') + sumOrNullIf(grown, metric = 'cached_tokens')
            ) AS finished,
            sumOrNullIf(grown, metric = 'prompt_tokens_by_source') AS sourced,
            sumOrNullIf(
                grown, metric = 'prompt_tokens_by_source' AND labels['source'] NOT IN ('computed', 'local_compute')
            ) AS sourced_cached,
            sumOrNullIf(grown, metric = 'prefix_cache.query_tokens') AS lookups,
            sumOrNullIf(grown, metric IN ('prefix_cache.hit_tokens', 'external_cache.hit_tokens')) AS hits,
            if(finished_cached IS NOT NULL AND finished IS NOT NULL, (finished_cached, finished),
                if(sourced IS NOT NULL, (ifNull(sourced_cached, 0), sourced), (hits, lookups))) AS family,
            family.1 AS cached,
            family.2 AS prompt
        FROM scraped
        GROUP BY at, server""",
    # counters of probes, a row for each series of a process and window. rate: by the second; over the window, or over
    # the time that its points cover where that is longer, so that a point at an edge does not raise it
    "rates": f"""
        SELECT at, metric, host, pid, executable, server, type, reason, source, threads, points,
               counted / greatest({{window:UInt32}}, covered) AS rate
        FROM
        (
            SELECT
                start_of(TimeUnix) AS at,
                MetricName AS metric,
                ResourceAttributes['{HOST}'] AS host,
                ResourceAttributes['{PID}'] AS pid,
                ResourceAttributes['{EXECUTABLE}'] AS executable,
                ResourceAttributes['{SERVER}'] AS server,
                Attributes['system.paging.fault.type'] AS type,
                Attributes['hitmap.tlb_flush.reason'] AS reason,
                Attributes['{SOURCE}'] AS source,
                Attributes['{THREAD_ID}'] != '' AS threads,
                cityHash64(ResourceAttributes, Attributes) AS one,
                sum(Value) AS counted,
                count() AS points,
                sumIf(
                    greatest(0, toUnixTimestamp64Nano(TimeUnix) - toUnixTimestamp64Nano(StartTimeUnix)),
                    toUnixTimestamp(StartTimeUnix) != 0
                ) / 1e9 AS covered
            FROM otel_metrics_sum
            WHERE {_SENT} AND AggregationTemporality = {_DELTA} AND bitAnd(Flags, {_NO_VALUE}) = 0
            GROUP BY at, metric, host, pid, executable, server, type, reason, source, threads, one
        )""",
    # gauges of GPUs
    "gauges": f"""
        SELECT start_of(TimeUnix) AS at, MetricName AS metric, ResourceAttributes['{HOST}'] AS host,
               Attributes['{GPU_ID}'] AS gpu, Attributes['{GPU_NAME}'] AS gpu_name,
               Attributes['hitmap.gpu.kernel'] AS kernel, Value AS value
        FROM otel_metrics_gauge
        WHERE {_SENT} AND bitAnd(Flags, {_NO_VALUE}) = 0""",
}
_START_OF = re.compile(r"\bstart_of\(\s*(\w+)\s*\)")


def with_views(sql: str, then: str) -> str:
    """The query `then`, which selects from `told_by_rule`, as the rule's own is called in it. Views that it does not
    name cost it nothing."""
    before = ",\n".join(f"{name} AS ({view})" for name, view in {**VIEWS, "told_by_rule": sql}.items())
    # written out: an embedded store lets readers call the functions it knows only
    return _START_OF.sub(
        r"intDiv(toUnixTimestamp(\1), {window:UInt32}) * {window:UInt32}", f"WITH {before}\n{then}"
    )
