"""Processes and GPUs that probes watched in a stretch of time: the front door of the page Hosts.

A bin that no point covers is None, and so is what was counted while the probe was not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at, together
from analysis.observed.binned import read
from analysis.observed.figures import DENOMINATORS, FIGURES, OF_GPUS, OF_PROCESSES
from analysis.observed.points import LONGEST_US
from analysis.observed.serving import servers
from analysis.observed.watched import Hosts, Key, Lane, Lanes, Watched
from cachemodel.observed import SERVICE

MOST_BINS = 300
_SECOND_US = 1_000_000
_LONGEST_REQUEST_US = 3_600 * _SECOND_US
_ALWAYS = "hitmap.probe.cpu.time"  # of every probe, once a second


def hosts(client: Client, begin: int, end: int) -> Hosts:
    """What was watched in [begin, end), microseconds since 1970."""
    found, server_of = together(
        lambda: read(client, list(FIGURES.values()), begin, end, end - begin),
        lambda: servers(client, begin, end),
    )
    watched: dict[Key, Watched] = {}
    values: dict[Key, dict[str, float]] = {}
    for one, figure, bins in found:
        # what a probe does not know at first it tells later
        watched[one.key] = max(watched.get(one.key, one), one, key=lambda w: (w.server, w.port))
        values.setdefault(one.key, {})[figure] = bins[0]
    known = [
        replace(one, server=server_of(one), figures=_shares(values[key]))
        for key, one in sorted(watched.items())
    ]
    processes = [one for one in known if one.pid is not None and not one.gpu]
    return Hosts(
        begin,
        end,
        sorted(processes, key=lambda one: -one.figures.get("cpu", 0.0)),
        [one for one in known if one.gpu],
        [one for one in known if one.pid is None and not one.gpu],
    )


def last_told(client: Client) -> tuple[int, int] | None:
    """From when to when probes told anything, microseconds since 1970; None where none did."""
    ((first, last, points),) = client.query(
        "SELECT toUnixTimestamp64Micro(min(TimeUnix)), toUnixTimestamp64Micro(max(TimeUnix)), count()"
        f" FROM otel_metrics_sum WHERE ServiceName = '{SERVICE}' AND MetricName = '{_ALWAYS}'"
    ).result_rows
    return (int(first), int(last)) if points else None


def step_of(begin: int, end: int) -> int:
    """Microseconds of a bin: whole seconds, at most MOST_BINS of them."""
    return _SECOND_US * max(1, -(-(end - begin) // (_SECOND_US * MOST_BINS)))


def lanes(client: Client, whose: Sequence[Watched], begin: int, end: int, server: str = "") -> Lanes:
    """All figures of some over time. server: whose requests in flight are told beside them."""
    step = step_of(begin, end)
    figures = [*OF_PROCESSES, *OF_GPUS]
    keys = [one.key for one in whose]
    found, flying = together(
        lambda: read(client, figures, begin, end, step, keys) if keys else [],
        lambda: _in_flight(client, server, begin, end, step) if server else None,
    )
    bins = -(-(end - begin) // step)
    by_key: dict[Key, dict[str, dict[int, float]]] = {}
    for one, figure, values in found:
        by_key.setdefault(one.key, {})[figure] = _held(values, figure, step)
    drawn = []
    for key, of in by_key.items():
        each = [_shares({name: told[n] for name, told in of.items() if n in told}) for n in range(bins)]
        names = dict.fromkeys(name for values in each for name in values)
        drawn += [Lane(key, name, [values.get(name) for values in each]) for name in names]
    return Lanes(begin, step, drawn, flying)


def _held(values: dict[int, float], figure: str, step: int) -> dict[int, float]:
    """A gauge holds until it is told again, which may be some bins later; behind the last time it is not known."""
    if FIGURES[figure].row.kind == "counter":
        return values
    filled = dict(values)
    for told, again in pairwise(sorted(values)):
        if (again - told) * step <= LONGEST_US:
            filled.update((between, values[told]) for between in range(told + 1, again))
    return filled


def _shares(values: Mapping[str, float]) -> dict[str, float]:
    """Misses as shares of look-ups; where nothing was looked up there is no share."""
    found = {}
    for name, value in values.items():
        over = FIGURES[name].over
        if over and values.get(over):
            found[name] = value / values[over]
        elif not over and name not in DENOMINATORS:
            found[name] = value
    return found


def _in_flight(client: Client, server: str, begin: int, end: int, step: int) -> list[float]:
    """Requests of a server in flight, on average of each bin."""
    rows = client.query(
        f"""
        SELECT bin, sum(least(upto, (bin + 1) * {{step:Int64}}) - greatest(since, bin * {{step:Int64}}))
        FROM
        (
            SELECT toUnixTimestamp64Micro(time) - {{begin:Int64}} AS came,
                   greatest(came, 0) AS since,
                   least(came + toInt64(assumeNotNull(e2e_us)), {{end:Int64}} - {{begin:Int64}}) AS upto,
                   arrayJoin(range(intDiv(since, {{step:Int64}}), intDiv(upto - 1, {{step:Int64}}) + 1)) AS bin
            FROM requests
            WHERE server = {{server:String}} AND e2e_us > 0 AND time < {at("end")}
                AND time >= {at("begin")} - INTERVAL {_LONGEST_REQUEST_US} MICROSECOND AND upto > since
        )
        GROUP BY bin
        """,
        parameters={"server": server, "begin": begin, "end": end, "step": step},
    ).result_rows
    told = {int(number): float(us) for number, us in rows}
    bins = -(-(end - begin) // step)
    # the last bin may end with the time that is asked for
    lengths = [min(step, end - begin - number * step) for number in range(bins)]
    return [told.get(number, 0) / length for number, length in enumerate(lengths)]
