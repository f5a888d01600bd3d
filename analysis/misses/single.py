"""Reading one request, and what was in flight beside it, with as few questions to the store as can be."""

from __future__ import annotations

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.alignment import FEWEST_HITS, fit
from analysis.misses.block_events import AFTER_US, read_whole
from analysis.misses.columns import Columns, at, hours, together
from analysis.misses.find import Found
from analysis.misses.fleets import fleets
from analysis.misses.model import Flags, Ints
from analysis.misses.reader import BEFORE_US, Reading, Scope, Told, complete, read_chains, requests_sql
from analysis.misses.standing import Standing

MOST_BESIDE = 64  # requests in flight that are looked at
_PAIRS = 150  # to know the alignment by
_MOST_HITS, _MOST_TOKENS = (
    32,
    100_000,
)  # hits that are climbed with it, to prove the alignment, and their prompts
_LATEST, _LATEST_US = 300, 300_000_000  # of its server: requests, and how far back they may lie


def read_one(client: Client, found: Found, of_servers: Standing) -> tuple[Reading, tuple[Ints, Ints]]:
    """Read a request; with prompt and cached tokens of its server's latest requests, to know the alignment by.

    Where neither these nor canaries prove it, hits of the server are read as well: together with what was held they
    may.
    """
    known = fleets(client, [found.server], found.time, found.time, of_servers.models)
    latest = Scope(
        f"server IN {{asked_servers:Array(String)}} AND time >= {at('since')} AND time <= {at('answered')}"
        f" AND {hours(found.time - _LATEST_US, found.until)}",
        f"(time = {at('its_time')} AND request_id = {{its_id:String}})",
        {
            "asked_servers": [found.server],
            "its_id": found.request_id,
            "its_time": found.time,
            "since": found.time - _LATEST_US,
            "names": list(known.servers),
            "begin": found.time - BEFORE_US,
            "until": found.until + AFTER_US,
            "answered": found.until,
        },
    )
    measured = found.server in of_servers.alignments
    (requests, chains, keep), whole = together(
        lambda: _requests(client, found, latest, measured), lambda: read_whole(client, latest.parameters)
    )
    few = _those(latest, requests, keep)
    reading = complete(client, few, Told(requests, chains, whole), known, of_servers.sizes, keep)
    return reading, _pairs(requests)


def _requests(client: Client, found: Found, latest: Scope, measured: bool) -> tuple[Columns, Columns, Flags]:
    """The latest requests, chains of some of them, and which to take."""
    tail = f"ORDER BY time DESC LIMIT {_LATEST}"
    told = Columns(client, requests_sql(latest, tail=tail), latest.parameters).reversed()
    beside, hits = _beside(told, found), np.zeros(told.n, np.bool_)
    if not measured and not ((fitted := fit(*_pairs(told))) and fitted.certain):
        hits = _hits(told)
    chains = read_chains(client, _those(latest, told, beside | hits))
    return told, chains, beside | _fewest(told, hits & np.isin(told.hashes("whose"), chains.hashes("whose")))


def _pairs(told: Columns) -> tuple[Ints, Ints]:
    return told.ints("prompt_tokens_told")[-_PAIRS:], told.ints("cached_tokens_told")[-_PAIRS:]


def _those(latest: Scope, told: Columns, rows: Flags) -> Scope:
    """Some of the latest requests."""
    return Scope(
        f"{latest.condition} AND request_id IN {{ids:Array(String)}}",
        latest.picked,
        {**latest.parameters, "ids": told.texts("request_id")[rows].tolist()},
        "ids",
    )


def _hits(told: Columns) -> Flags:
    """Requests of which a part was served; none where they are too few to prove a law."""
    cached = told.ints("cached_tokens_told")
    hits: Flags = (cached > 0) & (cached < told.ints("prompt_tokens_told"))
    return hits if hits.sum() >= FEWEST_HITS else np.zeros(told.n, np.bool_)


def _fewest(told: Columns, hits: Flags) -> Flags:
    """Those of the hits with few tokens: each costs the history of its blocks."""
    prompt, rows = told.ints("prompt_tokens_told"), np.flatnonzero(hits)
    rows = rows[np.argsort(prompt[rows], kind="stable")][:_MOST_HITS]
    rows = rows[np.cumsum(prompt[rows]) <= _MOST_TOKENS]
    keep = np.zeros(told.n, np.bool_)
    if len(rows) >= FEWEST_HITS:
        keep[rows] = True
    return keep


def _beside(told: Columns, found: Found) -> Flags:
    """The request and those that were in flight when it arrived, or came before its answer: the nearest of them."""
    arrived, ttft, e2e = told.ints("arrived"), told.ints("ttft"), told.ints("e2e")
    lasted = np.where(ttft >= 0, ttft, np.where(e2e >= 0, e2e, BEFORE_US))
    in_flight = arrived + lasted >= found.time
    picked = told.flags("picked")
    rows = np.flatnonzero(in_flight & ~picked)
    keep = picked.copy()
    keep[rows[np.argsort(np.abs(arrived[rows] - found.time), kind="stable")[:MOST_BESIDE]]] = True
    return keep
