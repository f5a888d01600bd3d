"""What the servers' own counters tell of a time: how much of all prompts they found in their caches."""

from __future__ import annotations

from collections.abc import Sequence

from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at

Grown = tuple[str, int, int, int]
"""A server, from when to when in microseconds, and tokens."""
_HITS, _QUERIES = "prefix_cache.hit_tokens", "prefix_cache.query_tokens"
_APART_US = 60_000_000  # a sample that is farther off tells of another time


def counted_hits(client: Client, servers: Sequence[str], begin: int, end: int) -> tuple[int, int] | None:
    """Tokens found in the device's cache and tokens looked up there, of all that these servers were asked for between
    the samples around a time (microseconds); None where nothing was counted."""
    rows = client.query(
        f"""
        WITH chosen AS
        (
            SELECT fingerprint, any(metric) AS counted FROM series
            WHERE server IN {{servers:Array(String)}} AND metric IN {{metrics:Array(String)}} GROUP BY fingerprint
        )
        SELECT counted, sumOrNull(delta) FROM
        (
            SELECT fingerprint, delta, time,
                   lagInFrame(time, 1, time) OVER (PARTITION BY fingerprint ORDER BY time) AS sampled_before
            FROM samples
            WHERE fingerprint IN (SELECT fingerprint FROM chosen)
                AND time >= {at("from")} AND time <= {at("to")}
        ) AS grown
        INNER JOIN chosen USING (fingerprint)
        WHERE time > {at("begin")} AND sampled_before < {at("end")}
        GROUP BY counted
        """,
        parameters={
            "servers": list(servers), "metrics": [_HITS, _QUERIES], "begin": begin, "end": end,
            "from": begin - _APART_US, "to": end + _APART_US,
        },
    ).result_rows  # fmt: skip
    told = {str(name): grown for name, grown in rows}
    hits, queries = told.get(_HITS), told.get(_QUERIES)
    return (round(hits), round(queries)) if hits is not None and queries else None


def looked_up(client: Client, servers: Sequence[str], begin: int, end: int) -> list[Grown]:
    """Prompt tokens that some servers say they looked up in their caches, between every two samples of a time at which
    there were any, by server and time."""
    rows = client.query(
        f"""
        WITH chosen AS
        (
            SELECT fingerprint, any(server) AS name FROM series
            WHERE server IN {{servers:Array(String)}} AND metric = {{metric:String}} GROUP BY fingerprint
        )
        SELECT name, toUnixTimestamp64Micro(sampled_before), toUnixTimestamp64Micro(time), grown FROM
        (
            SELECT fingerprint, time, ifNull(delta, 0) AS grown,
                   lagInFrame(time, 1, time) OVER (PARTITION BY fingerprint ORDER BY time) AS sampled_before
            FROM samples
            WHERE fingerprint IN (SELECT fingerprint FROM chosen) AND time >= {at("begin")} AND time <= {at("end")}
        ) AS told
        INNER JOIN chosen USING (fingerprint)
        WHERE grown > 0 AND sampled_before < time
        ORDER BY name, time""",
        parameters={"servers": list(servers), "metric": _QUERIES, "begin": begin, "end": end},
    ).result_rows
    return [(str(name), int(since), int(upto), round(grown)) for name, since, upto, grown in rows]
