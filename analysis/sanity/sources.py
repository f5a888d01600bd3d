"""What the store has of each server: what it is, what comes in, its hit ratios by every source that tells, and what the
rules find."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from clickhouse_connect.driver.client import Client

from analysis.sanity.examine import examine, parameters_of
from analysis.sanity.model import Finding, Unanswered
from analysis.sanity.views import metrics_of, with_views
from cachemodel.errors import UserError
from cachemodel.printable import printable

KINDS = ("request spans", "responses", "metric samples", "OTLP metrics", "KV events", "log events")
_IN_A_LOG = re.compile(r"\bin (its|the server's) log\b")  # as dialects say where such a signal is
_COMES_AS = {"KV events": "KV-cache events"}  # what dialects call the signal, where it has another name


@dataclass(frozen=True, slots=True)
class Signal:
    """Something that a server of this kind can tell. seen: None where nothing that can be asked tells; flag: what opens
    it."""

    signal: str
    seen: bool | None
    evidence: str
    flag: str


@dataclass(frozen=True, slots=True)
class Volume:
    """What came in of one kind in the range. last: the time of the newest, UTC, None where nothing came."""

    kind: str
    rows: int
    last: datetime | None


@dataclass(frozen=True, slots=True)
class Reuse:
    """A hit ratio as one source tells it: `found` of `whole`, in tokens or blocks, sums over the range."""

    told_by: str
    found: int
    whole: int
    unit: str

    @property
    def ratio(self) -> float | None:
        """None where there was nothing to find."""
        return self.found / self.whole if self.whole else None


@dataclass(frozen=True, slots=True)
class ServerSources:
    """One server.

    kind, version, url, models, facts, signals, notes: as found when it was attached (`attached`, UTC), empty where it
    never was.
    """

    server: str
    kind: str
    version: str
    url: str
    models: tuple[str, ...]
    attached: datetime | None
    facts: dict[str, str]
    signals: tuple[Signal, ...]
    notes: tuple[str, ...]
    volumes: tuple[Volume, ...]
    reuse: tuple[Reuse, ...]
    findings: tuple[Finding, ...]
    unanswered: tuple[Unanswered, ...]

    @property
    def last_seen(self) -> datetime | None:
        """When anything of it came last, UTC."""
        return max((volume.last for volume in self.volumes if volume.last), default=None)

    @property
    def unseen(self) -> tuple[Signal, ...]:
        """Signals that it does not tell, without those that could not be asked for and came in all the same."""
        came = {volume.kind for volume in self.volumes if volume.rows}
        came |= {"cached tokens by request" for r in self.reuse if r.whole and r.told_by.endswith("requests")}

        def has_come(signal: Signal) -> bool:
            by_log = "log events" in came and _IN_A_LOG.search(signal.evidence) is not None
            return by_log or any(_COMES_AS.get(kind, kind) in signal.signal for kind in came)

        return tuple(s for s in self.signals if s.seen is False or (s.seen is None and not has_come(s)))


def sources(client: Client, asked: Sequence[str], begin: datetime, end: datetime) -> list[ServerSources]:
    """The servers in question, all that the store knows by default, from `begin` to before `end`.

    Raises UserError where one is asked for that the store does not know.
    """
    known = known_servers(client)
    if unknown := [name for name in asked if name not in known]:
        have = f"it knows {', '.join(known)}" if known else "it knows none: hitmap attach URL"
        raise UserError(printable(f"the store knows no server {unknown[0]!r}; {have}"))
    servers = list(asked) or known
    if not servers:
        return []
    findings: dict[str, list[Finding]] = defaultdict(list)
    examination = examine(client, servers, begin, end)
    for finding in examination.findings:
        findings[finding.server].append(finding)
    parameters = parameters_of(servers, begin, end)
    told = _told(client, servers)
    volumes = _volumes(client, parameters)
    reuse = _reuse(client, parameters)
    return [
        ServerSources(
            server=server,
            **told.get(server, _NEVER_ATTACHED),
            volumes=tuple(volumes[server].get(kind, Volume(kind, 0, None)) for kind in KINDS),
            reuse=tuple(reuse[server]),
            findings=tuple(findings[server]),
            unanswered=examination.unanswered,
        )
        for server in servers
    ]


def known_servers(client: Client) -> list[str]:
    """Every server that the store has anything of."""
    tables = " UNION DISTINCT ".join(
        f"SELECT DISTINCT server FROM {table}" for table in ("servers", "series", "requests", "kv_events")
    )
    return [str(row[0]) for row in client.query(f"SELECT server FROM ({tables}) ORDER BY server").result_rows]


_NEVER_ATTACHED: dict[str, Any] = {
    **{"kind": "", "version": "", "url": "", "models": (), "attached": None},
    **{"facts": {}, "signals": (), "notes": ()},
}


def _told(client: Client, servers: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What was found out of each server when it was attached last."""
    result = client.query(
        "SELECT server, kind, version, url, models, toTimeZone(time, 'UTC') AS attached, facts, notes,"
        " arrayMap(s -> (s.1, s.2, s.3, s.4), signals) AS signals"
        " FROM servers WHERE server IN {servers:Array(String)} ORDER BY time DESC LIMIT 1 BY server",
        parameters={"servers": list(servers)},
    )
    found = {}
    for row in result.result_rows:
        told = dict(zip(result.column_names, row, strict=True))
        signals = (Signal(s[0], None if s[1] is None else bool(s[1]), s[2], s[3]) for s in told["signals"])
        server = str(told.pop("server"))
        found[server] = {
            **told,
            "attached": _utc(told["attached"]),
            "models": tuple(told["models"]),
            "notes": tuple(told["notes"]),
            "signals": tuple(signals),
        }
    return found


