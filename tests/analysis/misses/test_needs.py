"""What would tell the unknown tokens: each kind of them has the sentence that helps, and none a flag in vain."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from clickhouse_connect.driver.client import Client

from analysis.misses.explain import explain
from analysis.misses.model import Action
from analysis.misses.report import build
from tests.analysis.misses.build import World
from tests.analysis.misses.stored_world import keyed, put

LATER = 100_000
NOW = datetime(2026, 11, 29, 12, 30, tzinfo=UTC)


def shared(salt: int = 5) -> World:
    """Behind AB only the prompt of another salt has the 9 tokens of the last one."""
    world = World().served("AB", 0, cached=0).served("ABC", 100, salt=salt, cached=0)
    return world.served("ABD", LATER, found=2, cached=32, split=(2, 9), more=3)


def lost() -> World:
    """A message was lost at some time between the two."""
    world = World().served("AB", 0, cached=0).ask("AB", LATER, more=5, cached=0)
    return world.mark(Action.GAP, LATER + 5000).store("Q", LATER + 5000)


def late() -> World:
    """The events begin after the first prompt."""
    return World().ask("AB", 0, cached=0).store("Q", 50_000).served("AB", LATER, more=5, cached=0)


def reset() -> World:
    """What the host kept through a reset is not told."""
    world = World().served("AB", 0, cached=0).remove("AB", 5000).store("AB", 5000, tier=1)
    return world.mark(Action.CLEARED, 50_000).ask("AB", LATER, more=5, cached=0)


def silent() -> World:
    """Replica b, which was sent it first, publishes nothing."""
    world = World({"a": 1, "b": 1}).ask("AB", 0, "b", cached=0)
    return world.served("AB", LATER, cached=0).store("Q", 10)


@pytest.mark.parametrize(
    ("world", "tokens", "need"),
    [
        (
            shared(),
            9,
            "nothing would tell 9 tokens of 1 requests, less than a block each, that only prompts of",
        ),
        (
            lost(),
            32,
            "32 tokens that depend on what was lost in 1 gaps in the KV events: give the server a replay",
        ),
        (
            late(),
            32,
            "32 tokens that depend on what was lost in the beginning of the KV events: give the server",
        ),
        (
            reset(),
            32,
            "32 tokens of which the KV events, though none is missing, do not tell enough: of a block",
        ),
    ],
    ids=["shared", "lost", "late", "reset"],
)
def test_each_kind_has_its_sentence(store: Client, world: World, tokens: int, need: str) -> None:
    put(store, world)
    report = build(store, "", now=NOW)
    assert report.total.parts["unknown"] == tokens
    (said,) = report.unknown_needs
    assert said.startswith(need)


def test_a_replica_that_publishes_nothing_is_no_gap(store: Client) -> None:
    put(store, silent())
    needs = build(store, "server=a", now=NOW).unknown_needs
    assert needs == [
        "32 tokens that b may have held, which tells no KV events: it needs its KV-cache events switched on, and attach"
        " with --kv-events"
    ]


def test_what_a_salt_shares_is_counted_beside_what_was_lost(store: Client) -> None:
    """A gap in the same events: the part of a block stays what it is."""
    put(store, shared().ask("AB", 2 * LATER, cached=0, more=5).mark(Action.GAP, 3 * LATER))
    report = build(store, "", now=NOW)
    assert report.total.parts["unknown"] == 9 + 32
    assert [need.split(" tokens")[0] for need in report.unknown_needs] == ["32", "nothing would tell 9"]


def test_an_explanation_says_so_too(store: Client) -> None:
    """It looks at the prompts that were in flight: here the one of another salt."""
    world = World().served("AB", 0, cached=0).served("ABC", 100, salt=5, cached=0, first=LATER + 100)
    put(store, world.served("ABD", LATER, found=2, cached=32, split=(2, 9), more=3))
    keyed(store)
    runs = explain(store, "r2").runs
    assert [(run.end, run.part) for run in runs] == [(32, "cached"), (41, "unknown"), (51, "cold")]
    assert runs[1].evidence.startswith("less than a block, which only prompts of another server, salt or")
