"""What rules select from, so that a rule says only what is wrong. Each reads the servers and times in question.

Parameters: `servers`, `from`, `to`, and the rule's `metrics` (canonical names; `*` for all but the buckets of
histograms, `**` for all).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from analysis.selection import TIME

_DURING = f"time >= {{from:{TIME}}} AND time < {{to:{TIME}}}"
_OF_SERVERS = "server IN {servers:Array(String)}"
# The newest row before the end of the range; where there is none, the first after it.
_NEAREST = f"(time > {{to:{TIME}}}, abs(dateDiff('microsecond', time, {{to:{TIME}}})))"

VIEWS = {
    # what is known of each server
    "told": f"""
        SELECT
            server,
            argMin(kind, {_NEAREST}) AS kind,
            argMin(version, {_NEAREST}) AS version,
            arrayStringConcat(arraySort(argMin(models, {_NEAREST})), ', ') AS models,
            argMin(facts, {_NEAREST}) AS facts,
            argMin(signals, {_NEAREST}) AS signals
        FROM servers
        WHERE {_OF_SERVERS}
        GROUP BY server""",
    # the series of the rule's metrics
    "named": f"""
        SELECT fingerprint, server, metric, raw_name, unit, labels
        FROM series
        WHERE {_OF_SERVERS} AND
            (
                metric IN {{metrics:Array(String)}}
                OR has({{metrics:Array(String)}}, '**')
                OR has({{metrics:Array(String)}}, '*') AND metric NOT LIKE '%.bucket'
            )
        LIMIT 1 BY fingerprint""",
    # each of those series over the range. grown: growth with resets handled, NULL for gauges and what was seen once
    "counters": f"""
        SELECT * FROM
        (
            SELECT
                fingerprint,
                sum(delta) AS grown,
                countIf(delta > 0) AS steps,
                argMin(value - ifNull(delta, 0), time) AS began,
                argMax(value, time) AS latest,
                min(value) AS lowest,
                max(value) AS highest,
                avg(value) AS mean,
                count() AS samples,
                countIf(value > 0) AS above_zero,
                min(time) AS first_time,
                max(time) AS last_time
            FROM samples
            WHERE fingerprint IN (SELECT fingerprint FROM named) AND {_DURING}
            GROUP BY fingerprint
        ) AS seen
        INNER JOIN named USING (fingerprint)""",
    # growth by metric, all labels together
    "growth": """
        SELECT server, metric, sum(grown) AS grown, max(samples) AS samples,
               min(first_time) AS first_time, max(last_time) AS last_time
        FROM counters
        GROUP BY server, metric""",
    # requests that arrived in the range
    "answered": f"SELECT * FROM requests WHERE {_OF_SERVERS} AND {_DURING}",
    # names under which requests were told of in the range and that may be one server's: its own, with responses and
    # without spans, and `twin`, never attached, with spans of such a server at about that time and without responses
    "twins": f"""
        SELECT server, responses, twin, spans
        FROM
        (
            SELECT server, count() AS responses, min(time) AS first_response, max(time) AS last_response
            FROM request_usage
            WHERE {_DURING} AND server NOT IN (SELECT server FROM requests WHERE {_DURING} AND span_id != 0)
            GROUP BY server
        ) AS own
        INNER JOIN (SELECT server, argMax(kind, time) AS kind FROM servers GROUP BY server) AS attached USING (server)
        INNER JOIN
        (
            SELECT server AS twin, dialect AS kind, count() AS spans, min(time) AS first_span, max(time) AS last_span
            FROM requests
            WHERE {_DURING} AND span_id != 0 AND server NOT IN (SELECT server FROM servers)
                AND server NOT IN (SELECT server FROM request_usage WHERE {_DURING})
            GROUP BY server, dialect
        ) AS other USING (kind)
        WHERE first_span < last_response + INTERVAL 1 MINUTE AND last_span > first_response - INTERVAL 1 MINUTE""",
    # KV events of the range
    "kv": f"SELECT * FROM kv_events WHERE {_OF_SERVERS} AND {_DURING}",
    # what servers logged in the range
    "logged": f"""
        SELECT ServiceName AS server, Timestamp AS time, EventName AS event, LogAttributes AS a
        FROM otel_logs
        WHERE ServiceName IN {{servers:Array(String)}}
            AND Timestamp >= {{from:{TIME}}} AND Timestamp < {{to:{TIME}}}""",
    # points of metrics that were sent by OTLP in the range, under the name that their sender has
    "sent": "\n        UNION ALL\n".join(
        f"""
        SELECT ServiceName AS server, TimeUnix AS time
        FROM {table}
        WHERE ServiceName IN {{servers:Array(String)}}
            AND TimeUnix >= {{from:{TIME}}} AND TimeUnix < {{to:{TIME}}}"""
        for table in ("otel_metrics_gauge", "otel_metrics_sum", "otel_metrics_histogram")
    ),
    # by what requests told of themselves. told_*: of those that tell both
    "usage": """
        SELECT
            server,
            count() AS requests,
            countIf(cached_tokens IS NOT NULL AND prompt_tokens IS NOT NULL) AS telling,
            sumOrNullIf(prompt_tokens, cached_tokens IS NOT NULL) AS told_prompt,
            sumOrNullIf(cached_tokens, prompt_tokens IS NOT NULL) AS told_cached,
            sumOrNull(prompt_tokens) AS all_prompt
        FROM answered
        GROUP BY server""",
    # servers that told of 2,000 prompt tokens or more and of no hit, caching being on as far as they say
    "unhit": """
        SELECT server, coalesce(lookups, prompt, told_prompt) AS looked_up
        FROM totals
        FULL JOIN usage USING (server)
        WHERE looked_up >= 2000 AND coalesce(hits, cached, told_cached) = 0 AND ifNull(cached, 0) = 0
            AND ifNull(external_hits, 0) = 0 AND ifNull(told_cached, 0) = 0
            AND server NOT IN
            (
                SELECT server FROM told
                WHERE facts['enable_prefix_caching'] = 'False' OR facts['disable_radix_cache'] = 'True'
            )""",
    # of those, blocks stored again though they were held: the same prompt was computed again
    "stored_again": """
        SELECT server, uniq(block) AS blocks
        FROM
        (
            SELECT server, block
            FROM kv
            WHERE server IN (SELECT server FROM unhit)
                AND server NOT IN (SELECT server FROM kv WHERE action IN ('cleared', 'gap', 'restart'))
            GROUP BY server, source, rank, medium, group_idx, block
            HAVING countIf(action = 'stored') - countIf(action = 'removed') >= 2
        )
        GROUP BY server""",
    # prompts sent again, as far as labels tell: one template, one length. first, median: ms until the first token
    "same_prompts": """
        SELECT server, template, prompt_tokens, count() AS times, countIf(cached_tokens = 0) AS unhit,
               argMin(if(prefill_us IS NULL, ttft_us, prefill_us), time) / 1000 AS first,
               quantileExact(0.5)(if(prefill_us IS NULL, ttft_us, prefill_us)) / 1000 AS median
        FROM (SELECT *, labels['template'] AS template FROM answered)
        WHERE template != '' AND prompt_tokens > 0
        GROUP BY server, template, prompt_tokens
        HAVING times >= 2""",
    # the unit by which a server caches, in tokens: what it says, or what all its hits are multiples of
    "units": """
        SELECT server, u.1 AS unit, u.2 AS unit_told_by
        FROM
        (
            SELECT server, argMax(u, u.1) AS u
            FROM
            (
                SELECT
                    server,
                    if(facts['block_size'] != '', facts['block_size'], facts['page_size']) AS size,
                    (toUInt64OrZero(size), 'its own word') AS u
                FROM told
                UNION ALL
                SELECT server, '' AS size, (toUInt64(ifNull(max(block_size), 0)), 'its KV events') AS u
                FROM kv
                WHERE tier IN ('', 'device')
                GROUP BY server
                UNION ALL
                SELECT
                    server,
                    '' AS size,
                    (arrayFold((g, n) -> gcd(g, n), sizes, sizes[1]), 'what its hits are multiples of') AS u
                FROM
                (
                    SELECT server, groupUniqArray(1000)(toUInt64(assumeNotNull(cached_tokens))) AS sizes
                    FROM answered
                    WHERE cached_tokens > 0
                    GROUP BY server
                    HAVING length(sizes) >= 3
                )
            )
            GROUP BY server
        )
        WHERE unit > 0""",
    # by the server's counters: growth over the range
    "totals": """
        SELECT
            server,
            sumOrNullIf(grown, metric = 'prefix_cache.hit_tokens') AS hits,
            sumOrNullIf(grown, metric = 'prefix_cache.query_tokens') AS lookups,
            sumOrNullIf(grown, metric = 'external_cache.hit_tokens') AS external_hits,
            sumOrNullIf(grown, metric = 'external_cache.query_tokens') AS asked,
            sumOrNullIf(grown, metric = 'prompt_tokens_by_source') AS sourced,
            sumOrNullIf(
                grown,
                metric = 'prompt_tokens_by_source' AND labels['source'] NOT IN ('computed', 'local_compute')
            ) AS sourced_cached,
            sumOrNullIf(
                grown, metric = 'prompt_tokens_by_source' AND labels['source'] IN ('local_cache_hit', 'device')
            ) AS sourced_device,
            sumOrNullIf(
                grown, metric = 'prompt_tokens_by_source' AND labels['source'] = 'external_kv_transfer'
            ) AS transferred,
            coalesce(
                sumOrNullIf(grown, metric = 'cached_tokens'),
                sumOrNullIf(grown, metric = 'cached_tokens_by_tier')
            ) AS finished_cached,
            coalesce(
                finished_cached, sourced_cached, sumOrNullIf(grown, metric = 'request.cached_tokens.sum')
            ) AS cached,
            -- of the same family as `cached`: those by source count at prefill, others when a request finishes
            coalesce(
                if(finished_cached IS NULL, sourced, NULL),
                sumOrNullIf(grown, metric = 'prompt_tokens'),
                sumOrNullIf(grown, metric = 'prompt_tokens.computed') + sumOrNullIf(grown, metric = 'cached_tokens'),
                sourced,
                sumOrNullIf(grown, metric = 'request.prompt_tokens.sum')
            ) AS prompt,
            coalesce(
                ratio(sourced_device, sourced),
                ratio(
                    sumOrNullIf(grown, metric = 'cached_tokens_by_tier' AND labels['source'] = 'device'), prompt
                )
            ) AS device_ratio,
            sumOrNullIf(grown, metric = 'preemptions') AS preempted,
            -- prompt tokens of requests that were begun and not yet counted, at most
            ifNull(maxOrNullIf(highest, metric = 'requests.running')
                * prompt / sumOrNullIf(grown, metric = 'requests.finished' AND grown > 0), 0) AS in_flight,
            max(samples) AS samples,
            min(first_time) AS first_time,
            max(last_time) AS last_time
        FROM counters
        GROUP BY server""",
    # hit ratios that count each request once; NULL where hits may be counted again. of_device: of the device cache, or
    # of all tiers where none is told and no external hit was counted; of_counters: of all tiers, without responses;
    # of_all: of all tiers
    "once": """
        SELECT
            server,
            ifNull(external_hits, 0) = 0 AS device_only,
            coalesce(ratio(cached, prompt), ratio(told_cached, told_prompt)) AS of_all,
            coalesce(device_ratio, if(device_only, of_all, NULL)) AS of_device,
            coalesce(
                ratio(cached, prompt),
                if(device_only, ratio(hits, lookups), NULL),
                if(
                    lookups <= 1.02 * prompt + 512 + in_flight
                        AND asked <= 1.02 * (lookups - hits) + 512 + in_flight,
                    ratio(hits + external_hits, lookups),
                    NULL
                )
            ) AS of_counters
        FROM totals
        FULL JOIN usage USING (server)""",
}
METRICS_OF = {
    "totals": (
        "prefix_cache.hit_tokens",
        "prefix_cache.query_tokens",
        "external_cache.hit_tokens",
        "external_cache.query_tokens",
        "cached_tokens",
        "cached_tokens_by_tier",
        "prompt_tokens",
        "prompt_tokens.computed",
        "prompt_tokens_by_source",
        "request.cached_tokens.sum",
        "request.prompt_tokens.sum",
        "preemptions",
        "requests.running",
        "requests.finished",
    )
}
# Ratios are those of sums, never means of ratios; of nothing, NULL.
_RATIO = "((part, whole) -> if(whole > 0, part / whole, NULL)) AS ratio"
_NAMED = re.compile(r"\b(?:FROM|JOIN)\s+([a-z_]+)\b")


def needed_views(sql: str) -> tuple[str, ...]:
    """The views that a query names, each after those that it needs itself."""
    found: dict[str, None] = {}
    for name in _NAMED.findall(sql):
        if name in VIEWS:
            found |= dict.fromkeys((*needed_views(VIEWS[name]), name))
    return tuple(found)


def metrics_of(sql: str, metrics: Iterable[str]) -> list[str]:
    """The canonical names of all metrics that a rule and the views it names read."""
    return [*metrics, *(metric for view in needed_views(sql) for metric in METRICS_OF.get(view, ()))]


def with_views(sql: str) -> str:
    """A query with the views that it needs before it."""
    return (
        "WITH "
        + ",\n".join([_RATIO, *(f"{name} AS ({VIEWS[name]})" for name in needed_views(sql))])
        + "\n"
        + sql
    )