_VOLUMES = """
SELECT server, 'request spans' AS kind, count() AS rows, max(time) AS last
FROM answered
WHERE span_id != 0
GROUP BY server
UNION ALL
SELECT server, 'responses' AS kind, count() AS rows, max(time) AS last
FROM request_usage
WHERE server IN {servers:Array(String)}
    AND time >= {from:DateTime64(6, 'UTC')} AND time < {to:DateTime64(6, 'UTC')}
GROUP BY server
UNION ALL
SELECT server, 'metric samples' AS kind, sum(samples) AS rows, max(last_time) AS last FROM counters GROUP BY server
UNION ALL
SELECT server, 'OTLP metrics' AS kind, count() AS rows, toDateTime64(max(time), 6) AS last FROM sent GROUP BY server
UNION ALL
SELECT server, 'KV events' AS kind, count() AS rows, max(time) AS last FROM kv GROUP BY server
UNION ALL
SELECT server, 'log events' AS kind, count() AS rows, toDateTime64(max(time), 6) AS last FROM logged GROUP BY server
"""


def _volumes(client: Client, parameters: dict[str, Any]) -> dict[str, dict[str, Volume]]:
    """What came in, by server and kind."""
    rows = client.query(
        with_views(f"SELECT server, kind, rows, toTimeZone(last, 'UTC') FROM ({_VOLUMES})"),
        parameters={**parameters, "metrics": ["**"]},
    ).result_rows
    found: dict[str, dict[str, Volume]] = defaultdict(dict)
    for server, kind, count, last in rows:
        found[str(server)][str(kind)] = Volume(str(kind), int(count), _utc(last))
    return found


# Each source by itself: where two tell the same tokens, their difference is worth seeing.
_REUSE = """
SELECT server, r.1 AS told_by, toInt64(r.2) AS found, toInt64(r.3) AS whole, r.4 AS unit
FROM
(
    SELECT server, arrayJoin([
        ('counters of the device cache', hits, lookups, 'tokens'),
        ('counters of the KV connector', external_hits, asked, 'tokens'),
        ('counters of cached and prompt tokens', cached, prompt, 'tokens')
    ]) AS r
    FROM totals
    UNION ALL
    SELECT server, ('counters of LMCache', found, looked_up, 'tokens') AS r
    FROM
    (
        SELECT server, sumOrNullIf(grown, metric = 'lmcache.lookup.hit_tokens') AS found,
               sumOrNullIf(grown, metric = 'lmcache.lookup.query_tokens') AS looked_up
        FROM growth
        GROUP BY server
    )
    UNION ALL
    SELECT server, ('counters of blocks', hit, hit + missed, 'blocks') AS r
    FROM
    (
        SELECT server, sumOrNullIf(grown, metric = 'prefix_cache.hit_blocks') AS hit,
               sumOrNullIf(grown, metric = 'prefix_cache.miss_blocks') AS missed
        FROM growth
        GROUP BY server
    )
    UNION ALL
    SELECT server, (format('{} of {} requests', toString(telling), toString(requests)), toFloat64(told_cached),
                    toFloat64(told_prompt), 'tokens') AS r
    FROM usage
)
WHERE r.2 IS NOT NULL AND r.3 IS NOT NULL
"""
_REUSE_METRICS = (
    "lmcache.lookup.hit_tokens",
    "lmcache.lookup.query_tokens",
    "prefix_cache.hit_blocks",
    "prefix_cache.miss_blocks",
)


def _reuse(client: Client, parameters: dict[str, Any]) -> dict[str, list[Reuse]]:
    """Hit ratios by server, as each source tells them."""
    rows = client.query(
        with_views(_REUSE),
        parameters={**parameters, "metrics": metrics_of(_REUSE, _REUSE_METRICS)},
    ).result_rows
    found: dict[str, list[Reuse]] = defaultdict(list)
    for server, *figures in sorted(rows, key=lambda row: str(row[1])):
        found[str(server)].append(Reuse(*figures))
    # Counters that stand still are told of only where no other source tells of more.
    return defaultdict(list, {s: [r for r in told if r.whole] or told for s, told in found.items()})


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC)
