"""Blocks that a server stored while nobody knows of a request."""

from __future__ import annotations

from datetime import UTC, datetime

from clickhouse_connect.driver.client import Client

from analysis.misses.report import build
from tests.analysis.misses.build import World
from tests.analysis.misses.stored_world import insert, insert_all, moment, put, rows_of

NOW = datetime(2026, 11, 29, 12, 30, tzinfo=UTC)
EVERY = 20_000  # milliseconds between requests: the stretches of two minutes and a half are 10 s long


def world() -> World:
    told = World({"a": 1, "b": 1})
    for number in range(9):
        told.served(chr(0x100 + number) + "ABC", number * EVERY, "a", cached=0)
    return told


def silent(store: Client, asked: str = "") -> list[str]:
    """What is said of times without requests, or of canaries."""
    warnings = build(store, asked, now=NOW).warnings
    return [one for one in warnings if "no request of that time" in one or "canary" in one]


def test_where_every_store_has_its_request_nothing_is_said(store: Client) -> None:
    put(store, world())
    assert silent(store) == []
    assert silent(store, f"word={chr(0x100)}ABC,server=a") == []


def test_requests_that_have_not_come_yet_leave_a_hole(store: Client) -> None:
    """Two of the middle, 40 s apart from those that are there; of another server all are."""
    rows = rows_of(world().served("XYZ", 70_000, "b", cached=0))
    gone = {moment(4 * EVERY), moment(5 * EVERY)}
    rows["requests"] = [{**row, "e2e_us": 1_000_000} for row in rows["requests"] if row["time"] not in gone]
    insert_all(store, rows)
    assert silent(store) == [
        "from 2026-11-29 12:01:20 to 2026-11-29 12:01:30 UTC a stored 64 tokens, and no request of that time is known:"
        " either a collector has not read them yet (ask again), or they are not told (hitmap sources)",
        "from 2026-11-29 12:01:40 to 2026-11-29 12:01:50 UTC a stored 64 tokens, and no request of that time is known:"
        " either a collector has not read them yet (ask again), or they are not told (hitmap sources)",
    ]


def test_a_long_answer_stores_until_it_ends(store: Client) -> None:
    rows = rows_of(world())
    first = rows["requests"][0]
    insert_all(
        store, rows | {"requests": [{**first, "e2e_us": 200_000_000}, {**rows["requests"][8], "e2e_us": 1}]}
    )
    assert silent(store) == []


def test_canaries_are_named_and_are_no_holes(store: Client) -> None:
    rows = rows_of(world())
    gone = {moment(4 * EVERY), moment(5 * EVERY)}
    rows["requests"] = [{**row, "e2e_us": 1_000_000} for row in rows["requests"] if row["time"] not in gone]
    insert_all(store, rows)
    of_canary = {"origin": "canary", "run": "1", "server": "a", "value": 16.0, "samples": 1}
    insert(store, "findings", [
        {"time": moment(75_500), "name": name, **of_canary} for name in ("alignment.unit", "salt.isolates")
    ])  # fmt: skip
    insert(store, "findings", [{"time": moment(-900_000), "name": "alignment.unit", **of_canary}])
    assert silent(store) == [
        "hitmap canary ran on a at 2026-11-29 12:01:15 UTC: its prompts are among what KV events and the server's own"
        " counters tell, cold as a rule, and not among these requests"
    ]


def counted(store: Client, *grown: tuple[int, int]) -> None:
    """What a server without KV events looked up, by seconds at which it was asked."""
    name = "prefix_cache.query_tokens"
    insert(
        store,
        "series",
        [{"fingerprint": 1, "server": "a", "metric": name, "raw_name": name, "kind": "counter"}],
    )
    insert(store, "samples", [
        {"time": moment(1000 * at), "fingerprint": 1, "value": 0.0, "delta": float(tokens)} for at, tokens in grown
    ])  # fmt: skip


def test_counters_tell_of_a_server_without_kv_events(store: Client) -> None:
    rows = rows_of(world())
    gone = {moment(4 * EVERY), moment(5 * EVERY)}
    rows["requests"] = [{**row, "e2e_us": 1_000_000} for row in rows["requests"] if row["time"] not in gone]
    insert_all(store, rows | {"kv_events": []})
    assert silent(store) == []
    counted(
        store,
        (-5, 900),
        (65, 64),
        (75, 0),
        (80, 0),
        (85, 64),
        (90, 0),
        (105, 64),
        (110, 0),
        (125, 64),
        (900, 7),
    )
    assert silent(store) == [
        "from 2026-11-29 12:01:20 to 2026-11-29 12:01:25 UTC a looked up 64 tokens, and no request of that time is"
        " known: either a collector has not read them yet (ask again), or they are not told (hitmap sources)",
        "from 2026-11-29 12:01:30 to 2026-11-29 12:01:45 UTC a looked up 64 tokens, and no request of that time is"
        " known: either a collector has not read them yet (ask again), or they are not told (hitmap sources)",
    ]
