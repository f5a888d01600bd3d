"""Where the store says that KV-event streams stood, for a collector that starts again."""

from __future__ import annotations

from clickhouse_connect.driver.client import Client

from collector.kv_stream import MAX_DEPTHS, Position

_RECENT_DAYS = 7

_LAST = f"""
SELECT source, toFloat64(epoch), max(seq) AS last, toFloat64(argMax(time, seq))
FROM kv_events
WHERE server = {{server:String}} AND rank = {{rank:UInt16}} AND action NOT IN ('gap', 'restart')
  AND time > now() - INTERVAL {_RECENT_DAYS} DAY
GROUP BY source, epoch
ORDER BY epoch DESC
LIMIT 1 BY source
"""
_DEPTHS = f"""
SELECT assumeNotNull(block), any(depth)
FROM kv_events
WHERE server = {{server:String}} AND rank = {{rank:UInt16}} AND source = {{source:String}} AND action = 'stored'
  AND toFloat64(epoch) = {{epoch:Float64}} AND depth IS NOT NULL AND time > now() - INTERVAL {_RECENT_DAYS} DAY
GROUP BY block
ORDER BY max(seq) DESC
LIMIT {MAX_DEPTHS}
"""


def stored_positions(client: Client, server: str, rank: int) -> dict[str, Position]:
    """The newest life of each stream (by topic) of a server's rank that was stored in the last days."""
    positions = {}
    for source, epoch, seq, ts in client.query(_LAST, {"server": server, "rank": rank}).result_rows:
        parameters = {"server": server, "rank": rank, "source": source, "epoch": epoch}
        newest_first = client.query(_DEPTHS, parameters).result_rows
        # the oldest first: in that order they are forgotten
        depths = {row[0]: row[1] for row in reversed(list(newest_first))}
        positions[source] = Position(epoch, seq, ts, depths)
    return positions
