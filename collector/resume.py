"""What the store knows of a server, for sources that take up what an earlier run of the collector left off."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clickhouse_connect.driver.client import Client

from collector.kv.stored_life import StoredLife
from collector.kv.stream import Position
from collector.log_tail import LogPosition
from collector.series import UP, LastSample, fingerprint

# The newest life of each stream. Sources that fell silent long before the others are not looked for.
_LIVES = """
SELECT source, toFloat64(epoch), max(seq), toFloat64(argMax(time, seq))
FROM kv_events
WHERE server = {server:String} AND rank = {rank:UInt16} AND action NOT IN ('gap', 'restart')
  AND time > (SELECT max(time) FROM kv_events WHERE server = {server:String} AND rank = {rank:UInt16}) - INTERVAL 7 DAY
GROUP BY source, epoch
ORDER BY epoch DESC
LIMIT 1 BY source
"""
# `up` is in every scrape: it tells cheaply when the last good one was.
_SAMPLES = """
SELECT fingerprint, toUnixTimestamp64Micro(max(time)), argMax(value, time)
FROM samples
WHERE time > (SELECT max(time) FROM samples WHERE fingerprint = {up:UInt64} AND value = 1) - INTERVAL 1 HOUR
  AND fingerprint IN (SELECT fingerprint FROM series WHERE server = {server:String})
GROUP BY fingerprint
"""
_LOG = """
SELECT toFloat64(Timestamp), toInt64OrZero(LogAttributes['uptime_us'])
FROM otel_logs
WHERE ServiceName = {server:String} AND startsWith(ScopeName, 'hitmap.') AND LogAttributes['uptime_us'] != ''
  AND toStartOfFiveMinutes(Timestamp) >=
    (SELECT toStartOfFiveMinutes(max(Timestamp)) FROM otel_logs WHERE ServiceName = {server:String})
ORDER BY Timestamp DESC
LIMIT 1
"""


_CHAINS = """
SELECT DISTINCT request_id
FROM request_chains
WHERE server = {server:String} AND key IN (SELECT sipHash64(arrayJoin({ids:Array(String)})))
  AND time BETWEEN toDateTime64({since:Float64}, 6) - 1 AND toDateTime64({until:Float64}, 6) + 1
"""


class Stored:
    """Asks the store when a source starts. connect: opens a client.

    Everything accepted before must have reached the store: growth would otherwise be counted from an older sample.
    """

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect

    def samples(self, server: str) -> dict[int, LastSample]:
        """The last sample of each series of a server, by fingerprint."""
        parameters = {"server": server, "up": fingerprint(server, UP.name, ())}
        with self._connect() as client:
            rows = client.query(_SAMPLES, parameters).result_rows
        return {row[0]: LastSample(row[1], row[2]) for row in rows}

    def log_position(self, server: str) -> LogPosition | None:
        """The newest line of a server's own log; None where there is none that tells how long the server has run."""
        with self._connect() as client:
            rows = client.query(_LOG, {"server": server}).result_rows
        return LogPosition(*rows[0]) if rows else None

    def kv_positions(self, server: str, rank: int) -> dict[str, Position]:
        """Where each stream (by topic) of a server's rank stood."""
        with self._connect() as client:
            lives = client.query(_LIVES, {"server": server, "rank": rank}).result_rows
        return {
            source: Position(epoch, seq, ts, StoredLife(self._connect, server, rank, source, epoch))
            for source, epoch, seq, ts in lives
        }

    def chains(self, server: str, ids: Sequence[str], since_s: float, until_s: float) -> set[str]:
        """Which of these requests, sent within a span of time (Unix seconds), have a chain."""
        parameters = {"server": server, "ids": list(ids), "since": since_s, "until": until_s}
        with self._connect() as client:
            return {str(row[0]) for row in client.query(_CHAINS, parameters).result_rows}
