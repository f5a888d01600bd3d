"""Chains of requests that only their spans tell of: the reference engine's carry the hashes of their blocks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses.columns import Columns, at

_HASHES = "SpanAttributes['hitmap.block_hashes']"


def _spans(chosen: str) -> str:
    """SQL of the block hashes of the requests that the SQL `chosen` selects, as (server, request_id)."""
    return f"""
        SELECT chosen.server AS server, chosen.request_id AS request_id, Timestamp AS time,
               arrayMap(hash -> toUInt64OrZero(hash), splitByChar(',', {_HASHES})) AS hashes,
               toInt64OrZero(SpanAttributes['hitmap.prompt_blocks']) AS depth
        FROM otel_traces
        INNER JOIN ({chosen}) AS chosen ON SpanAttributes['gen_ai.request.id'] = chosen.request_id
        WHERE Timestamp >= {at("begin")} - INTERVAL 1 MINUTE AND Timestamp <= {at("until")} + INTERVAL 1 MINUTE
            AND SpanName = 'llm_request' AND {_HASHES} != ''
        LIMIT 1 BY server, request_id"""


def _contents(spans: str) -> str:
    """SQL of what stands behind the hashes: a server's own hash is of one content for ever."""
    # an alias that is called as a column takes its place in WHERE, where no aggregate may stand
    return f"""
        SELECT server, block, any(content) AS its_content, any(isolation) AS its_isolation, any(block_size) AS size
        FROM kv_events
        WHERE server IN (SELECT server FROM ({spans})) AND content IS NOT NULL
            AND action IN ('stored', 'resolved') AND block IN (SELECT arrayJoin(hashes) FROM ({spans}))
        GROUP BY server, block"""


def span_blocks(chosen: str) -> str:
    """SQL of the contents of those requests' blocks."""
    return f"SELECT assumeNotNull(its_content) FROM ({_contents(_spans(chosen))})"


def span_chains(client: Client, chosen: str, parameters: Mapping[str, object]) -> Columns:
    """Chains as far as KV events tell what stands behind the hashes; none where more blocks than are on the span."""
    spans = _spans(chosen)
    return Columns(
        client,
        f"""
        SELECT sipHash64(server, request_id) AS whose, 'span' AS told_by, toInt64(-1) AS prompt, toInt64(-1) AS sent,
               toInt64(any(size)) AS block_size, argMin(isolation, number) AS isolation, toUInt64(0) AS template,
               0 AS reads_off, arrayMap(x -> x.2, arraySort(groupArray((number, content)))) AS blocks,
               toInt64(0) AS split_depth, toInt64(0) AS split_tokens, toInt64(0) AS pieces_from,
               emptyArrayUInt64() AS pieces, emptyArrayUInt16() AS piece_tokens, toInt64(9) AS truth
        FROM
        (
            SELECT server, request_id, number, assumeNotNull(c.its_content) AS content,
                   ifNull(c.its_isolation, 0) AS isolation,
                   ifNull(c.size, 0) AS size, depth, length(hashes) AS told
            FROM ({spans}) AS s
            ARRAY JOIN hashes AS hash, arrayEnumerate(hashes) AS number
            INNER JOIN ({_contents(spans)}) AS c ON c.server = s.server AND c.block = hash
        )
        GROUP BY server, request_id, depth, told
        HAVING max(number) = count() AND depth = told AND block_size > 0
        """,
        parameters,
    )


def lacking(told: Columns, chained: Columns) -> bool:
    """Whether a request whose span may tell its blocks has no chain."""
    missing = ~np.isin(told.hashes("whose"), chained.hashes("whose"))
    return bool((missing & told.flags("spans_tell")).any())
