"""What the processes of a server counted while one request ran, and what part of that was the request's.

A probe counts by process, not by request. A point says what was counted from its beginning to its end; a request that
ran for a part of that time gets that part of it, evenly. Of what is left it did as much as the others that were in
flight then: its time in flight over that of all of them. The share is stated beside every number, since it is an
estimate: where one of several requests did all of the work, only counters of its own thread tell. So is the part of
its time that points cover: what a probe that was away did not count is not known, and nothing is made up for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at, together
from analysis.observed.model import Observed, Process
from analysis.observed.points import IS_COUNT, LONGEST_US, after, told_until
from cachemodel.observed import (
    BY_NAME,
    EXECUTABLE,
    GPU_ID,
    GPU_NAME,
    HOST,
    METRICS,
    PID,
    SCALED,
    SERVICE,
    SOURCE,
    THREAD_ID,
)

_LONGEST_REQUEST_US = 3_600_000_000
_COUNTERS = [m.name for m in METRICS if m.kind == "counter" and not m.name.startswith("hitmap.probe.")]
_GAUGES = [metric.name for metric in METRICS if metric.kind == "gauge"]
_HIDDEN = (SOURCE, SCALED, GPU_ID, GPU_NAME, PID)
_TOLD_APART = f"mapSort(mapFilter((k, _) -> NOT has({list(_HIDDEN)}, k), Attributes))"
_WHOSE = f"if(ResourceAttributes['{PID}'] != '', ResourceAttributes['{PID}'], Attributes['{PID}'])"
_POINTS_SHOWN = 2000
_GAUGE_AFTER_US = 1_000_000  # a gauge of the next reading tells of a request that ended before there was one
_GPU_KNOWN_US = 60_000_000  # around it: a process keeps its memory
_SAME = 0.01  # parts of the time that differ by less are the same
_TWICE = 1.05  # points tell so much more than the time they cover: there are two probes

# Of the host's GPUs, or of those on which the processes have memory, where that is told.
_USED = f"""
    (
        SELECT groupUniqArray(Attributes['{GPU_ID}']) FROM otel_metrics_gauge
        WHERE ServiceName = '{SERVICE}' AND MetricName = 'hw.gpu.memory.usage'
            AND TimeUnix >= {at("begin")} - INTERVAL {_GPU_KNOWN_US} MICROSECOND
            AND TimeUnix <= {at("end")} + INTERVAL {_GPU_KNOWN_US} MICROSECOND
            AND (ResourceAttributes['{HOST}'], {_WHOSE}) IN {{pids:Array(Tuple(String, String))}}
    ) AS used"""
_OF_THEIR_GPUS = """pid = '' AND host IN {hosts:Array(String)} AND (empty(used) OR has(used, gpu))"""
_POINT = f"""
    ResourceAttributes['{HOST}'] AS host,
    Attributes['{GPU_ID}'] AS gpu,
    Attributes['{GPU_NAME}'] AS product,
    toString(MetricName) AS metric,
    {_TOLD_APART} AS told,
    Attributes['{SOURCE}'] AS source,
    Value AS value"""
_SERIES = ("host", "pid", "gpu", "product", "metric", "told", "source")


def _own(flight: str, moment: str) -> str:
    """SQL of the request's own part of all moments up to that one, microseconds."""
    return f"({flight}.own + if({flight}.flying > 0, ({moment} - {flight}.moment) / {flight}.flying, 0))"


