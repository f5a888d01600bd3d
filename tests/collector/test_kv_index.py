"""What the index says a cache holds: order, clears, gaps, restarts, and the same as the store's view says."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cachemodel.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    Event,
    KVEventBatch,
)
from cachemodel.residency import Told, holds
from collector.kv.index import BlockIndex
from collector.kv.rows import EventRows
from collector.kv.stream import Message, Order
from collector.resume import Stored
from store.client import connect
from tests.collector.kv_random import (
    START,
    Step,
    events,
    known,
    messages,
    rows,
    steps,
    stream,
    taken,
)
from tests.collector.support import HASHER
from tests.conftest import Database


def index_of(*told: Event) -> BlockIndex:
    made = EventRows(HASHER)
    for event in told:
        list(made.of(event))
    return made.index


def stored(*blocks: int, medium: str | None = "GPU", **options: Any) -> BlockStored:
    return BlockStored(blocks, None, list(range(len(blocks))), 1, medium=medium, **options)


def test_order_inside_a_batch() -> None:
    after = index_of(stored(1, 2), AllBlocksCleared(), stored(2))
    assert [after.holds(block, "GPU") for block in (1, 2, 3)] == [False, True, False]
    before = index_of(AllBlocksCleared(), stored(1, 2), BlockRemoved([2], "GPU"), stored(2))
    assert [before.holds(block, "GPU") for block in (1, 2)] == [True, True]


def test_a_clear_is_of_the_device_and_of_its_ownership() -> None:
    told = index_of(
        *(
            stored(1, medium=medium, ownership=owner)
            for medium in ("GPU", "CPU", None)
            for owner in ("a", "b")
        ),
        AllBlocksCleared("a"),
    )
    found = {(m, o): told.holds(1, m, o) for m in ("GPU", "CPU", "") for o in ("a", "b")}
    assert found == {
        **{("GPU", "a"): False, ("", "a"): False, ("CPU", "a"): None},
        **{("GPU", "b"): True, ("", "b"): True, ("CPU", "b"): True},
    }


def test_what_was_never_told_of_may_lie_on_a_disk() -> None:
    told = index_of(stored(1, medium="STORAGE"), BlockRemoved([2], "STORAGE"))
    assert [told.holds(block, "STORAGE") for block in (1, 2, 3)] == [True, False, None]


def test_a_move() -> None:
    told = index_of(stored(1, medium="cache_level=0"), BlockUpdated(1, "cache_level=0", "cache_level=1"))
    assert (told.holds(1, "cache_level=0"), told.holds(1, "cache_level=1")) == (False, True)
    assert told.totals() == {"device": (0, 0), "host": (1, 0)}


def test_what_there_was_no_room_for_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.kv.index.MAX_BLOCKS", 2)
    told = index_of(stored(1), stored(2), stored(3))
    assert [told.holds(block, "GPU") for block in (1, 2, 3)] == [None, True, True]
    assert told.counts["forgotten"] == 1
    told = index_of(stored(1), stored(2), stored(3), AllBlocksCleared())
    assert told.holds(1, "GPU") is False
    # it may have outlived the clear, in the host's memory: whether it did is as little known when it is forgotten
    told = index_of(
        stored(1, medium="CPU"), AllBlocksCleared(), stored(2, medium="CPU"), stored(3, medium="CPU")
    )
    assert [told.holds(block, "CPU") for block in (1, 2, 3)] == [None, True, True]
    assert told.counts["forgotten"] == 0


def test_places_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.kv.index.MAX_PLACES", 2)
    told = index_of(*(stored(1, medium=medium) for medium in ("a", "b", "c")))
    assert [told.holds(1, medium) for medium in ("a", "b", "c", "d")] == [True, True, None, None]
    assert told.counts["places_left_out"] == 1


@given(steps, st.integers(0, 11))
def test_duplicates_change_nothing(said: list[Step], again: int) -> None:
    """A full report tells of what is there already; a replay overlaps."""
    one, other = stream(), stream()
    whole = messages(said)
    taken(one, whole)
    for message in whole:
        taken(other, [message])
        before = known(other)
        assert taken(other, [message]) == []
        assert known(other) == before
    assert known(one) == known(other)


@given(st.lists(events, min_size=1, max_size=6))
def test_a_block_stored_twice_is_held_once(said: list[list[Event]]) -> None:
    twice = [event for part in said for event in part for _ in range(1 + isinstance(event, BlockStored))]
    once, more = index_of(*chain(*said)), index_of(*twice)
    assert once.totals() == more.totals()
    assert once.table.columns() == more.table.columns()


@given(steps, st.integers(1, 3))
def test_after_any_gap_nothing_is_known_to_be_absent(said: list[Step], lost: int) -> None:
    told = stream()
    taken(told, messages(said))
    before = known(told)
    gap = messages([*said, Step(lost, False, [BlockRemoved([], "GPU")])])[-1]
    assume(told.order(gap) is Order.BEHIND_GAP)  # not so behind a restart of which no message could be read
    taken(told, [gap])
    places = {key: held for key, held in known(told).items() if len(key) == 5}
    assert set(places.values()) <= {None}
    lineages = {key: place for key, place in before.items() if len(key) < 5}
    assert lineages.items() <= known(told).items(), "where a block stands no gap makes untrue"


@given(steps)
def test_a_restart_forgets_its_rank(said: list[Step]) -> None:
    told = stream()
    taken(told, messages(said))
    begun_again = messages([*said, Step(0, True, [stored(1)])])[-1:]
    fresh = stream()
    assert "restart" in {row["action"] for row in rows(taken(told, begun_again))}
    taken(fresh, begun_again)
    assert told.position == fresh.position
    assert known(told) == known(fresh)


@pytest.mark.parametrize(
    ("told", "complete", "held"),
    [
        (Told.NOTHING, True, False),
        (Told.NOTHING, False, None),
        (Told.HELD, False, True),
        (Told.WAS_HELD, True, None),
        (Told.GONE, False, False),
    ],
)
def test_what_is_held(told: Told, complete: bool, held: bool | None) -> None:
    assert holds(told, complete=complete) is held


def test_ranks_of_one_publisher_are_apart_and_lose_together() -> None:
    told = stream()

    def take(seq: int, rank: int, *said: Event) -> list[dict[str, Any]]:
        batch = KVEventBatch(START + seq, said, rank)
        return rows(told.take(Message(seq, START, START + seq, batch)))

    take(0, 0, stored(1))
    take(1, 1, stored(1), AllBlocksCleared())
    assert [told.ranks[rank].holds(1, "GPU") for rank in (0, 1)] == [True, False]
    lost = take(3, 1, stored(2))
    assert [(row["action"], row["rank"]) for row in lost] == [("gap", 0), ("gap", 1), ("stored", 1)]
    assert [told.ranks[rank].holds(1, "GPU") for rank in (0, 1)] == [None, None]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_the_store_says_the_same(db: Database, said: list[Step]) -> None:
    """The view, and an index made again from the rows, of all that a random publisher told."""
    db.client.command("TRUNCATE TABLE kv_events")
    told = stream()
    payload = b"".join(entry.payload for entry in taken(told, messages(said)))
    db.client.raw_insert("kv_events", insert_block=payload, fmt="JSONEachRow")
    index = told.ranks[0]
    query = "SELECT block, medium, ownership, group_idx, resident FROM kv_residency WHERE server = 's'"
    for block, medium, ownership, group, resident in db.client.query(query).result_rows:
        held = index.holds(block, medium, ownership, group)
        assert held == (None if resident is None else bool(resident)), (block, medium, ownership, group)
    (position,) = Stored(lambda: connect(db.dsn)).kv_positions("s", 0).values()
    again = stream(position=position)
    assert (again.last, again.position) == (told.last, replace(position, history=None))
    found = known(again)
    # which blocks wait for a parent only an index file tells
    assert found | {(0, "orphans"): None} == known(told) | {(0, "orphans"): None}
