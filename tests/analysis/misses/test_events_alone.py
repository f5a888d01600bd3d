"""Why blocks were stored, by KV events alone: planted, against a slow reading of the same, and out of the store."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from clickhouse_connect.driver.client import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.misses.bins import Bins, bins, iso
from analysis.misses.events_alone import Window, events_alone, window_of
from analysis.misses.model import Action, Events
from analysis.misses.parts import PARTS
from analysis.misses.stored import ALONE_US, reasons
from analysis.selection import Selection
from tests.analysis.misses.build import BLOCK, World
from tests.analysis.misses.stored_world import events_of, insert, moment, put

TWO = {"a": 1, "b": 1}


def told(world: World) -> list[str]:
    """The part of each block that was stored on a device, in order."""
    _, part = reasons(world.events())
    return [PARTS[number] for number in part]


def test_a_block_stored_for_the_first_time_is_cold() -> None:
    assert told(World().store("ABC", 10)) == ["cold"] * 3


def test_a_block_told_of_again_while_it_is_held_was_reused() -> None:
    assert told(World().store("AB", 10).store("AB", 20)) == ["cold", "cold", "device", "device"]


@pytest.mark.parametrize(
    ("ends", "part"),
    [
        (lambda world: world.remove("A", 5000).store("Q", 5001), "evicted/capacity"),
        (lambda world: world.remove("A", 5000), "evicted/expiry"),
        (lambda world: world.mark(Action.CLEARED, 5000), "evicted/clear"),
        (lambda world: world.mark(Action.RESTART, 5000), "evicted/restart"),
        (lambda world: world.mark(Action.GAP, 5000), "unknown"),
    ],
)
def test_what_ended_a_stay_is_why_it_is_stored_again(ends, part: str) -> None:  # type: ignore[no-untyped-def]
    world = ends(World().store("A", 10)).store("A", 90_000)
    assert told(world)[-1] == part


def test_what_another_holds_is_elsewhere_and_what_another_key_holds_isolated() -> None:
    assert told(World(TWO).store("A", 10, "a").store("A", 20, "b")) == ["cold", "elsewhere"]
    assert told(World().store("A", 10, salt=1).store("A", 20, salt=2)) == ["cold", "isolated"]
    gone = World(TWO).store("A", 10, "a").mark(Action.CLEARED, 15, "a").store("A", 20, "b")
    assert told(gone) == ["cold", "evicted/clear"]
    both = World(TWO).store("A", 10, "a", salt=1).store("A", 15, "b", salt=2).store("A", 20, "a", salt=2)
    assert told(both)[-1] == "elsewhere"


def test_a_block_that_another_tier_holds_was_loaded() -> None:
    world = World().store("A", 10).store("A", 20, tier=1).remove("A", 30).store("Q", 30).store("A", 90_000)
    assert told(world)[-1] == "host"
    cleared = World().store("A", 10).store("A", 20, tier=1).mark(Action.CLEARED, 30).store("A", 90_000)
    assert told(cleared)[-1] == "evicted/clear"  # what a clear leaves on a host is not told


def test_tokens_seen_in_another_place_are_changed() -> None:
    events = World().store("AB", 10).store("QB", 20).events()
    _, part = reasons(events, np.array([False, False, False, True]))
    assert [PARTS[number] for number in part] == ["cold", "cold", "cold", "changed"]


ROWS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from(
            [Action.STORED, Action.STORED, Action.REMOVED, Action.CLEARED, Action.RESTART, Action.GAP]
        ),
        st.sampled_from("AB"),
        st.sampled_from([0, 1]),
        st.integers(0, 2),
        st.sampled_from([1, 2000]),
    ),
    max_size=25,
)


@settings(max_examples=300)
@given(ROWS)
def test_a_slow_reading_agrees(rows: list[tuple[str, Action, str, int, int, int]]) -> None:
    world, at = World(TWO), 0
    for server, action, word, salt, tier, wait in rows:
        at += wait
        if action is Action.STORED:
            world.store(word, at, server, salt=salt, tier=tier)
        elif action is Action.REMOVED:
            world.remove(word, at, server, salt=salt, tier=tier)
        else:
            world.mark(action, at, server)
    events = world.events()
    position, part = reasons(events)
    assert [(int(p), PARTS[n]) for p, n in zip(position, part, strict=True)] == list(slowly(events))


def slowly(events: Events) -> Iterator[tuple[int, str]]:
    """One event after the other, with all that is held and was lost in dictionaries."""
    held: dict[tuple[int, int, int, int], bool] = {}  # (content, isolation, holder, tier) -> for sure
    lost: dict[tuple[int, int, int], tuple[int, str]] = {}  # device stays: where, and how the last one ended
    order: list[tuple[int, int, int]] = []  # device stays by when they began
    for at in range(len(events.time)):
        action, holder, tier = Action(events.action[at]), int(events.holder[at]), int(events.tier[at])
        content, isolation = int(events.content[at]), int(events.isolation[at])
        key = (content, isolation, holder, tier)
        if action is Action.REMOVED:
            if held.pop(key, None) is not None and tier == 0:
                lost[key[:3]] = (at, "capacity" if made_room(events, at) else "expiry")
        elif action is Action.STORED:
            if tier == 0:
                yield at, why(held, lost, order, key)
                order.append(key[:3])
                lost.pop(key[:3], None)
            held[key] = True
        else:
            mark(held, lost, action, holder, at)


def made_room(events: Events, at: int) -> bool:
    stored = (events.action == Action.STORED) & (events.holder == events.holder[at])
    return bool((np.abs(events.time[stored] - events.time[at]) <= ALONE_US).any())


def mark(held, lost, action: Action, holder: int, at: int) -> None:  # type: ignore[no-untyped-def]
    for key in [key for key in held if key[2] == holder]:
        del held[key]
        if key[3] == 0:
            lost[key[:3]] = (
                at,
                {Action.CLEARED: "clear", Action.RESTART: "restart", Action.GAP: "gap"}[action],
            )


def why(held, lost, order, key) -> str:  # type: ignore[no-untyped-def]
    content, isolation, holder, _ = key
    if key in held:
        return "device"
    stays = [stay for stay in order if stay[0] == content]
    own_key = [stay for stay in stays if stay[1:] == (isolation, holder)]
    own = [stay for stay in stays if stay[2] == holder]
    before = (own_key or own or stays or [None])[-1]
    if before in lost and lost[before][1] == "gap":
        return "unknown"
    for tier, name in ((1, "host"), (2, "remote")):
        if (*key[:3], tier) in held:
            return name
    if any(k[:2] == key[:2] for k in held):
        return "elsewhere"
    if any(k[0] == content for k in held):
        return "isolated"
    return "cold" if before is None else f"evicted/{lost[before][1]}"


def test_by_server_and_stretch_of_time(store: Client) -> None:
    world = World({"a": 1, "b": 1, "c": 1})
    put(
        store,
        world.store("AB", 0, "a")
        .store("AB", 1500, "b")
        .mark(Action.CLEARED, 1900, "a")
        .store("A", 2500, "a"),
    )
    insert(store, "servers", [
        {"time": moment(0), "server": s, "kind": "vllm", "version": "", "url": "", "models": ["m"], "facts": {},
         "signals": [], "notes": []} for s in "ab"
    ])  # fmt: skip
    begin = round(moment(0).timestamp() * 1e6)
    found = events_alone(store, Window(("a", "b"), begin, begin + 3_000_000), Bins(begin, 1_000_000))
    assert [(line.server, line.begin[-9:], line.stored, line.parts) for line in found.lines] == [
        ("a", "12:00:00Z", 32, {"cold": 32}),
        ("a", "12:00:02Z", 16, {"elsewhere": 16}),
        ("b", "12:00:01Z", 32, {"elsewhere": 32}),
    ]
    assert (found.sampled, iso(found.since)) == (1, "2026-11-29T12:00:00Z")
    only = events_alone(store, Window(("a",), begin + 2_000_000, begin + 3_000_000), Bins(begin, 1_000_000))
    assert [line.parts for line in only.lines] == [{"elsewhere": 16}]


def test_blocks_in_no_known_place_are_unknown_until_they_are_told_of(store: Client) -> None:
    rows = events_of(World().store("AB", 0))
    for row in rows:
        row["content"] = None
        row["isolation"] = None
    insert(store, "kv_events", rows)
    window = window_of(store, Selection("all", "1", {}))
    assert window is not None
    cut = bins(window.begin, window.end)
    assert [line.parts for line in events_alone(store, window, cut).lines] == [{"unknown": 2 * BLOCK}]


def test_large_times_are_thinned_by_block(store: Client) -> None:
    world = World()
    for number in range(400):
        world.store(chr(1000 + number), number).remove(chr(1000 + number), 10_000 + number)
        world.store(chr(1000 + number), 20_000 + number)
    put(store, world)
    window = window_of(store, Selection("all", "1", {}))
    assert window is not None
    found = events_alone(store, window, bins(window.begin, window.end), most_blocks=200)
    assert found.sampled == 4
    total = {name: sum(line.parts.get(name, 0) for line in found.lines) for name in PARTS}
    assert total["cold"] == sum(
        v for k, v in total.items() if k.startswith("evicted")
    )  # histories stay whole
    assert 50 * BLOCK < total["cold"] < 160 * BLOCK


def test_what_only_requests_have_is_not_asked_of_events(store: Client) -> None:
    put(store, World().store("A", 0))
    assert window_of(store, Selection("x", "1", {}, texts=("model",))) is None
    assert window_of(store, Selection("x", "1", {}, numbers=("ttft_us",))) is None
    assert window_of(store, Selection("x", "server = 'b'", {}, texts=("server",))) is None
    assert window_of(store, Selection("x", "server = 'a'", {}, texts=("server",))) is not None


@given(st.integers(1, 10**15), st.integers(0, 10**15))
def test_bins_are_few_and_cover_the_time(begin: int, length: int) -> None:
    cut = bins(begin, begin + length)
    first, last = cut.of(np.array([begin, begin + length])).tolist()
    assert first == 0
    assert last <= 25
    assert cut.first % cut.step == 0
