"""Reading one request, and what was in flight beside it, with as few questions to the store as can be."""

from __future__ import annotations

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses.block_events import AFTER_US
from analysis.misses.columns import Columns, at, hours, together
from analysis.misses.find import Found
from analysis.misses.fleets import fleets
from analysis.misses.model import Flags, Ints
from analysis.misses.reader import BEFORE_US, Reading, Scope, complete, requests_sql

MOST_BESIDE = 64  # requests in flight that are looked at
_LATEST, _LATEST_US = 500, 600_000_000  # of its server: requests, and how far back they may lie


def read_one(client: Client, found: Found) -> tuple[Reading, tuple[Ints, Ints]]:
    """Read a request; with prompt and cached tokens of its server's latest ones, to know the alignment by."""
    parameters: dict[str, object] = {
        "asked_servers": [found.server],
        "its_id": found.request_id,
        "its_time": found.time,
        "since": found.time - _LATEST_US,
        "names": [found.server],
        "begin": found.time - BEFORE_US,
        "until": found.until + AFTER_US,
        "answered": found.until,
    }
    latest = Scope(
        f"server IN {{asked_servers:Array(String)}} AND time >= {at('since')} AND time <= {at('answered')}"
        f" AND {hours(found.time - _LATEST_US, found.until)}",
        f"(time = {at('its_time')} AND request_id = {{its_id:String}})",
        parameters,
    )
    known, told = together(
        lambda: fleets(client, [found.server], found.time, found.time),
        lambda: Columns(client, requests_sql(latest, tail=f"ORDER BY time DESC LIMIT {_LATEST}"), parameters),
    )
    told = told.reversed().with_ints("server_at", np.full(told.n, known.servers.index(found.server)))
    keep = _beside(told, found)
    ids = told.texts("request_id")[keep].tolist()
    few = Scope(
        f"{latest.condition} AND request_id IN {{ids:Array(String)}}",
        latest.picked,
        {**parameters, "ids": ids},
        "ids",
    )
    pairs = told.ints("prompt_tokens_told"), told.ints("cached_tokens_told")
    return complete(client, few, told, known, keep), pairs


def _beside(told: Columns, found: Found) -> Flags:
    """The request and the latest ones that were in flight when it arrived, or came before its answer."""
    arrived, ttft, e2e = told.ints("arrived"), told.ints("ttft"), told.ints("e2e")
    lasted = np.where(ttft >= 0, ttft, np.where(e2e >= 0, e2e, BEFORE_US))
    in_flight = arrived + lasted >= found.time
    picked = told.flags("picked")
    rows = np.flatnonzero(in_flight & ~picked)
    keep = picked.copy()
    keep[rows[-MOST_BESIDE:]] = True
    return keep
