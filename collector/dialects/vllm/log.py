"""Reads vLLM's own log: what it says every ten seconds and each iteration, resets of the cache, aborted requests.

Lines are `(Process pid=N) LEVEL MM-DD HH:MM:SS [file:line] message`, as in a running 0.32.0. They have neither year nor
zone: the year is the latest that does not lie ahead, the zone that of this machine. The hit rates in the ten-second
line are over a window of about the last 1000 requests and not over those ten seconds (vllm/v1/metrics/stats.py): the
event says so, and they are never to be averaged or set against the counters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from collector.detection import LineReader
from collector.log_event import MAX_EVENT_LINE, Value, event, number
from collector.sink import Entry

HIT_RATIO_WINDOW = "about the last 1000 requests"
_AHEAD_S = 86_400
_YEARS_BACK = 8  # as far as the 29th of February can lie back

_LINE = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<time>\d\d-\d\d \d\d:\d\d:\d\d) \[\S+:\d+\] (?P<message>.+)"
)
_LEVELS = {"WARNING": "WARN", "CRITICAL": "ERROR"}
_ENGINE = re.compile(r"Engine (\d+): (.+)")
_ITERATION = re.compile(
    r"Iteration\((?P<iteration>\d+)\): "
    r"(?P<context_requests>\d+) context requests, (?P<context_tokens>\d+) context tokens, "
    r"(?P<generation_requests>\d+) generation requests, (?P<generation_tokens>\d+) generation tokens, "
    r"iteration elapsed time: (?P<elapsed_ms>[\d.]+) ms"
)
_PART = re.compile(r"(?P<name>[A-Za-z][\w ]*): (?P<value>[\d.]+)(?P<percent>%)?")
_ABORTED = re.compile(r"Aborted request(?:\(s\))? (?P<ids>.+?)\.?$")
_SUFFIX = re.compile(r"-[0-9a-f]{8}$")  # the engine's own addition to a request's id

_PARTS = {
    "Avg prompt throughput": "computed_prompt_tokens_per_s",
    "Avg generation throughput": "generated_tokens_per_s",
    "Running": "running",
    "Waiting": "waiting",
    "Deferred": "deferred",
    "Preemptions": "preemptions",
    "Prefix cache hit rate": "prefix_hit_ratio",
    "External prefix cache hit rate": "external_hit_ratio",
    "MM cache hit rate": "mm_hit_ratio",
}
_HIT_RATIOS = {"prefix_hit_ratio", "external_hit_ratio", "mm_hit_ratio"}
_USAGE = "KV cache usage"  # after the device's name: GPU, CPU


def reader(server: str) -> LineReader:
    """A reader of the log of the server with that name."""

    def read(line: str, now_s: float) -> Sequence[Entry]:
        found = _LINE.search(line) if len(line) <= MAX_EVENT_LINE else None
        if found is None:
            return ()
        told = list(_told(found["message"]))
        if not told:
            return ()
        time_s = _time_s(found["time"], now_s)
        level = _LEVELS.get(found["level"], found["level"])
        return [event(server, f"vllm.{name}", time_s, values, level) for name, values in told]

    return read


def _told(message: str) -> Iterator[tuple[str, dict[str, Value]]]:
    """Names and attributes of the events of a message."""
    if engine := _ENGINE.match(message):
        yield from _of_engine(number(engine[1]), engine[2])
    elif message.startswith("Successfully reset prefix cache"):
        yield "prefix_cache_reset", {}
    elif aborted := _ABORTED.match(message):
        for internal in re.split(r",\s*", aborted["ids"]):
            yield "aborted", {"request_id": _SUFFIX.sub("", internal), "internal_id": internal}


def _of_engine(engine: Value, message: str) -> Iterator[tuple[str, dict[str, Value]]]:
    values = _values(message)
    if iteration := _ITERATION.match(message):
        counts = {name: number(value) for name, value in iteration.groupdict().items()}
        yield "iteration", {"engine": engine, **counts, **values}
    elif "computed_prompt_tokens_per_s" in values:
        window: dict[str, Value] = (
            {"hit_ratio_window": HIT_RATIO_WINDOW} if _HIT_RATIOS & values.keys() else {}
        )
        yield "engine_stats", {"engine": engine, **values, **window}


def _values(message: str) -> dict[str, Value]:
    """The `name: number` parts that are known; a percentage as a ratio, as everywhere in hitmap."""
    values: dict[str, Value] = {}
    for part in _PART.finditer(message):
        name = "kv_cache_usage" if part["name"].endswith(_USAGE) else _PARTS.get(part["name"])
        if name:
            value = number(part["value"])
            is_percent = part["percent"] and not isinstance(value, str)
            values[name] = round(float(value) / 100, 6) if is_percent else value
    return values


def _time_s(text: str, now_s: float) -> float:
    """Unix seconds of `MM-DD HH:MM:SS`; now where that is no time."""
    year = datetime.fromtimestamp(now_s).year + 1
    for back in range(_YEARS_BACK + 2):
        try:
            time_s = datetime.strptime(f"{year - back}-{text}", "%Y-%m-%d %H:%M:%S").timestamp()
        except ValueError:
            continue
        if time_s <= now_s + _AHEAD_S:
            return time_s
    return now_s
