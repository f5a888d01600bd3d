"""What a lost message may do to what is told: make it unknown, and nothing else."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from analysis.misses.model import NOT_TOLD, Action
from cachemodel.alignment import Alignment
from tests.analysis.misses.build import World, parts
from tests.analysis.misses.served_worlds import here_together, served_worlds

NOW = 100_000


@pytest.mark.parametrize("usage", [True, False], ids=["usage", "no-usage"])
@settings(max_examples=150)
@given(data=st.data())
def test_a_lost_message_makes_unknown_and_no_cause(data: st.DataObject, usage: bool) -> None:
    """No request has more tokens of a cause than are true or were told with all messages, nor more that were served."""
    world, truth = data.draw(served_worlds(usage=usage))
    whole, messages = world.climb(), sorted({row[0] for row in world.rows})
    assume(len(messages) > 1)
    lost = data.draw(st.sampled_from(messages[:-1]))
    gap = (messages[messages.index(lost) + 1], "a", 0, Action.GAP, 0, 0, 0)
    world.rows = [gap, *(row for row in world.rows if row[0] != lost)]
    missing = world.climb()
    for i, true in enumerate(truth):
        before, now = here_together(parts(whole, i)), here_together(parts(missing, i))
        for part, tokens in now.items():
            told = before.get(part, 0) + (before.get("unknown", 0) if part != "actual" else 0)
            assert part == "unknown" or tokens <= max(true[part], told), (i, true, before, now)


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


def test_behind_a_gap_a_block_is_stored_for_who_is_in_flight() -> None:
    """Not for one that is over and whose own events are lost, nor for one that found it before it was removed."""
    lost = World().ask("ABCD", 1004, first=1005, cached=0).mark(Action.GAP, 1005).store("ABC", 1005)
    lost.remove("ABCD", 1006, begin=3)
    lost.ask("ABCD", 1006, first=1009, cached=48, more=1).store("ABCD", 1009, begin=3)
    assert parts(lost.climb()) == {"actual": 48, "capacity": 16, "cold": 1}
    found = World().ask("AB", 1000, first=1002).mark(Action.GAP, 1003).ask("AB", 1012, first=1013)
    found.remove("AB", 1054, begin=1).store("Q", 1054).ask("AB", 1093, first=1103, cached=16, more=1)
    found.store("AB", 1103, begin=1)
    assert parts(found.climb()) == {"actual": 16, "capacity": 16, "cold": 1}


def test_no_lookup_moves_past_a_clear_to_what_was_stored_later() -> None:
    """A is lost in the gap; usage shows it. The one of the second life is another."""
    world = World().ask("AY", 1001, first=1002, cached=0).mark(Action.GAP, 1003)
    world.ask("AB", 1005, first=1006, cached=16).store("AB", 1006, begin=1)
    world.mark(Action.CLEARED, 1010).ask("AB", 1011, first=1012, cached=0).store("AB", 1012)
    assert parts(world.climb(), 1) == {"actual": 16, "cold": 16}
