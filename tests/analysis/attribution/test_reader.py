"""What is read of a side: every request with its times, its tokens by tier and cause, and what is not known as NaN."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from analysis.attribution.model import NOT_TOLD
from analysis.attribution.reader import alike, read_side, window_of
from analysis.attribution.tokens import CAUSES
from analysis.misses.report import build
from analysis.report.metrics import METRICS
from analysis.selection import Selection, around, parse_set
from cachemodel.errors import UserError
from tests.analysis.misses.build import BLOCK, World
from tests.analysis.misses.stored_world import START, put
from tests.conftest import Database

ALL = Selection("all", "1")
E2E, TTFT = METRICS["e2e"], METRICS["ttft"]


def insert(db: Database, *rows: dict[str, Any]) -> None:
    """Rows of `requests`, each with what it does not say left NULL."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    values = [[row.get(name, {} if name == "labels" else None) for name in names] for row in rows]
    db.client.insert("requests", values, column_names=names)


def request(at_s: float, number: int, **more: Any) -> dict[str, Any]:
    plain = {"ttft_us": 3000, "e2e_us": 10_000, "queue_us": 1000, "prefill_us": 2000, "decode_us": 7000}
    plain |= {"prompt_tokens": 100, "completion_tokens": 5, "cached_tokens": 60}
    when = {"time": START + timedelta(seconds=at_s), "server": "s", "request_id": f"r{number}"}
    return {**when, "span_id": number, **plain, **more}


def test_columns_in_order_of_arrival_and_what_is_not_told(db: Database) -> None:
    insert(
        db,
        request(2, 3, cached_tokens=None),
        request(1, 2, device_tokens=40, host_tokens=20, remote_tokens=0),
        request(0, 1, prompt_tokens=None, completion_tokens=None),
        request(3, 4, ttft_us=None),
    )
    side = read_side(db.client, ALL, TTFT)
    assert side.n == 3
    assert side.arrival.tolist() == [START.timestamp() + second for second in range(3)]
    assert side.totals.tolist() == [3, 3, 3]
    assert side.time("queue").tolist() == [1, 1, 1]
    assert side.time("decode").tolist() == [7, 7, 7]
    assert "decode" not in side.layers
    assert np.isnan(side.time("host")).all()
    np.testing.assert_array_equal(side.prompt, [math.nan, 100, 100])
    np.testing.assert_array_equal(side.completion, [math.nan, 5, 5])
    assert side.sources == ("device", "host", "remote", "cached", "computed")
    np.testing.assert_array_equal(side.tokens[:, 1], [40, 20, 0, 0, 40])
    np.testing.assert_array_equal(side.tokens[:, 0], [0, 0, 0, 60, math.nan])
    assert np.isnan(side.tokens[:, 2]).all()
    assert (side.template == NOT_TOLD).all()
    assert side.notes == ("requests that do not tell their time to first token are left out: 1",)


def test_the_window_is_what_was_asked_for_as_far_as_the_store_reaches(db: Database) -> None:
    insert(db, *(request(at, at) for at in range(0, 100, 10)))
    now = START + timedelta(seconds=1000)
    asked = parse_set("2026-11-29T12:00:15/2026-11-29T12:00:55", now=now, labels=[], prefix="a")
    side = read_side(db.client, asked, E2E)
    assert (side.begin - START.timestamp(), side.end - START.timestamp()) == (15, 55)
    assert side.n == 4
    wide = parse_set("2026-11-29T11:00/2026-11-29T13:00", now=now, labels=[], prefix="a")
    side = read_side(db.client, wide, E2E)
    assert (side.begin - START.timestamp(), side.end - START.timestamp()) == (0, 90)


def test_every_way_to_ask_for_a_time_is_understood() -> None:
    before, after = around(datetime(2026, 1, 1, 10, tzinfo=UTC), timedelta(hours=1), "x")
    ten = datetime(2026, 1, 1, 10, tzinfo=UTC).timestamp()
    assert window_of(before) == (ten - 3600, ten)
    assert window_of(after) == (ten, ten + 3600)
    assert window_of(ALL) == (None, None)


def test_nothing_there_and_nothing_told_are_clear_errors(db: Database) -> None:
    with pytest.raises(UserError, match="the store has no requests yet"):
        read_side(db.client, ALL, E2E)
    insert(db, request(0, 1, client_e2e_us=None))
    with pytest.raises(
        UserError, match="tells its end-to-end time as the client saw it: ask for another --metric"
    ):
        read_side(db.client, ALL, METRICS["client_e2e"])


def test_a_large_side_is_thinned_and_says_so(db: Database) -> None:
    insert(db, *(request(at / 10, at) for at in range(400)))
    side = read_side(db.client, ALL, E2E, most=150)
    assert side.sampled == 3
    assert 80 < side.n < 190
    assert side.notes == ("one request in 3 was read, of 400",)


def test_causes_are_those_of_the_ladder_request_by_request(db: Database) -> None:
    """Joined by id and arrival: a world of hits, evictions and cold prompts, as hitmap misses counts them."""
    world = World()
    for number, word in enumerate(("ABCD", "ABCD", "ABCE", "QRS", "ABCD")):
        at = 1000 * number
        world.ask(word, at, cached={1: 3 * BLOCK, 2: 3 * BLOCK}.get(number, 0))
        world.store(word, at + 10)
    world.remove("ABCD", 3500)
    put(db.client, world)
    side = read_side(db.client, ALL, TTFT)
    assert side.sources[-len(CAUSES) :] == CAUSES
    np.testing.assert_array_equal(side.tokens.sum(axis=0), side.prompt)
    by_source = dict(zip(side.sources, side.tokens.sum(axis=1).tolist(), strict=True))
    parts = build(db.client, ALL).total.parts
    told = {"evicted": sum(count for name, count in parts.items() if name.startswith("evicted"))}
    told |= {name: count for name, count in parts.items() if not name.startswith("evicted")}
    assert {name: count for name, count in by_source.items() if count} == {n: c for n, c in told.items() if c}
    assert side.tokens[side.sources.index("cold"), 0] == side.prompt[0]
    assert side.tokens[side.sources.index("evicted"), 4] > 0
    assert len(np.unique(side.template)) == 1
    assert side.template[0] != NOT_TOLD


def test_a_side_without_causes_has_both_compared_by_tier(db: Database) -> None:
    world = World()
    world.ask("ABCD", 0, cached=0)
    world.store("ABCD", 10)
    put(db.client, world)
    with_causes = read_side(db.client, ALL, TTFT)
    without = read_side(db.client, ALL, TTFT, causes=False)
    a, b = alike(with_causes, without)
    assert a.sources == b.sources
    np.testing.assert_array_equal(a.tokens, b.tokens)
    assert a.sources[-1] == "computed"
    assert alike(with_causes, with_causes)[0] is with_causes
