"""Reads the lines that LMCache writes, into the log of its engine or its own: what each request found, loaded, stored.

`[2026-11-29 12:00:00,123] LMCache INFO: Reqid: chatcmpl-1, Total tokens 1000, Inference Engine computed tokens: 256,
LMCache hit tokens: 768, need to load: 512`; an engine may have put its own words before it, a terminal its colours. The
time is the server's local one. Read in LMCache 0.5.6 (vllm_v1_adapter.py, cache_engine.py), never run live.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from collector.detection import LineReader
from collector.log_event import Value, event, number
from collector.log_time import local_time_s
from collector.sink import Entry

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINE = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,](\d{3}))?\] LMCache [A-Z]+: *(.*)")
_LOOKUP = re.compile(
    r"Reqid: (?P<request_id>\S+), Total tokens (?P<prompt_tokens>\d+), Inference Engine computed tokens: "
    r"(?P<engine_cached_tokens>\d+), LMCache hit tokens: (?P<hit_tokens>\d+), (?:but )?need to load: "
    r"(?P<load_tokens>\d+)(?P<skipped> < min_retrieve)?"
)
_STORED = re.compile(
    r"\[req_id=(?P<request_id>[^\]]+)\] Stored (?P<tokens>\d+) out of total (?P<total_tokens>\d+) tokens"
)
_LOADED = re.compile(
    r"\[req_id=(?P<request_id>[^\]]+)\] Retrieved (?P<tokens>\d+) out of (?P<required_tokens>\d+) out of total"
    r" (?P<total_tokens>\d+) tokens"
)
_COST = re.compile(r"cost (\d+(?:\.\d+)?) ms")
_EVENTS = {"lmcache.lookup": _LOOKUP, "lmcache.stored": _STORED, "lmcache.retrieved": _LOADED}
_MAX_ID = 200


def reader(server: str) -> LineReader:
    """A reader of the log of a server of that name."""

    def read(line: str, now_s: float) -> Sequence[Entry]:
        found = _LINE.search(_COLOUR.sub("", line))
        if not found:
            return ()
        for name, pattern in _EVENTS.items():
            if match := pattern.match(found[3]):
                return _entry(server, name, found, match)
        return ()

    return read


def _entry(server: str, name: str, line: re.Match[str], match: re.Match[str]) -> Sequence[Entry]:
    time_s = local_time_s(line[1], line[2])
    if time_s is None:
        return ()
    told = match.groupdict()
    attributes: dict[str, Value | None] = {
        key: number(value) for key, value in told.items() if key not in ("request_id", "skipped")
    }
    attributes["request_id"] = told["request_id"][:_MAX_ID]
    if name == "lmcache.lookup":
        attributes["load_skipped"] = told["skipped"] is not None
    cost = _COST.search(line[3])
    return (event(server, name, time_s, {**attributes, "cost_ms": number(cost[1]) if cost else None}),)
