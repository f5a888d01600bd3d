"""Facts of memory: page faults and TLB flushes, of the threads that served the requests, and of whole processes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.attribution.certainty.ratios import compared
from analysis.attribution.change import blocks
from analysis.attribution.model import Resampling, Side
from analysis.diagnosis.model import Fact
from analysis.misses.columns import at
from analysis.observed.processes import processes
from cachemodel.observed import HOST, PID, SERVICE, SHOOTDOWNS, THREAD_ID

SPENT = {
    "thread_major_faults": ("hitmap.thread.page_faults.major", 1.0),
    "thread_minor_faults": ("hitmap.thread.page_faults.minor", 1.0),
    "thread_off_cpu": ("hitmap.thread.off_cpu_us", 1e-3),
    "thread_cpu": ("hitmap.thread.cpu_us", 1e-3),
}
"""Facts by request: the counter behind each, and what makes its unit of it."""
_COUNTED = {
    "process_major_faults": "MetricName = 'process.paging.faults' AND Attributes['system.paging.fault.type'] = 'major'",
    "process_minor_faults": "MetricName = 'process.paging.faults' AND Attributes['system.paging.fault.type'] = 'minor'",
    "process_shootdowns": "MetricName = 'hitmap.tlb_flushes'"
    f" AND Attributes['hitmap.tlb_flush.reason'] IN {list(SHOOTDOWNS)}",
}


def of_threads(a: Side, b: Side, drawn: Resampling) -> Mapping[str, Fact]:
    """Per request, with the sigmas of the change; of the requests that tell them, where both sides have some."""
    of, found = blocks(drawn), {}
    for name, (counter, scale) in SPENT.items():
        parts = []
        for side in (a, b):
            told = side.observed.get(counter)
            if told is None or not np.isfinite(told).any():
                break
            known = np.isfinite(told)
            parts.append((np.where(known, scale * told, 0.0), known.astype(np.float64)))
        if len(parts) == 2:
            ratio = compared(parts, of, drawn)
            n_a, n_b = (int(bottom.sum()) for _, bottom in parts)
            found[name] = Fact(ratio.a, ratio.b, n_a, n_b, ratio.sigmas)
    return found


def of_processes(client: Client, a: Side, b: Side) -> Mapping[str, Fact]:
    """Per request of these servers, where probes watched the processes of both sides at different times: what a process
    counts is of all its requests."""
    if set(a.servers) & set(b.servers) and a.begin <= b.end and b.begin <= a.end:
        return {}
    counts = [_counts(client, side) for side in (a, b)]
    requests = [_requests(client, side) for side in (a, b)]
    if not all(requests):
        return {}
    return {
        name: Fact(counts[0][name] / requests[0], counts[1][name] / requests[1], *requests)
        for name in _COUNTED
        if name in counts[0] and name in counts[1]
    }


def _window(side: Side) -> dict[str, int]:
    return {"begin": round(1e6 * side.begin), "end": round(1e6 * side.end)}


def _counts(client: Client, side: Side) -> dict[str, float]:
    """By fact, what the processes of its servers counted in its window; without those that no point tells."""
    window = _window(side)
    mine = [
        (process.host, str(process.pid))
        for server in side.servers
        for process in processes(client, server, window["begin"], window["end"])
    ]
    if not mine:
        return {}
    sums = ", ".join(f"sumOrNullIf(Value, {condition})" for condition in _COUNTED.values())
    row = client.query(
        f"""
        SELECT {sums}
        FROM otel_metrics_sum
        WHERE ServiceName = '{SERVICE}' AND MetricName IN ('process.paging.faults', 'hitmap.tlb_flushes')
            AND TimeUnix > {at("begin")} AND TimeUnix <= {at("end")} AND StartTimeUnix >= {at("begin")}
            AND NOT mapContains(Attributes, '{THREAD_ID}')
            AND (ResourceAttributes['{HOST}'], ResourceAttributes['{PID}'])
                IN {{processes:Array(Tuple(String, String))}}
        """,
        parameters={**window, "processes": mine},
    ).result_rows[0]
    return {name: float(value) for name, value in zip(_COUNTED, row, strict=True) if value is not None}


def _requests(client: Client, side: Side) -> int:
    """All of its servers in its window."""
    rows = client.query(
        f"SELECT count() FROM requests WHERE server IN {{servers:Array(String)}}"
        f" AND time >= {at('begin')} AND time <= {at('end')}",
        parameters={**_window(side), "servers": list(side.servers)},
    ).result_rows
    return int(rows[0][0])
