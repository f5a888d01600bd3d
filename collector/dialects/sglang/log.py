"""Reads SGLang's own log: batches as they were scheduled, retractions, flushes.

A line begins with the local time of the server, to the second, and the ranks it comes from: `[2026-11-29 12:00:00 DP1
TP0] Prefill batch, #new-seq: 1, #cached-token: 512, ...`. The pairs of a batch line changed from version to version
(an older one has `cache hit rate: 0.00%` and a full stop after "batch"), so that every pair with a number is kept under
its own words: `#new-seq` as `new_seq`, `input throughput (token/s)` as `input_throughput`, a percentage as a ratio.
Read in SGLang 0.5.23 (scheduler_components/metrics_reporter.py, managers/scheduler.py), never run live.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from collector.detection import LineReader
from collector.log_event import Value, event, number
from collector.log_time import local_time_s
from collector.sink import Entry

_LINE = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,](\d{3}))?((?: [A-Z]+\d+)*)\] (.*)")
_BATCH = re.compile(r"(Prefill|Decode) batch(?: \[(\d+)\])?[.,] (.*)")
_RETRACT = "KV cache pool is full. Retract requests. "
_FLUSHED = "Cache flushed successfully!"
_RANK = re.compile(r"([A-Z]+)(\d+)")
_PAIR = re.compile(
    r"#?([A-Za-z][^:,]*?)(?: \([^)]*\))?: (?:(True|False)|([-+]?[\d.]+(?:e[-+]?\d+)?)(%?))(?=,|\s|$)"
)
_MOST_PAIRS = 40
_MOST_CHARS = 4096  # of a line that is searched for pairs: a batch line has some 300


def reader(server: str) -> LineReader:
    """A reader of the log of a server of that name."""
    return _Reader(server)


class _Reader:
    """Lines of one second are told apart, and kept in order, by a microsecond each."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._second = ("", 0)

    def __call__(self, line: str, now_s: float) -> Sequence[Entry]:
        match = _LINE.match(line)
        found = _meaning(match[4]) if match else None
        if not match or not found:
            return ()
        name, attributes = found
        time_s = local_time_s(match[1], match[2])
        if time_s is None:
            return ()
        stamp = f"{match[1]}.{match[2] or ''}"
        nth = self._second[1] + 1 if self._second[0] == stamp else 0
        self._second = stamp, nth
        ranks: dict[str, Value] = {
            f"{kind.lower()}_rank": number(rank) for kind, rank in _RANK.findall(match[3])
        }
        severity = "WARN" if name == "sglang.retract" else "INFO"
        return (event(self._server, name, time_s + nth / 1e6, {**ranks, **attributes}, severity),)


def _meaning(text: str) -> tuple[str, Mapping[str, Value]] | None:
    """The event that a line tells of and its numbers; None for any other line."""
    if batch := _BATCH.match(text):
        step: dict[str, Value] = {"step": number(batch[2])} if batch[2] else {}
        return f"sglang.{batch[1].lower()}_batch", {**step, **_pairs(batch[3])}
    if text.startswith(_RETRACT):
        return "sglang.retract", _pairs(text.removeprefix(_RETRACT))
    if text.startswith(_FLUSHED):
        return "sglang.cache_flushed", {}
    return None


def _pairs(text: str) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for key, truth, digits, percent in _PAIR.findall(text[:_MOST_CHARS]):
        name = re.sub(r"\W+", "_", key.strip()).lower()
        value = truth == "True" if truth else number(digits)
        if percent and not isinstance(value, str):
            value = value / 100
        if not isinstance(value, str):
            found[name] = value
        if len(found) == _MOST_PAIRS:
            break
    return found
