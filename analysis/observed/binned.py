"""Points of probes by bin of time, in SQL: the rows that answer are as many as there are figures, however many points.

A point of a counter says what was counted from when to when: each bin gets its part, and a rate is what was counted
over the time that points cover, so that a probe that was not there lowers nothing. Where two sources count the same,
the greater is taken, never the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at, together
from analysis.observed.figures import OF_PROCESSES, Figure
from analysis.observed.points import IS_COUNT, IS_PID, LONGEST_US
from analysis.observed.watched import Key, Watched
from cachemodel.observed import (
    EXECUTABLE,
    GPU_ID,
    GPU_NAME,
    HOST,
    PID,
    PORT,
    SERVER,
    SERVICE,
    SOURCE,
    THREAD_ID,
)

_SECOND_US = 1_000_000
_IN_GPU = {figure.part_of: figure.name for figure in OF_PROCESSES if figure.part_of}


def read(
    client: Client, figures: Sequence[Figure], begin: int, end: int, step: int, keys: Sequence[Key] = ()
) -> list[tuple[Watched, str, dict[int, float]]]:
    """Whose, which figure, and its values by bin. keys: of whom, empty for all."""
    merged: dict[tuple[Key, str], tuple[Watched, dict[int, float]]] = {}
    kinds = {sql: [f for f in figures if f.row.kind == kind and not f.part_of] for kind, sql in _SQL.items()}
    asked = {
        "begin": begin,
        "end": end,
        "step": step,
        "keys": list(keys),
        "pids": sorted({key[1] for key in keys}),
    }
    answers = together(
        *(
            partial(client.query, sql(of), parameters={**asked, "metrics": sorted({f.metric for f in of})})
            for sql, of in kinds.items()
            if of
        )
    )
    rows = (row for answer in answers for row in answer.result_rows)
    for (host, pid, executable, gpu, product, port, named), figure, (bins, told) in rows:
        in_gpu = pid and gpu  # what a process has there is a figure of the process, over all GPUs
        one = Watched(
            host, int(pid) if pid else None, executable, "" if in_gpu else gpu, "" if in_gpu else product, port, named
        )  # fmt: skip
        _, values = merged.setdefault((one.key, _IN_GPU[figure] if in_gpu else figure), (one, {}))
        for number, value in zip(bins, told, strict=True):
            before = values.get(number, 0.0)
            # of two sources that count the same the greater
            values[number] = before + value if in_gpu else max(before, value)
    return [(one, figure, values) for (_, figure), (one, values) in merged.items()]


def _counters(figures: Sequence[Figure]) -> str:
    """SQL of counters by bin. Looking into attributes takes time: it is done once for all points that have the same."""
    return f"""
    SELECT whose, figure, (groupArray(bin), groupArray(value)) AS told
    FROM
    (
        SELECT whose, figure, source, bin,
               if(figure IN ({_named("count", figures)}),
                  sum(grown * least(1, {{step:Int64}} / covered)), sum(1e6 * grown / covered)) AS value
        FROM
        (
            SELECT whose, figure, source, apart, bin_part.1 AS bin, sum(bin_part.2) AS covered, sum(bin_part.3) AS grown
            FROM
            (
                SELECT {_whose(figures)}, {_apart(figures)} AS apart, arrayJoin(parts) AS bin_part
                FROM
                (
                    SELECT ResourceAttributes, Attributes, MetricName, groupArray((bin, part, grew)) AS parts
                    FROM
                    (
                        SELECT ResourceAttributes, Attributes, MetricName, bin, sum(overlap) AS part,
                               sum(Value * overlap / (till - start)) AS grew
                        FROM
                        (
                            SELECT ResourceAttributes, Attributes, MetricName, Value,
                                   toUnixTimestamp64Micro(StartTimeUnix) - {{begin:Int64}} AS start,
                                   toUnixTimestamp64Micro(TimeUnix) - {{begin:Int64}} AS till,
                                   greatest(start, 0) AS since,
                                   least(till, {{end:Int64}} - {{begin:Int64}}) AS upto,
                                   arrayJoin(range(intDiv(since, {{step:Int64}}),
                                                   intDiv(upto - 1, {{step:Int64}}) + 1)) AS bin,
                                   least(upto, (bin + 1) * {{step:Int64}}) - greatest(since, bin * {{step:Int64}})
                                       AS overlap
                            FROM otel_metrics_sum
                            WHERE {_CHOSEN} AND TimeUnix > {at("begin")} AND StartTimeUnix < {at("end")} AND {IS_COUNT}
                                AND TimeUnix <= {at("end")} + INTERVAL {LONGEST_US} MICROSECOND
                        )
                        GROUP BY ResourceAttributes, Attributes, MetricName, bin
                    )
                    GROUP BY ResourceAttributes, Attributes, MetricName
                )
                WHERE figure != '' AND {_ASKED}
            )
            GROUP BY whose, figure, source, apart, bin
        )
        GROUP BY whose, figure, source, bin
    )
    GROUP BY whose, figure, source
    """


def _gauges(figures: Sequence[Figure]) -> str:
    """SQL of gauges by bin. A gauge is told at least once a second, more often while it changes: seconds weigh the
    same."""
    return f"""
    SELECT whose, figure, (groupArray(bin), groupArray(value)) AS told
    FROM
    (
        SELECT whose, figure, source, bin,
               multiIf(figure IN ({_named("most", figures)}), max(most),
                       figure IN ({_named("any", figures)}), avg(toFloat64(most != 0)), avg(mean)) AS value
        FROM
        (
            SELECT {_whose(figures)}, second, intDiv(second * {_SECOND_US}, {{step:Int64}}) AS bin,
                   sum(total) / sum(points) AS mean, max(highest) AS most
            FROM
            (
                SELECT ResourceAttributes, Attributes, MetricName,
                       intDiv(toUnixTimestamp64Micro(TimeUnix) - {{begin:Int64}}, {_SECOND_US}) AS second,
                       sum(Value) AS total, count() AS points, max(Value) AS highest
                FROM otel_metrics_gauge
                WHERE {_CHOSEN} AND TimeUnix >= {at("begin")} AND TimeUnix < {at("end")} AND isFinite(Value)
                GROUP BY ResourceAttributes, Attributes, MetricName, second
            )
            WHERE figure != '' AND {_ASKED}
            GROUP BY whose, figure, source, second
        )
        GROUP BY whose, figure, source, bin
    )
    GROUP BY whose, figure, source
    """


_SQL = {"counter": _counters, "gauge": _gauges}
_CHOSEN = f"""ServiceName = '{SERVICE}' AND MetricName IN {{metrics:Array(String)}}
    AND NOT mapContains(Attributes, '{THREAD_ID}')
    AND (empty({{pids:Array(String)}}) OR ResourceAttributes['{PID}'] IN {{pids:Array(String)}})"""
_ASKED = f"""(ResourceAttributes['{PID}'] = '' OR {IS_PID})
    AND (empty({{keys:Array(Tuple(String, String, String, String))}})
        OR (whose.1, whose.2, whose.3, if(whose.2 = '', whose.4, ''))
            IN {{keys:Array(Tuple(String, String, String, String))}})"""


def _whose(figures: Sequence[Figure]) -> str:
    """SQL of whose a point is, of its figure and its source."""
    resource = ", ".join(f"ResourceAttributes['{key}']" for key in (HOST, PID, EXECUTABLE))
    told = ", ".join(f"ResourceAttributes['{key}']" for key in (PORT, SERVER))
    cases = []
    for figure in figures:
        conditions = [f"MetricName = '{figure.metric}'"]
        for key, values in (figure.where or {}).items():
            conditions.append(f"Attributes['{key}'] IN ({', '.join(map(repr, values))})")
        cases += [" AND ".join(conditions), f"'{figure.name}'"]
    return f"""
        ({resource}, Attributes['{GPU_ID}'], Attributes['{GPU_NAME}'], {told}) AS whose,
        multiIf({", ".join(cases)}, '') AS figure,
        Attributes['{SOURCE}'] AS source
    """


def _apart(figures: Sequence[Figure]) -> str:
    """SQL of what tells the series of a figure from each other: each has its own time that points cover."""
    keys = sorted({key for figure in figures for key in figure.row.attributes})
    return "[" + ", ".join(f"Attributes['{key}']" for key in keys) + "]"


def _named(shown: str, figures: Sequence[Figure]) -> str:
    """SQL list of the figures that are shown so."""
    return ", ".join(["''", *(f"'{figure.name}'" for figure in figures if figure.shown == shown)])
