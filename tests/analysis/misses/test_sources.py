"""Several sources tell of one cache: each speaks of what it told of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from clickhouse_connect.driver.client import Client
from hypothesis import given
from hypothesis import strategies as st

from analysis.misses.alignments import climbed, laws
from analysis.misses.model import NOT_TOLD, Action
from analysis.misses.reader import read
from analysis.misses.sources import settled
from analysis.selection import Selection
from tests.analysis.misses.build import World, parts
from tests.analysis.misses.stored_world import insert, moment, put

ALL = Selection("all", "1", {})
LATER = 100_000
_ACTIONS = (*[Action.STORED] * 4, *[Action.REMOVED] * 2, Action.CLEARED, Action.GAP, Action.RESTART)
_told = st.tuples(st.sampled_from(_ACTIONS), st.integers(1, 3), st.integers(1, 3))


def rows(told: list[tuple[int, int, int]], holder: list[int] | None = None) -> dict[str, Any]:
    n = len(told)
    action, source, content = np.array(told, np.int64).reshape(-1, 3).T
    return {
        "holder": np.array(holder or [0] * n, np.int64),
        "source": source,
        "action": action,
        "tier": np.zeros(n, np.int64),
        "content": np.where(action <= Action.REMOVED, content, 0).astype(np.uint64),
        "isolation": np.zeros(n, np.uint64),
        "time": np.arange(n),
    }


@given(st.lists(_told, min_size=1, max_size=30))
def test_a_block_is_held_while_a_source_says_so(told: list[tuple[int, int, int]]) -> None:
    """Replayed as one cache, the rows say after each of them what the sources say one by one."""
    columns = rows(told)
    index, actions, at = settled(columns)
    assert (np.diff(at) >= 0).all()
    held: dict[int, set[int]] = {1: set(), 2: set(), 3: set()}
    whole: set[int] = set()
    replayed = 0
    for row, (action, source, content) in enumerate(told):
        mine = held[source]
        if action == Action.STORED:
            mine.add(content)
        elif action == Action.REMOVED:
            mine.discard(content)
        else:
            mine.clear()
        while replayed < len(at) and at[replayed] <= row:
            block = int(columns["content"][index[replayed]])
            if actions[replayed] == Action.STORED:
                whole.add(block)
            elif actions[replayed] == Action.REMOVED:
                whole.discard(block)
            else:
                whole.clear()
            replayed += 1
        assert whole == set().union(*held.values())


def test_one_source_alone_is_left_as_it_is() -> None:
    told = [(Action.STORED, 1, 1), (Action.RESTART, 1, 0), (Action.STORED, 2, 1), (Action.REMOVED, 2, 1)]
    index, actions, at = settled(rows(told, [0, 0, 1, 1]))  # type: ignore[arg-type]
    assert index.tolist() == at.tolist() == [0, 1, 2, 3]
    assert actions.tolist() == [action for action, _, _ in told]


def test_what_a_gap_of_another_source_hides_stays_hidden() -> None:
    told = [(Action.STORED, 1, 1), (Action.STORED, 2, 2), (Action.GAP, 2, 0), (Action.RESTART, 1, 0)]
    index, actions, _ = settled(rows(told))  # type: ignore[arg-type]
    assert actions.tolist() == [1, 1, Action.GAP, 1, Action.RESTART, Action.GAP]
    assert index.tolist() == [0, 1, 2, 0, 3, 3]


@pytest.mark.parametrize("mark", ["restart", "cleared", "gap"])
@pytest.mark.parametrize("told_of", ["the same", "others"])
@pytest.mark.parametrize(
    ("cached", "expected"), [(NOT_TOLD, {"actual": 32, "cold": 5}), (0, {"not_loaded": 32, "cold": 5})]
)
def test_a_connector_beside_its_engine(
    store: Client, mark: str, told_of: str, cached: int, expected: dict[str, int]
) -> None:
    """What ends on the connector's side does not empty the engine's cache."""
    put(store, World().served("AB", 0).ask("AB", LATER, cached=cached, more=5))
    content = 5 if told_of == "others" else World().served("A", 0).chains().blocks[0]
    base = {"server": "a", "source": "connector", "rank": 0, "epoch": moment(20)}
    insert(
        store,
        "kv_events",
        [
            {**base, "time": moment(20), "seq": 0, "pos": 1, "action": "stored", "block": 5,
             "content": int(content), "isolation": 0, "tier": "host"},
            {**base, "time": moment(60_000), "seq": 3, "pos": 0, "action": mark, "block": None,
             "content": None, "isolation": None, "tier": ""},
        ],
    )  # fmt: skip
    reading = read(store, ALL)
    assert parts(climbed(reading, laws(reading.chains, {}))) == expected


def test_a_part_of_a_cache_that_was_cleared(store: Client) -> None:
    """Which blocks were of that part is not kept: from then on nobody knows."""
    put(store, World().served("AB", 0).ask("AB", LATER, cached=0, more=5))
    row = {
        "server": "a",
        "source": "kv",
        "rank": 0,
        "epoch": moment(10),
        "time": moment(5000),
        "seq": 9,
        "pos": 1,
    }
    insert(store, "kv_events", [{**row, "action": "cleared", "ownership": "draft"}])
    reading = read(store, ALL)
    assert parts(climbed(reading, laws(reading.chains, {}))) == {"unknown": 32, "cold": 5}


def test_stores_whose_content_is_not_known_are_told_of_their_cache(store: Client) -> None:
    put(store, World({"a": 1, "b": 1}).served("AB", 0).served("Q", 0, "b"))
    base = {"server": "a", "source": "kv", "rank": 0, "epoch": moment(10), "pos": 1, "content": None}
    told = [(900, 71, "stored"), (1000, 72, "stored"), (999_000, 73, "stored")]
    rows = [
        {**base, "time": moment(at), "seq": at, "action": action, "block": block}
        for at, block, action in told
    ]
    insert(store, "kv_events", rows)

    def blind() -> list[int]:
        return read(store, ALL).events.blind.tolist()

    assert blind() == [round(moment(1000).timestamp() * 1e6), NOT_TOLD]
    detail = '{"told": {"seq": 1000, "pos": 1, "time": 1, "action": "stored"}}'
    placed = {**rows[0], "action": "resolved", "seq": 2000, "block": 72, "content": 5, "detail": detail}
    insert(store, "kv_events", [placed])
    assert blind() == [round(moment(900).timestamp() * 1e6), NOT_TOLD]