_COUNTED = f"""
WITH
    {_USED},
    toFloat64({{end:Int64}} - {{begin:Int64}}) AS length,
    -- requests came and went; microseconds after the arrival of the one that is asked for
    changes AS
    (
        SELECT change.1 AS moment, sum(change.2) AS more
        FROM
        (
            SELECT toFloat64(toUnixTimestamp64Micro(time) - {{begin:Int64}}) AS came,
                   arrayJoin([(greatest(came, 0.), 1), (least(came + assumeNotNull(e2e_us), length), -1)]) AS change
            FROM requests
            WHERE server = {{server:String}} AND e2e_us > 0 AND came + e2e_us > 0
                AND time < {at("end")} AND time >= {at("begin")} - INTERVAL {_LONGEST_REQUEST_US} MICROSECOND
        )
        GROUP BY moment
    ),
    -- of each moment a request that is in flight has one part of as many as are: those of the time before are `own`
    flights AS
    (
        SELECT 1 AS one, moment, flying,
               sum(if(before > 0, (moment - since) / before, 0)) OVER (ORDER BY moment) AS own
        FROM
        (
            SELECT moment, flying, lagInFrame(flying) OVER w AS before, lagInFrame(moment) OVER w AS since
            FROM (SELECT moment, more, sum(more) OVER (ORDER BY moment) AS flying FROM changes)
            WINDOW w AS (ORDER BY moment ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
        )
    ),
    points AS
    (
        SELECT *, 1 AS one, least(till, length) AS upto,
               least(upto, greatest(start, 0., {told_until(_SERIES)})) AS since,
               least(till, length) - greatest(start, 0.) AS told_time
        FROM
        (
            SELECT {_POINT}, ResourceAttributes['{PID}'] AS pid,
                   {after("StartTimeUnix")} AS start, {after("TimeUnix")} AS till
            FROM otel_metrics_sum
            WHERE ServiceName = '{SERVICE}' AND MetricName IN {{metrics:Array(String)}} AND {IS_COUNT}
                AND TimeUnix > {at("begin")} AND StartTimeUnix < {at("end")}
                AND TimeUnix <= {at("end")} + INTERVAL {LONGEST_US} MICROSECOND
                AND NOT mapContains(Attributes, '{THREAD_ID}')
                AND (({_OF_THEIR_GPUS}) OR (host, pid, ResourceAttributes['{EXECUTABLE}'])
                    IN {{processes:Array(Tuple(String, String, String))}})
        )
    )
SELECT
    {", ".join(_SERIES)},
    sum(value * (upto - since) / (till - start)) AS counted,
    sum(value * ({_own("last", "upto")} - {_own("first", "since")}) / (till - start)) AS own_part,
    sum({_own("last", "upto")} - {_own("first", "since")}) AS own_time,
    sum(upto - since) AS covered,
    sum(told_time),
    countIf(upto > since),
    arraySort(groupArrayIf({_POINTS_SHOWN})((start, till, value), upto > since))
FROM points AS p
ASOF LEFT JOIN flights AS first ON p.one = first.one AND p.since >= first.moment
ASOF LEFT JOIN flights AS last ON p.one = last.one AND p.upto >= last.moment
GROUP BY {", ".join(_SERIES)}
ORDER BY host, gpu, pid, metric, told, source
"""

# Of the processes, and of their GPUs.
_MEASURED = f"""
WITH {_USED}
SELECT
    {", ".join(_SERIES)},
    if(meanwhile > 0, avgIf(value, moment <= length), argMin(value, moment)) AS mean,
    if(meanwhile > 0, minIf(value, moment <= length), mean),
    if(meanwhile > 0, maxIf(value, moment <= length), mean),
    greatest(1, countIf(moment <= length) AS meanwhile),
    arraySort(groupArray({_POINTS_SHOWN})((moment, moment, value)))
FROM
(
    SELECT {_POINT}, {_WHOSE} AS pid, {after("TimeUnix")} AS moment,
           toFloat64({{end:Int64}} - {{begin:Int64}}) AS length
    FROM otel_metrics_gauge
    WHERE ServiceName = '{SERVICE}' AND MetricName IN {{metrics:Array(String)}} AND isFinite(Value)
        AND TimeUnix >= {at("begin")} AND TimeUnix <= {at("end")} + INTERVAL {_GAUGE_AFTER_US} MICROSECOND
        AND ((host, pid) IN {{pids:Array(Tuple(String, String))}} AND (gpu = '' OR empty(used) OR has(used, gpu))
            OR {_OF_THEIR_GPUS})
)
GROUP BY {", ".join(_SERIES)}
ORDER BY host, gpu, pid, metric, told, source
"""


@dataclass(frozen=True, slots=True)
class Counted:
    """notes: what to know of the numbers."""

    observed: Sequence[Observed] = ()
    notes: Sequence[str] = ()


