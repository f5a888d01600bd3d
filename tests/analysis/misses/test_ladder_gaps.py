"""What a lost message may do to what is told: make it unknown, and nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from analysis.misses.model import NOT_TOLD, Action
from cachemodel.alignment import Alignment
from tests.analysis.misses.build import World, contents, parts
from tests.analysis.misses.worlds import worlds

NOW = 100_000


@pytest.mark.parametrize(
    "usage",
    [
        pytest.param(True, id="usage"),
        pytest.param(
            False,
            id="no-usage",
            marks=pytest.mark.xfail(reason="an estimated hit can turn into another cause: docs/limits.md"),
        ),
    ],
)
@settings(max_examples=150)
@given(world=worlds(gaps=False, tiers=False), data=st.data())
def test_a_lost_message_makes_unknown_and_no_cause(world: World, data: st.DataObject, usage: bool) -> None:
    """No request has more tokens of a cause than with all messages, nor more that were served."""
    assume(max(world.servers.values()) == 1)
    whole = world.climb()
    told = sorted({(row[1], row[2], row[0]) for row in world.rows})
    followed = [one for one, after in itertools.pairwise(told) if one[:2] == after[:2]]
    assume(followed)
    server, rank, time = data.draw(st.sampled_from(followed))
    lost = [row for row in world.rows if (row[1], row[2], row[0]) == (server, rank, time)]
    assume(all(_sent(world, row[5], server, row[6], time) for row in lost if row[3] == Action.STORED))
    after = min(at for name, number, at in told if (name, number) == (server, rank) and at > time)
    world.rows = [(after, server, rank, Action.GAP, 0, 0, 0), *(row for row in world.rows if row not in lost)]
    missing = world.climb()
    for i in np.flatnonzero(whole.derived != usage).tolist():
        before, now = _here_together(parts(whole, i)), _here_together(parts(missing, i))
        for part, tokens in now.items():
            most = before.get(part, 0) + (before.get("unknown", 0) if part != "actual" else 0)
            assert part == "unknown" or tokens <= most, (i, before, now)


def test_between_the_last_event_and_the_gaps_row_nothing_is_certain() -> None:
    """The messages that were lost lie somewhere in between: here a clear, and with it what was stored after."""
    for began, cached in itertools.product((NOW, NOW + 5), (0, NOT_TOLD)):
        world = World().served("AB", 0).ask("AB", NOW, more=5, began=began, cached=cached)
        world.mark(Action.GAP, NOW + 32).store("Q", NOW + 32)
        assert parts(world.climb()) == {"unknown": 32, "cold": 5}
    idle = World().served("AB", 0).ask("AB", NOW, more=5, cached=0)
    assert parts(idle.mark(Action.GAP, NOW + 5000).store("Q", NOW + 5000).climb()) == {
        "unknown": 32,
        "cold": 5,
    }
    other = World({"a": 1, "b": 1}).served("AB", 0, "b").ask("ABC", NOW, cached=0).store("ABC", NOW + 10)
    other.mark(Action.GAP, NOW + 5000, "b").store("Q", NOW + 5000, "b")
    assert parts(other.climb()) == {"unknown": 32, "cold": 16}


def test_a_hit_of_what_may_be_held_and_a_block_in_flight_look_alike() -> None:
    for world in (World(), World(joined={("a", 0): 50_000})):
        world.served("AB", 0).mark(Action.GAP, 50_000).ask("AB", NOW, first=NOW + 200, more=3)
        world.ask("ABC", NOW + 20, first=NOW + 210).store("ABC", NOW + 205, begin=2)
        assert parts(world.climb())["unknown"] >= 32
        assert "not_loaded" not in parts(world.climb())
        assert "actual" not in parts(world.climb())


def test_what_was_lost_in_a_gap_and_a_clear_behind_it_has_no_cause() -> None:
    """It may have been evicted, or stored again and cleared, in the gap."""
    for action in (Action.CLEARED, Action.RESTART):
        world = World().served("AB", 0).mark(Action.GAP, 40_000).mark(action, 50_000).served("ABX", NOW)
        world.served("ABC", 2 * NOW, found=2)
        assert parts(world.climb(), 1)["unknown"] >= 32
        gone = World().served("ABX", 0).store("Q", 20).remove("ABX", 20).mark(Action.GAP, 40_000)
        gone.mark(action, 50_000).served("ABC", NOW)
        assert parts(gone.climb()) == {"unknown": 32, "cold": 16}


def test_what_is_known_to_be_held_behind_what_usage_shows_was_held_too() -> None:
    """The gap hides blocks A and B, usage shows them; C was told after it. By units of two blocks C could not be
    served; by units of one it could, and was not."""
    for unit, cause in ((32, "unaligned"), (16, "not_loaded")):
        world = World(alignments={"a": Alignment(unit)}).served("ABC", 0).mark(Action.GAP, 50_000)
        world.store("ABC", 60_000, begin=2).ask("ABC", NOW, cached=32, more=1)
        assert parts(world.climb()) == {"actual": 32, cause: 16, "cold": 1}


def test_what_follows_a_prompt_from_before_a_gap_may_be_its_output() -> None:
    world = World().served("AB", 0).mark(Action.GAP, 50_000).store("AB", 60_000).served("ABC", NOW, found=2)
    assert parts(world.climb()) == {"actual": 32, "unknown": 16}


def _here_together(found: dict[str, int]) -> dict[str, int]:
    """Of what was computed here although it was here, or was being computed, the last block may count as either."""
    here = found.pop("unaligned", 0) + found.pop("not_loaded", 0)
    return {**found, "here": here} if here else found


def _sent(world: World, content: int, server: str, salt: int, time: int) -> bool:
    """Whether a block was part of a prompt by then: one that was not is known by its events alone."""
    return any(
        content in contents(one.word)
        for one in world.asked
        if (one.server, one.salt) == (server, salt) and one.at < time
    )
