"""What the processes of a server counted while one request ran, and what part of that was the request's.

A probe counts by process, not by request. A point says what was counted from its beginning to its end; a request that
ran for a part of that time gets that part of it, evenly. Of what is left it did as much as the others that were in
flight then: its time in flight over that of all of them. The share is stated beside every number, since it is an
estimate: where one of several requests did all of the work, only counters of its own thread tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at
from analysis.observed.model import Observed, Process
from cachemodel.observed import (
    BY_NAME,
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

_LONGEST_POINT_US = 2_000_000
_LONGEST_REQUEST_US = 3_600_000_000
_COUNTERS = [metric.name for metric in METRICS if metric.kind == "counter"]
_GAUGES = [metric.name for metric in METRICS if metric.kind == "gauge"]
_HIDDEN = (SOURCE, SCALED, GPU_ID, GPU_NAME, PID)
_TOLD_APART = f"mapFilter((k, _) -> NOT has({list(_HIDDEN)}, k), Attributes)"
_WHOSE = f"if(ResourceAttributes['{PID}'] != '', ResourceAttributes['{PID}'], Attributes['{PID}'])"
_POINTS_SHOWN = 2000


def _after(column: str) -> str:
    """SQL of a point in time as microseconds after the request's arrival."""
    return f"(toUnixTimestamp64Nano({column}) - 1000 * {{begin:Int64}}) / 1000"


_OF_PROCESSES = f"""
WITH
    toFloat64({{end:Int64}} - {{begin:Int64}}) AS length,
    -- when requests came and went, in microseconds after the arrival of the one that is asked for
    (
        SELECT arraySort(arrayFlatten(groupArray([
            (greatest(toFloat64(came), 0.), 1),
            (least(toFloat64(came + assumeNotNull(e2e_us)), length), -1)
        ])))
        FROM (SELECT toUnixTimestamp64Micro(time) - {{begin:Int64}} AS came, e2e_us, server, time FROM requests)
        WHERE server = {{server:String}} AND e2e_us > 0
            AND time < {at("end")} AND time >= {at("begin")} - INTERVAL {_LONGEST_REQUEST_US} MICROSECOND
            AND came + e2e_us > 0
    ) AS edges,
    arrayCumSum(edge -> edge.2, edges) AS flying,
    arrayPushBack(arrayPopFront(edges), (0., 0)) AS next_edges,
    arrayMap((edge, next, n) -> (edge.1, next.1, n), edges, next_edges, flying) AS spells,
    arrayFilter(spell -> spell.2 > spell.1 AND spell.3 > 0, spells) AS together
SELECT
    host, pid, metric, told, source,
    sum(value * (upto - since) / (till - start)) AS counted,
    sum(value * own / (till - start)) AS own_part,
    sum(own) / sum(upto - since) AS mean_share,
    count() AS points,
    arraySort(groupArray({_POINTS_SHOWN})((start, till, value))) AS series
FROM
(
    SELECT
        ResourceAttributes['{HOST}'] AS host,
        ResourceAttributes['{PID}'] AS pid,
        toString(MetricName) AS metric,
        {_TOLD_APART} AS told,
        Attributes['{SOURCE}'] AS source,
        Value AS value,
        {_after("StartTimeUnix")} AS start,
        {_after("TimeUnix")} AS till,
        greatest(start, 0.) AS since,
        least(till, length) AS upto,
        -- its part of each moment is one of as many as were in flight then
        arraySum(s -> greatest(0., least(s.2, upto) - greatest(s.1, since)) / s.3, together) AS own
    FROM otel_metrics_sum
    WHERE ServiceName = '{SERVICE}' AND MetricName IN {{metrics:Array(String)}}
        AND TimeUnix > {at("begin")} AND TimeUnix <= {at("end")} + INTERVAL {_LONGEST_POINT_US} MICROSECOND
        AND StartTimeUnix < {at("end")} AND StartTimeUnix < TimeUnix
        AND NOT mapContains(Attributes, '{THREAD_ID}')
        AND (ResourceAttributes['{HOST}'], ResourceAttributes['{PID}']) IN {{processes:Array(Tuple(String, String))}}
)
WHERE upto > since
GROUP BY host, pid, metric, told, source
ORDER BY host, pid, metric, told
"""