def counted(client: Client, server: str, mine: Sequence[Process], begin: int, end: int) -> Counted:
    """Counters and gauges of a server's processes, and of their hosts' GPUs, while a request ran: [begin, end],
    microseconds since 1970. Empty where none of its processes is watched."""
    if not mine or end <= begin:
        return Counted()
    names = {(process.host, str(process.pid)): process.name for process in mine}
    parameters = {
        "server": server,
        "begin": begin,
        "end": end,
        "pids": list(names),
        "processes": [(process.host, str(process.pid), process.executable) for process in mine],
        "hosts": sorted({process.host for process in mine}),
    }
    counters, gauges = together(
        lambda: client.query(_COUNTED, parameters={**parameters, "metrics": _COUNTERS}).result_rows,
        lambda: client.query(_MEASURED, parameters={**parameters, "metrics": _GAUGES}).result_rows,
    )
    found, twice = [], dict[str, None]()
    for *series, value, own, own_time, covered, told_time, points, shown in counters:
        one = _observed(series, names, value, points, shown)
        share = min(1.0, own / value if value else own_time / covered)
        found.append(replace(one, share=share, covered=covered / (end - begin)))
        if told_time > _TWICE * covered:
            twice[one.of] = None
    notes = [f"two probes watch {of}: each moment is taken from one of them" for of in twice]
    told, of_sources = _one_source(found)
    known = _covered(told)
    measured = [
        replace(_observed(series, names, mean, points, shown), low=low, high=high)
        for *series, mean, low, high, points, shown in gauges
    ]
    return Counted([*known, *measured], [*notes, *of_sources, *_gaps(known)])


def _observed(
    series: Sequence[Any],
    names: Mapping[tuple[str, str], str],
    value: float,
    points: int,
    shown: Sequence[tuple[float, float, float]],
) -> Observed:
    """A row in words; without what only counters or only gauges have."""
    host, pid, gpu, product, metric, told, source = series
    row = BY_NAME[metric]
    whose = [names.get((host, pid), ""), f"{product or 'GPU'} {gpu}" if gpu else ""]
    of = " on ".join(filter(None, whose)) or host
    return Observed(
        row.layer, metric, told, row.unit, row.meaning, of, value, None, source, points, series=list(shown)
    )  # fmt: skip


def _one_source(found: Iterable[Observed]) -> tuple[list[Observed], list[str]]:
    """Of several that counted the same the one that covers most of the time, of those the one that counted most."""
    by: dict[tuple[object, ...], list[Observed]] = {}
    for one in found:
        by.setdefault((one.of, one.metric, *sorted(one.attributes.items())), []).append(one)
    best, notes = [], dict[str, None]()
    for same in by.values():
        first = max(same, key=lambda one: (round(one.covered or 0, 2), one.value))
        best.append(first)
        if others := sorted({one.source for one in same} - {first.source}):
            notes[
                f"{', '.join(others)} counted some of the same of {first.of} as {first.source}, which is shown"
            ] = None
    return best, list(notes)


def _covered(found: Sequence[Observed]) -> list[Observed]:
    """What did not change has fewer points: a source was there while any of its series of the same process was."""
    most: dict[tuple[str, str], float] = {}
    for one in found:
        key = one.of, one.source
        most[key] = max(most.get(key, 0.0), one.covered or 0.0)
    return [replace(one, covered=min(1.0, most[one.of, one.source])) for one in found]


def _gaps(known: Sequence[Observed]) -> Iterator[str]:
    """What was not counted all the time."""
    parts: dict[tuple[str, str], list[str]] = {}
    for one in known:
        if one.covered is not None and one.covered < 1 - _SAME:
            sources = parts.setdefault((one.of, f"{100 * one.covered:.0f} %"), [])
            if one.source not in sources:
                sources.append(one.source)
    for (of, part), sources in parts.items():
        by = f" by {', '.join(filter(None, sources))}" if any(sources) else ""
        yield f"{of} was watched{by} in {part} of its time: what happened in the rest is not known"
