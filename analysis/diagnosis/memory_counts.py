"""What the processes of a side's servers counted, and the requests they counted it for, block of time by block.

Both are of the time that points cover only: a probe that was away for a while lowers nothing. Of a long window an even
sample is read. What happens once, as when a server starts, is in few of the blocks, and the error of the
ratio is as large as the ratio: no change is clear for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.attribution.model import Side
from analysis.misses.columns import at
from analysis.observed.model import Process
from analysis.observed.points import IS_COUNT, LONGEST_US, after, told_until
from analysis.observed.processes import by_server
from analysis.quantiles import Floats
from cachemodel.observed import EXECUTABLE, HOST, PID, SERVICE, SHOOTDOWNS, SOURCE, THREAD_ID

_BLOCKS = 60
_LONGEST_US = 10_000_000  # of a block
_FAULTS, _FLUSHES = "process.paging.faults", "hitmap.tlb_flushes"
METRIC_OF = {
    "process_major_faults": _FAULTS,
    "process_minor_faults": _FAULTS,
    "process_shootdowns": _FLUSHES,
}
_FACT = f"""multiIf(
    metric = '{_FAULTS}', concat('process_', Attributes['system.paging.fault.type'], '_faults'),
    Attributes['hitmap.tlb_flush.reason'] IN {list(SHOOTDOWNS)}, 'process_shootdowns', '')"""
_SERIES = ("metric", "process", "Attributes")


def _in_block(column: str) -> str:
    """SQL condition that a point in time is in one of the blocks, and not between them."""
    return f"positiveModulo(toUnixTimestamp64Micro({column}) - {{begin:Int64}}, {{step:Int64}}) < {{length:Int64}}"


# Two sources that count the same are one: the greater. What a metric covers is what any of its points does.
_POINTS = f"""
SELECT server, metric, fact, block, sum(greatest_count), sum(covered)
FROM
(
    SELECT server, metric, fact, process, block, max(count) AS greatest_count, sum(covered) AS covered
    FROM
    (
        SELECT server, metric, fact, process, source, block,
               sum(value * greatest(0, least(upto, ends) - greatest(since, begins)) / (till - start)) AS count,
               sum(greatest(0, least(upto, ends) - greatest(known, begins))) AS covered
        FROM
        (
            SELECT *, arrayJoin(range(toInt64(intDiv(greatest(start, 0.), {{step:Int64}})),
                                      toInt64(intDiv(upto - 0.001, {{step:Int64}})) + 1)) AS block,
                   toFloat64(block * {{step:Int64}}) AS begins, begins + {{length:Int64}} AS ends
            FROM
            (
                SELECT *, least(till, toFloat64({{end:Int64}} - {{begin:Int64}})) AS upto,
                       greatest(start, 0., {told_until(_SERIES)}) AS since,
                       greatest(start, 0., {told_until(("server", "metric"))}) AS known
                FROM
                (
                    SELECT toString(MetricName) AS metric, {_FACT} AS fact, Attributes['{SOURCE}'] AS source,
                           (ResourceAttributes['{HOST}'], ResourceAttributes['{PID}'],
                            ResourceAttributes['{EXECUTABLE}']) AS process,
                           {{servers:Array(String)}}[indexOf({{processes:Array(Tuple(String, String, String))}},
                                                             process)] AS server,
                           Attributes, Value AS value,
                           {after("StartTimeUnix")} AS start, {after("TimeUnix")} AS till
                    FROM otel_metrics_sum
                    WHERE ServiceName = '{SERVICE}' AND MetricName IN ('{_FAULTS}', '{_FLUSHES}') AND {IS_COUNT}
                        AND TimeUnix > {at("begin")} AND StartTimeUnix < {at("end")}
                        AND TimeUnix <= {at("end")} + INTERVAL {LONGEST_US} MICROSECOND
                        AND ({_in_block("TimeUnix")} OR {_in_block("StartTimeUnix")})
                        AND NOT mapContains(Attributes, '{THREAD_ID}')
                        AND process IN {{processes:Array(Tuple(String, String, String))}}
                )
            )
        )
        GROUP BY server, metric, fact, process, source, block
    )
    GROUP BY server, metric, fact, process, block
)
GROUP BY server, metric, fact, block
"""
_REQUESTS = f"""
SELECT server, intDiv(toUnixTimestamp64Micro(time) - {{begin:Int64}}, {{step:Int64}}) AS block, count()
FROM requests
WHERE server IN {{servers:Array(String)}} AND time >= {at("begin")} AND time < {at("end")}
    AND {_in_block("time")}
