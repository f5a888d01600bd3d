"""Reads the iteration statistics that TensorRT-LLM's /metrics hands out once, as JSON.

Read, not run live (the executor's JSON serialisation). The iterations have no time that can be relied on: the string
they carry is local time in some builds and empty in others. So the last one gets the time of reading, and those before
it lie back by the latency of each that follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from collector.dialects.trtllm.metrics import STATS
from collector.json_poll import Reading, gauges
from collector.metric import Metric, resolve
from collector.prometheus import Labels

_PATHS = tuple(alias.raw for metric in STATS for alias in metric.aliases)
_MIN_STEP_US = 1  # two iterations never share a time


def canonical_names(exposed: Iterable[str]) -> Mapping[str, Metric]:
    """The metrics among the fields of an iteration."""
    return resolve(STATS, exposed)


def read_stats(answer: object, now_us: int) -> Iterator[Reading]:
    """A reading an iteration; none of an empty list, which is the normal answer when nothing ran.

    Raises ValueError where the answer is no list of iterations.
    """
    if not isinstance(answer, list) or not all(isinstance(iteration, dict) for iteration in answer):
        raise ValueError("no list of iterations")
    time_us, readings = now_us, []
    for iteration in reversed(answer):
        readings.append(Reading(time_us, gauges(_values(iteration))))
        latency_ms = iteration.get("iterLatencyMS")
        step_us = round(latency_ms * 1000) if isinstance(latency_ms, (int, float)) else 0
        time_us -= max(step_us, _MIN_STEP_US)
    yield from reversed(readings)


def _values(iteration: Mapping[str, Any]) -> Iterator[tuple[str, Labels, object]]:
    rank = iteration.get("attentionDpRank")
    labels: Labels = (("dp_rank", str(rank)),) if isinstance(rank, int) else ()
    for path in _PATHS:
        value: object = iteration
        for part in path.split(".")[1:]:
            value = value.get(part) if isinstance(value, dict) else None
        yield path, labels, value