# Of the host's GPUs, or of those on which the processes have memory, where that is told.
_OF_GPUS = f"""
WITH
    (
        SELECT groupUniqArray(Attributes['{GPU_ID}']) FROM otel_metrics_gauge
        WHERE ServiceName = '{SERVICE}' AND MetricName = 'hw.gpu.memory.usage'
            AND TimeUnix >= {at("begin")} - INTERVAL 60 SECOND AND TimeUnix <= {at("end")} + INTERVAL 60 SECOND
            AND (ResourceAttributes['{HOST}'], {_WHOSE}) IN {{processes:Array(Tuple(String, String))}}
    ) AS used
SELECT
    host, pid, gpu, product, metric, told, source,
    avg(value), min(value), max(value), count(),
    arraySort(groupArray({_POINTS_SHOWN})((at, at, value)))
FROM
(
    SELECT
        ResourceAttributes['{HOST}'] AS host,
        {_WHOSE} AS pid,
        Attributes['{GPU_ID}'] AS gpu,
        Attributes['{GPU_NAME}'] AS product,
        toString(MetricName) AS metric,
        {_TOLD_APART} AS told,
        Attributes['{SOURCE}'] AS source,
        Value AS value,
        {_after("TimeUnix")} AS at
    FROM otel_metrics_gauge
    WHERE ServiceName = '{SERVICE}' AND MetricName IN {{metrics:Array(String)}}
        AND TimeUnix >= {at("begin")} AND TimeUnix <= {at("end")} + INTERVAL {{after:Int64}} MICROSECOND
        AND ResourceAttributes['{HOST}'] IN {{hosts:Array(String)}}
        AND (pid = '' OR (host, pid) IN {{processes:Array(Tuple(String, String))}})
        AND (gpu = '' OR empty(used) OR has(used, gpu))
)
GROUP BY host, pid, gpu, product, metric, told, source
ORDER BY host, gpu, pid, metric, told
"""
_GAUGE_AFTER_US = 1_000_000  # a gauge of the next reading covers the time since the one before


def counted(client: Client, server: str, mine: Sequence[Process], begin: int, end: int) -> list[Observed]:
    """Counters and gauges of a server's processes, and of their hosts' GPUs, while a request ran: [begin, end],
    microseconds since 1970. Empty where none of its processes is watched."""
    if not mine or end <= begin:
        return []
    names = {(process.host, str(process.pid)): f"{process.executable} ({process.pid})" for process in mine}
    parameters: dict[str, object] = {"server": server, "begin": begin, "end": end, "processes": list(names)}
    found = []
    rows = client.query(_OF_PROCESSES, parameters={**parameters, "metrics": _COUNTERS}).result_rows
    for host, pid, metric, told, source, value, own, mean_share, points, series in rows:
        share = own / value if value else mean_share
        found.append(_observed(metric, told, names[host, pid], value, share, source, points, series))
    hosts = sorted({process.host for process in mine})
    parameters |= {"hosts": hosts, "after": _GAUGE_AFTER_US, "metrics": _GAUGES}
    for host, pid, gpu, product, metric, told, source, mean, low, high, points, series in client.query(
        _OF_GPUS, parameters=parameters
    ).result_rows:
        whose = names.get((host, pid), "")
        of = " on ".join(filter(None, [whose, f"{product or 'GPU'} {gpu}" if gpu else ""])) or host
        found.append(_observed(metric, told, of, mean, None, source, points, series, low, high))
    return found


def _observed(
    metric: str,
    told: dict[str, str],
    of: str,
    value: float,
    share: float | None,
    source: str,
    points: int,
    series: Sequence[tuple[float, float, float]],
    low: float | None = None,
    high: float | None = None,
) -> Observed:
    row = BY_NAME[metric]
    return Observed(
        row.layer, metric, told, row.unit, row.meaning, of, value, share, source, points, low, high, list(series)
    )  # fmt: skip
