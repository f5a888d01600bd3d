"""When a prompt was looked up, told from the events that its computing left, and whose events those were."""

from __future__ import annotations

import pytest

from analysis.misses.model import NOT_TOLD, Action
from tests.analysis.misses.build import World, parts

NOW = 100_000


def test_blocks_stored_in_the_same_step_for_a_request_ahead_were_found() -> None:
    """The step ends, and tells of both, after both began."""
    world = (
        World().ask("ABC", NOW, began=NOW, first=NOW + 30).ask("ABD", NOW + 1, began=NOW + 2, first=NOW + 30)
    )
    world.store("ABC", NOW + 20).store("ABD", NOW + 20, begin=2)
    ladder = world.climb()
    assert parts(ladder, 0) == {"cold": 48}
    assert parts(ladder, 1) == {"actual": 32, "cold": 16}


def test_what_was_stored_for_the_one_behind_was_not_found_by_the_one_ahead() -> None:
    world = World().ask("AB", NOW, first=NOW + 30).ask("ABC", NOW + 1, first=NOW + 60)
    world.store("AB", NOW + 20).store("ABC", NOW + 50, begin=2)
    ladder = world.climb()
    assert parts(ladder, 0) == {"cold": 32}
    assert parts(ladder, 1) == {"actual": 32, "cold": 16}


def test_the_deepest_block_tells_whose_a_run_is() -> None:
    """AB is in both prompts, C in the second one's alone, and all three were stored together."""
    world = World().ask("AB", NOW, began=NOW + 30, first=NOW + 60, more=1).ask("ABC", NOW + 1, first=NOW + 40)
    world.store("ABC", NOW + 20)
    ladder = world.climb()
    assert parts(ladder, 1) == {"not_loaded": 32, "cold": 16}
    assert parts(ladder, 0) == {"actual": 32, "cold": 1}


def test_stores_long_after_its_first_token_are_not_its_own() -> None:
    world = World().served("ABC", 0).remove("ABC", 60_000).store("X", 60_000)
    world.served("ABD", NOW)
    assert parts(world.climb(), 0) == {"cold": 48}
    assert parts(world.climb()) == {"capacity": 32, "cold": 16}


def test_blocks_told_of_again_were_not_stored_again() -> None:
    """A server that reports in full sends what it reused as if it were stored."""
    world = World().served("AB", 0).ask("ABC", NOW).store("ABC", NOW + 10)
    assert parts(world.climb()) == {"actual": 32, "cold": 16}


def test_what_a_request_had_found_is_not_taken_by_room_made_for_others_in_its_step() -> None:
    world = World().served("ABC", 0).ask("ABC", NOW, more=4, first=NOW + 20).ask("XYZ", NOW, first=NOW + 20)
    world.remove("ABC", NOW + 10).store("XYZ", NOW + 10)
    assert parts(world.climb(), 1) == {"actual": 48, "cold": 4}


def test_a_block_that_went_before_the_first_one_stored_was_not_found() -> None:
    """B went while the request waited, and was stored for it again in the step that made room by removing others."""
    world = World().served("ABC", 0).served("XY", 10).ask("ABCD", NOW, began=NOW, first=NOW + 60)
    world.store("Q", NOW + 20).remove("ABC", NOW + 20, begin=1)
    world.remove("XY", NOW + 50).store("ABCD", NOW + 50, begin=1)
    assert parts(world.climb()) == {"actual": 16, "capacity": 32, "cold": 16}


@pytest.mark.parametrize("servers", [{"a": 1}, {"a": 1, "b": 1}], ids=["alone", "beside another"])
def test_a_block_that_was_stored_for_it_was_not_there_even_if_it_goes_in_the_same_step(
    servers: dict[str, int],
) -> None:
    world = World(servers).served("ABC", 0).ask("ABCD", NOW, first=NOW + 60)
    world.remove("ABC", NOW + 50, begin=1).store("ABCD", NOW + 50, begin=1)
    assert parts(world.climb()) == {"actual": 16, "capacity": 32, "cold": 16}


def test_a_figure_that_fits_a_moment_nearby_moves_the_lookup_there() -> None:
    gone = World().served("AB", 0).ask("AB", NOW, more=4, first=NOW + 300, cached=16)
    gone.store("X", NOW + 100).remove("AB", NOW + 100, begin=1)
    assert parts(gone.climb()) == {"actual": 16, "capacity": 16, "cold": 4}
    come = World().served("A", 0).ask("ABC", NOW, first=NOW + 300, cached=32).store("ABC", NOW + 500, begin=1)
    assert parts(come.climb()) == {"actual": 32, "cold": 16}
    come.rows[-2:] = []
    come.store("ABC", NOW + 250, begin=1)
    come.ask("ABC", NOW - 1, first=NOW + 260)  # it was stored for that one
    assert parts(come.climb()) == {"actual": 32, "unaligned": 16}


def test_a_figure_that_fits_no_moment_is_a_load_that_failed() -> None:
    world = World().served("AB", 0).ask("AB", NOW, more=4, first=NOW + 300, cached=0)
    world.store("X", NOW + 100).remove("AB", NOW + 100, begin=1)
    assert parts(world.climb()) == {"not_loaded": 32, "cold": 4}


def test_without_any_times_of_the_server_the_arrival_and_its_own_stores_do() -> None:
    world = World().served("AB", 0, first=NOT_TOLD)
    world.ask("ABC", NOW, first=NOT_TOLD).store("ABC", NOW + 5_000, begin=2)
    ladder = world.climb()
    assert parts(ladder, 0) == {"cold": 32}
    assert parts(ladder, 1) == {"actual": 32, "cold": 16}


def test_a_clear_is_no_step_of_the_server() -> None:
    """The request found everything and stored nothing; what was cleared after its answer it had found."""
    world = World().served("AB", 0).ask("AB", NOW, began=NOW + 1, first=NOW + 2, more=1)
    world.mark(Action.CLEARED, NOW + 5)
    assert parts(world.climb()) == {"actual": 32, "cold": 1}


def test_what_was_removed_and_never_told_to_be_stored_is_not_isolated() -> None:
    world = World().sent("AB", 0).ask("AB", 101).remove("AB", 102).store("AB", 102).store("AB", 104, salt=1)
    assert "isolated" not in parts(world.climb())


def test_where_no_first_token_is_told_a_block_lost_while_queued_and_stored_again_is_its_own() -> None:
    world = World().served("AB", 0).ask("AB", NOW, first=NOT_TOLD, more=5).store("Q", NOW + 500)
    world.remove("AB", NOW + 500).store("AB", NOW + 600)
    assert parts(world.climb()) == {"capacity": 32, "cold": 5}


def test_a_block_stored_again_is_given_to_a_request_of_unknown_rank() -> None:
    world = World({"a": 2}).served("AB", 0, rank=1, first=15).served("AB", 20, first=31)
    world.ask("AB", 90, rank=None, first=110, more=5)
    world.remove("AB", 60, rank=1).store("Q", 60, rank=1).store("AB", 105, rank=1)
    assert parts(world.climb()) == {"elsewhere": 32, "cold": 5}
