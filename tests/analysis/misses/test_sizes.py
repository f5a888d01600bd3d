"""Blocks of two sizes cannot be compared: what may have been sent in the other one is unknown."""

from __future__ import annotations

import pytest
from clickhouse_connect.driver.client import Client

from analysis.misses.explain import explain
from analysis.misses.report import build
from analysis.misses.report_model import MissReport
from analysis.selection import Selection
from tests.analysis.misses.build import HASHER, World
from tests.analysis.misses.stored_world import insert_all, rows_of

LATER = 200_000
TWO = {"a": 1, "b": 1}
PIECES = [("p", 32), ("q", 32)]


def told(store: Client, world: World, twice: str = "r1") -> MissReport:
    """Of request r1 of a world in which the chain of `twice` has blocks of twice the size."""
    rows = rows_of(world)
    for row in rows["request_chains"]:
        if row["request_id"] == twice:
            word = next(one["labels"]["word"] for one in rows["requests"] if one["request_id"] == twice)
            row["blocks"] = list(HASHER.chain([ord(letter) for letter in word], 2))
            row["block_size"], row["split_depth"] = 32, 0
            if twice == "r0":
                rows["kv_events"] = [
                    {**event, "content": content, "block": content, "block_size": 32}
                    for event, content in zip(rows["kv_events"], row["blocks"], strict=False)
                ]
    insert_all(store, rows)
    return build(store, Selection("it", "request_id = 'r1'", {}))


@pytest.mark.parametrize("twice", ["r0", "r1"])
@pytest.mark.parametrize("pieces", [[], PIECES])
@pytest.mark.parametrize("other", ["a", "b"])
def test_what_may_have_been_sent_is_unknown(
    store: Client, twice: str, pieces: list[tuple[str, int]], other: str
) -> None:
    world = World(TWO).served("ABCD", 0, other, cached=0, pieces=pieces)
    report = told(store, world.ask("ABCD", LATER, cached=0, pieces=pieces), twice)
    assert report.total.parts == {"unknown": 64}
    assert "blocks of another size" in report.unknown_needs[0]


def test_pieces_tell_what_was_not(store: Client) -> None:
    """What is new, what stood behind something new, and what nobody sent in the other size."""
    world = World().served("ABCD", 0, cached=0, pieces=PIECES)
    world.ask("QBRST", LATER, cached=0, pieces=[("new", 20), ("q", 32), ("newer", 28)])
    assert told(store, world).total.parts == {"changed": 32, "cold": 48}


def test_what_was_sent_first_when_the_other_size_was_gone_is_changed(store: Client) -> None:
    world = World().served("XYZ", 0, cached=0).served("QBCD", LATER - 10, cached=0, pieces=PIECES)
    world.served("ABCD", LATER, cached=0, pieces=PIECES)
    rows = rows_of(world)
    rows["request_chains"][0] |= {"blocks": list(HASHER.chain([1, 2], 2)), "block_size": 32}
    rows["requests"][0]["prompt_tokens"] = rows["request_chains"][0]["prompt_tokens"] = 64
    insert_all(store, rows)
    assert build(store, Selection("it", "request_id = 'r2'", {})).total.parts == {"changed": 64}


def test_an_explanation_says_the_same(store: Client) -> None:
    world = World().served("ABCD", 0, cached=0, pieces=PIECES).ask("ABCD", LATER, cached=0, pieces=PIECES)
    told(store, world)
    store.command("INSERT INTO request_keys SELECT sipHash64(request_id), toDateTime(time) FROM requests")
    found = explain(store, "r1")
    assert [(run.start, run.end, run.part) for run in found.runs] == [(0, 64, "unknown")]