GROUP BY server, block
"""
_ANY = f"""
SELECT count() FROM
(
    SELECT 1 FROM otel_metrics_sum
    WHERE ServiceName = '{SERVICE}' AND MetricName IN ('{_FAULTS}', '{_FLUSHES}')
        AND TimeUnix > {at("begin")} AND TimeUnix <= {at("end")}
    LIMIT 1
)
"""


@dataclass(frozen=True, slots=True)
class Counts:
    """counts, requests, seconds: (n,) by block of a server's time in which a probe was there."""

    counts: Floats
    requests: Floats
    seconds: Floats

    @property
    def by_request(self) -> float:
        """Ratio of the sums."""
        return float(self.counts.sum() / self.requests.sum())

    @property
    def by_second(self) -> float:
        """Over the time that is covered."""
        return float(self.counts.sum() / self.seconds.sum())

    @property
    def error(self) -> float:
        """Standard error of by_request: of a ratio over blocks, and not below that of counting single events."""
        n, requests = len(self.counts), self.requests.sum()
        rests = self.counts - self.by_request * self.requests
        between = n / (n - 1) * float((rests**2).sum()) / requests**2 if n > 1 else 0.0
        return math.sqrt(max(between, self.by_request / requests))


def counts(client: Client, side: Side) -> Mapping[str, Counts]:
    """By fact, of those servers whose processes were watched; without what no point tells."""
    begin, end = round(1e6 * side.begin), round(1e6 * side.end)
    window = {"begin": begin, "end": end}
    if end <= begin or not client.query(_ANY, parameters=window).result_rows[0][0]:
        return {}
    step = max(1_000_000, -(-(end - begin) // _BLOCKS))
    asked = {**window, "step": step, "length": min(step, _LONGEST_US)}
    mine = [(p, server) for server, some in by_server(client, side.servers, begin, end).items() for p in some]
    if not mine:
        return {}
    blocks = _blocks(client, mine, asked)
    together = {fact: Counts(*np.concatenate(told, axis=1)) for fact, told in blocks.items()}
    return {fact: told for fact, told in together.items() if told.requests.sum() > 0}


def _blocks(
    client: Client, mine: Sequence[tuple[Process, str]], asked: Mapping[str, int]
) -> Mapping[str, list[Floats]]:
    """By fact: counts, requests and seconds (3, n) of the blocks that points cover, of each server."""
    named = [(process.host, str(process.pid), process.executable) for process, _ in mine]
    servers = [server for _, server in mine]
    points = client.query(_POINTS, parameters={**asked, "processes": named, "servers": servers}).result_rows
    n = -(-(asked["end"] - asked["begin"]) // asked["step"])
    requests = {server: np.zeros(n) for server in servers}
    for server, block, count in client.query(
        _REQUESTS, parameters={**asked, "servers": sorted(requests)}
    ).result_rows:
        requests[server][block] = count
    counted: dict[tuple[str, str], Floats] = {}
    covered: dict[tuple[str, str], Floats] = {}
    for server, metric, fact, block, count, us in points:
        covered.setdefault((server, metric), np.zeros(n))[block] += us
        # a reason or kind that never came has no points: where others of the metric have, it is none and not unknown
        for name in (name for name, of in METRIC_OF.items() if of == metric):
            counted.setdefault((server, name), np.zeros(n))[block] += count if name == fact else 0
    # the last block may end with the window
    lengths = np.minimum(asked["length"], asked["end"] - asked["begin"] - np.arange(n) * asked["step"])
    blocks: dict[str, list[Floats]] = {}
    for (server, fact), counts_of in counted.items():
        us = covered[server, METRIC_OF[fact]]
        of_requests = requests[server] * np.minimum(1.0, us / lengths)
        blocks.setdefault(fact, []).append(np.stack([counts_of, of_requests, us / 1e6])[:, us > 0])
    return blocks
