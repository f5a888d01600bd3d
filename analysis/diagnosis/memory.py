"""Facts of memory: page faults and TLB flushes, of the threads that served the requests, and of whole processes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.attribution.certainty.ratios import compared
from analysis.attribution.change import blocks
from analysis.attribution.model import Resampling, Side
from analysis.diagnosis.memory_counts import counts
from analysis.diagnosis.model import Fact

SPENT = {
    "thread_major_faults": ("hitmap.thread.page_faults.major", 1.0),
    "thread_minor_faults": ("hitmap.thread.page_faults.minor", 1.0),
    "thread_off_cpu": ("hitmap.thread.off_cpu_us", 1e-3),
    "thread_cpu": ("hitmap.thread.cpu_us", 1e-3),
}
"""Facts by request: the counter behind each, and what makes its unit of it."""
_FEWEST_BLOCKS = 5  # of which an error can be told
_SAME = 0.05


def of_threads(a: Side, b: Side, drawn: Resampling) -> Mapping[str, Fact]:
    """Per request, with the sigmas of the change; of the requests that tell them, where both sides have some."""
    of, found = blocks(drawn), {}
    for name, (counter, scale) in SPENT.items():
        parts = []
        for side in (a, b):
            told = side.observed.get(counter)
            known = np.isfinite(told) & (told >= 0) if told is not None else np.zeros(0, np.bool_)
            if told is None or not known.any():
                break
            parts.append((np.where(known, scale * told, 0.0), known.astype(np.float64)))
        if len(parts) == 2:
            ratio = compared(parts, of, drawn)
            n_a, n_b = (int(bottom.sum()) for _, bottom in parts)
            found[name] = Fact(ratio.a, ratio.b, n_a, n_b, ratio.sigmas)
    return found


def of_processes(client: Client, a: Side, b: Side) -> Mapping[str, Fact]:
    """Per request of these servers, where probes watched the processes of both sides at different times: what a process
    counts is of all its requests.

    Left out is what grew by request and not by time, or fell so: what a server does beside few requests as beside many
    is not theirs.
    """
    if set(a.servers) & set(b.servers) and a.begin <= b.end and b.begin <= a.end:
        return {}
    of_a, of_b = counts(client, a), counts(client, b)
    found = {}
    for name in of_a.keys() & of_b.keys():
        one, other = of_a[name], of_b[name]
        grew = _growth(one.by_request, other.by_request)
        if abs(grew) > _SAME and _growth(one.by_second, other.by_second) / grew < _SAME:
            continue
        spread = math.hypot(one.error, other.error)
        known = spread > 0 and min(len(one.counts), len(other.counts)) >= _FEWEST_BLOCKS
        sigmas = (other.by_request - one.by_request) / spread if known else None
        n_a, n_b = (round(side.requests.sum()) for side in (one, other))
        found[name] = Fact(one.by_request, other.by_request, n_a, n_b, sigmas)
    return found


def _growth(before: float, after: float) -> float:
    """Of the greater of the two."""
    return (after - before) / max(before, after) if before or after else 0.0
