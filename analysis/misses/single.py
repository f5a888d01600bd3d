"""Reading one request, and what was in flight beside it, with as few questions to the store as can be."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.alignment import FEWEST_HITS, fit
from analysis.misses.alignments import measured
from analysis.misses.block_events import AFTER_US
from analysis.misses.columns import Columns, at, hours, together
from analysis.misses.find import Found
from analysis.misses.fleets import fleets
from analysis.misses.model import Flags, Ints
from analysis.misses.reader import BEFORE_US, Reading, Scope, complete, requests_sql
from cachemodel.alignment import Alignment

MOST_BESIDE = 64  # requests in flight that are looked at
_PAIRS = 150  # to know the alignment by
_MOST_HITS, _MOST_TOKENS = (
    32,
    100_000,
)  # hits that are climbed with it, to prove the alignment, and their prompts
_LATEST, _LATEST_US = 300, 300_000_000  # of its server: requests, and how far back they may lie


def read_one(client: Client, found: Found) -> tuple[Reading, Mapping[str, Alignment], tuple[Ints, Ints]]:
    """Read a request; with the alignments that canaries measured, and prompt and cached tokens of its server's latest
    requests, to know the alignment by.

    Where neither proves it, hits of the server are read as well: together with what was held they may.
    """
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
    known, told, by_canaries = together(
        lambda: fleets(client, [found.server], found.time, found.time),
        lambda: Columns(client, requests_sql(latest, tail=f"ORDER BY time DESC LIMIT {_LATEST}"), parameters),
        lambda: measured(client),
    )
    told = told.reversed().with_ints("server_at", np.full(told.n, known.servers.index(found.server)))
    pairs = told.ints("prompt_tokens_told")[-_PAIRS:], told.ints("cached_tokens_told")[-_PAIRS:]
    keep = _beside(told, found)
    if found.server not in by_canaries and not ((fitted := fit(*pairs)) and fitted.certain):
        keep |= _hits(client, told, found)
    ids = told.texts("request_id")[keep].tolist()
    few = Scope(
        f"{latest.condition} AND request_id IN {{ids:Array(String)}}",
        latest.picked,
        {**parameters, "ids": ids},
        "ids",
    )
    return complete(client, few, told, known, keep), by_canaries, pairs


def _hits(client: Client, told: Columns, found: Found) -> Flags:
    """The latest hits with a chain, the ones of few tokens first: each costs the history of its blocks."""
    cached, prompt = told.ints("cached_tokens_told"), told.ints("prompt_tokens_told")
    hits = np.flatnonzero((cached > 0) & (cached < prompt))
    if len(hits) < FEWEST_HITS:
        return np.zeros(told.n, np.bool_)
    ids = told.texts("request_id")
    chained = {
        str(request_id)
        for (request_id,) in client.query(
            f"""
            SELECT DISTINCT request_id FROM request_chains
            WHERE server = {{server:String}} AND {hours(found.time - _LATEST_US, found.until)}
                AND key IN (SELECT sipHash64(arrayJoin({{ids:Array(String)}})))
            """,
            parameters={"server": found.server, "ids": ids[hits].tolist()},
        ).result_rows
    }
    hits = np.array([row for row in hits.tolist() if str(ids[row]) in chained], dtype=np.int64)
    hits = hits[np.argsort(prompt[hits], kind="stable")][:_MOST_HITS] if len(hits) else hits
    hits = hits[np.cumsum(prompt[hits]) <= _MOST_TOKENS]
    keep = np.zeros(told.n, np.bool_)
    if len(hits) >= FEWEST_HITS:
        keep[hits] = True
    return keep


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
