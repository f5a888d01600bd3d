"""Every rung alone and in pairs, planted by hand; the answer is a matter of counting blocks of 16 tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from analysis.misses.model import NOT_TOLD, Action
from cachemodel.alignment import Alignment
from tests.analysis.misses.build import World, parts, piece

NOW = 100_000


def test_what_was_found_is_a_hit_and_the_rest_is_cold() -> None:
    assert parts(World().served("ABC", 0).climb()) == {"cold": 48}
    found = World().served("ABC", 0).served("ABD", NOW, found=2)
    assert parts(found.climb()) == {"actual": 32, "cold": 16}


def test_of_a_prompt_that_is_held_whole_the_last_block_is_unaligned() -> None:
    world = World().served("ABC", 0).ask("ABC", NOW)
    assert parts(world.climb()) == {"actual": 32, "unaligned": 16}


def test_part_of_a_block_that_an_earlier_prompt_shares_is_unaligned() -> None:
    world = World().served("ABC", 0).served("ABD", NOW, found=2, split=(2, 9), more=3)
    assert parts(world.climb()) == {"actual": 32, "unaligned": 9, "cold": 10}


def test_shared_tokens_of_a_prompt_of_another_server_or_salt_were_not_held_here() -> None:
    servers = World({"a": 1, "b": 1}).served("AB", 0).served("ABC", 100, "b")
    salts = World().served("AB", 0).served("ABC", 100, salt=5)
    for world in (servers, salts):
        world.served("ABD", NOW, found=2, split=(2, 9), more=3)
        assert parts(world.climb()) == {"actual": 32, "unknown": 9, "cold": 10}


def test_what_speculative_decoding_drops_is_unaligned() -> None:
    world = World(alignments={"a": Alignment(16, 1)}).served("ABCD", 0).ask("ABCD", NOW, more=5)
    assert parts(world.climb()) == {"actual": 48, "unaligned": 16, "cold": 5}
    told = World(alignments={"a": Alignment(16, 1)}, joined={("a", 0): None})
    told.served("ABCD", 0).ask("ABCD", NOW, more=5, cached=48)
    assert parts(told.climb()) == {"actual": 48, "unaligned": 16, "cold": 5}


def test_units_of_several_blocks() -> None:
    world = World(alignments={"a": Alignment(64)}).served("ABCDEFG", 0).ask("ABCDEFG", NOW)
    assert parts(world.climb()) == {"actual": 64, "unaligned": 48}


def test_a_load_that_failed_was_not_loaded_but_for_what_is_lost_anyway() -> None:
    world = World().served("ABCD", 0).ask("ABCD", NOW, cached=0)
    assert parts(world.climb()) == {"unaligned": 16, "not_loaded": 48}
    world = World().served("ABCD", 0).ask("ABCD", NOW, cached=16, more=4)
    assert parts(world.climb()) == {"actual": 16, "not_loaded": 48, "cold": 4}


def test_an_option_that_keeps_the_cache_from_being_read_is_not_loaded() -> None:
    world = World().served("ABCD", 0).ask("ABCD", NOW, reads_off=True, cached=0)
    assert parts(world.climb()) == {"not_loaded": 64}
    world = World().served("ABCD", 0).ask("ABCD", NOW, reads_off=True)
    assert parts(world.climb()) == {"not_loaded": 64}


def test_a_tier_of_the_host_is_of_the_same_holder() -> None:
    world = World().served("ABC", 0).remove("ABC", 50).store("ABC", 50, tier=1).ask("ABCX", NOW, cached=0)
    assert parts(world.climb()) == {"not_loaded": 48, "cold": 16}
    world.asked[-1].cached = 48
    assert parts(world.climb()) == {"actual": 48, "cold": 16}


def test_what_an_earlier_request_is_still_computing_is_not_loaded() -> None:
    """The first one's blocks were evicted long ago, the second computes them again when the third comes."""
    world = World().served("AB", 0).remove("AB", 5000).store("X", 5000)
    world.ask("AB", NOW, first=NOW + 500).ask("ABC", NOW + 100, first=NOW + 600)
    world.store("AB", NOW + 490).store("ABC", NOW + 590, begin=2)
    world.asked[-1].cached = 0
    assert parts(world.climb()) == {"not_loaded": 32, "cold": 16}


def test_what_was_never_stored_is_not_loaded() -> None:
    """Where the events are seen to speak of this prompt: they tell of its first block, if only much later."""
    world = World().ask("ABC", 0).ask("ABC", NOW, cached=0).store("A", NOW + 10)
    assert parts(world.climb()) == {"not_loaded": 48}
    elsewhere = World({"a": 1, "b": 1}).ask("ABC", 0, "b").ask("ABC", NOW, cached=0).store("A", NOW + 10, "b")
    assert parts(elsewhere.climb()) == {"elsewhere": 48}


def test_events_that_match_nothing_of_a_prompt_do_not_show_that_it_was_never_stored() -> None:
    """Another tokenizer, page size or key, an isolation that its chain does not know, stores without tokens."""
    nothing = World().ask("ABC", 0).store("XYZ", 10).ask("ABC", NOW, cached=0)
    assert parts(nothing.climb()) == {"unknown": 48}
    usage = World().ask("ABC", 0).store("XYZ", 10).ask("ABCD", NOW, cached=32)
    assert parts(usage.climb()) == {"actual": 32, "unknown": 16, "cold": 16}
    salted = (
        World().ask("ABC", 0).store("ABC", 10, salt=7).remove("ABC", 20, salt=7).ask("ABC", NOW, cached=0)
    )
    assert parts(salted.climb()) == {"unknown": 48}
    elsewhere = World({"a": 1, "b": 1}).ask("ABC", 0, "b").ask("ABC", NOW, cached=0)
    assert parts(elsewhere.climb()) == {"unknown": 48}


def test_a_store_of_an_unknown_block_may_have_been_the_one_that_seems_never_stored() -> None:
    world = World().served("A", 0).ask("ABC", 100).ask("ABC", NOW, cached=16)
    assert parts(world.climb()) == {"actual": 16, "not_loaded": 32}
    world.blind["a", 0] = 110
    assert parts(world.climb()) == {"actual": 16, "unknown": 32}
    world.blind["a", 0] = 100  # at the moment at which it was sent
    assert parts(world.climb()) == {"actual": 16, "unknown": 32}
    world.blind["a", 0] = 90
    assert parts(world.climb()) == {"actual": 16, "not_loaded": 32}


def test_what_another_replica_or_rank_held() -> None:
    world = World({"a": 1, "b": 1}).served("ABC", 0, "b").ask("ABCD", NOW, "a")
    assert parts(world.climb()) == {"elsewhere": 48, "cold": 16}
    ranks = World({"a": 2}).served("ABC", 0, rank=1).ask("ABCD", NOW, rank=0)
    assert parts(ranks.climb()) == {"elsewhere": 48, "cold": 16}


def test_what_another_replica_held_before_or_held_only_later_is_not_elsewhere() -> None:
    before = World({"a": 1, "b": 1}).served("AB", 0, "b").store("X", 5000, "b").remove("AB", 5000, "b")
    assert parts(before.ask("ABC", NOW).climb()) == {"capacity": 32, "cold": 16}
    later = World({"a": 1, "b": 1}).ask("AB", NOW, "a").served("AB", NOW + 1000, "b")
    assert parts(later.climb(), 0) == {"cold": 32}


def test_what_is_held_under_another_salt() -> None:
    world = World().served("ABC", 0, salt=1).served("ABCD", NOW, salt=2)
    assert parts(world.climb()) == {"isolated": 48, "cold": 16}
    there = World({"a": 1, "b": 1}).served("ABC", 0, "b", salt=1).served("ABCD", NOW, salt=2)
    assert parts(there.climb()) == {"isolated": 48, "cold": 16}


@dataclass(frozen=True)
class Loss:
    name: str
    lose: Callable[[World], World]


LOSSES = (
    Loss("capacity", lambda world: world.store("XYZ", 50_000).remove("AB", 50_000)),
    Loss("expiry", lambda world: world.remove("AB", 50_000)),
    Loss("clear", lambda world: world.mark(Action.CLEARED, 50_000)),
    Loss("restart", lambda world: world.mark(Action.RESTART, 50_000)),
)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_each_way_to_lose_what_was_held(loss: Loss) -> None:
    world = loss.lose(World().served("AB", 0)).served("ABC", NOW)
    assert parts(world.climb()) == {loss.name: 32, "cold": 16}


@pytest.mark.parametrize(
    ("near", "cause"), [(-1100, "expiry"), (-900, "capacity"), (900, "capacity"), (1100, "expiry")]
)
def test_a_removal_made_room_for_what_was_stored_within_a_second_of_it(near: int, cause: str) -> None:
    world = World().served("AB", 0).remove("AB", 50_000).store("XYZ", 50_000 + near).served("ABC", NOW)
    assert parts(world.climb()) == {cause: 32, "cold": 16}


def test_a_removal_alone_beside_a_gap_may_have_made_room_for_what_the_gap_hides() -> None:
    for gap, cause in ((49_500, "unknown"), (47_000, "expiry")):
        world = World().served("ABX", 0).store("Q", 46_000).mark(Action.GAP, gap).remove("AB", 50_000)
        assert parts(world.served("ABC", NOW).climb()) == {cause: 32, "cold": 16}


@pytest.mark.parametrize(("first", "last"), [*itertools.permutations(LOSSES, 2)], ids=lambda loss: loss.name)
def test_the_last_loss_counts(first: Loss, last: Loss) -> None:
    world = first.lose(World().served("AB", 0))
    world.served("AB", 60_000)
    again = last.lose(World())
    world.rows += [(at + 20_000, *rest) for at, *rest in again.rows]  # type: ignore[misc]
    assert parts(world.served("ABC", NOW).climb()) == {last.name: 32, "cold": 16}


def test_a_restart_takes_the_host_too_but_a_clear_may_leave_it() -> None:
    def host(action: Action) -> World:
        world = World().served("AB", 0).store("AB", 20, tier=1).store("X", 30).remove("AB", 30)
        return world.mark(action, 50_000).ask("ABC", NOW, cached=0)

    assert parts(host(Action.RESTART).climb()) == {"restart": 32, "cold": 16}
    assert parts(host(Action.CLEARED).climb()) == {"unknown": 32, "cold": 16}


def test_pieces_sent_before_in_another_order_are_changed() -> None:
    world = World().ask("X", 0, pieces=[("clock", 4), ("p", 10), ("q", 10), ("r", 8)])
    world.ask("Y", NOW, more=20, pieces=[("new", 6), ("q", 10), ("p", 10), ("other", 4), ("r", 6)])
    assert parts(world.climb()) == {"changed": 20, "cold": 16}


def test_less_than_sixteen_tokens_are_shared_by_chance() -> None:
    world = World().ask("X", 0, pieces=[("p", 15)]).ask("Y", NOW, pieces=[("p", 15)])
    assert parts(world.climb()) == {"cold": 16}


def test_pieces_count_past_what_a_rung_below_serves() -> None:
    world = World().served("AB", 0, pieces=[("p", 16), ("q", 16)])
    world.served("ABC", NOW, found=2, pieces_from=16, pieces=[("q", 24), ("new", 8)])
    assert parts(world.climb()) == {"actual": 32, "changed": 8, "cold": 8}
    world.asked[-1].pieces = [("q", 16), ("new", 16)]
    assert parts(world.climb()) == {"actual": 32, "cold": 16}
    world.sent_pieces = [(piece("new"), 0)]
    assert parts(world.climb()) == {"actual": 32, "changed": 16}


def test_history_before_the_requests_counts() -> None:
    world = World(joined={("a", 0): 10}).sent("AB", 0).ask("ABC", NOW)
    assert parts(world.climb()) == {"unknown": 32, "cold": 16}
    world.mark(Action.RESTART, 20)
    assert parts(world.climb()) == {"unknown": 32, "cold": 16}  # it may have been evicted before
    known = World().sent("AB", 5).served("ABC", NOW)
    assert parts(known.climb()) == {"not_loaded": 32, "cold": 16}


def test_all_of_a_request_whose_chain_is_not_known_is_unknown() -> None:
    world = World().served("AB", 0).ask("AB", NOW, known=False, cached=16)
    assert parts(world.climb()) == {"actual": 16, "unknown": 16}
    world.asked[-1].cached = NOT_TOLD
    assert parts(world.climb()) == {"unknown": 32}


def test_gaps_make_unknown_and_never_a_cause() -> None:
    kept = World().served("ABX", 0).mark(Action.GAP, 50_000).served("ABC", NOW, found=2)
    assert parts(kept.climb()) == {"unknown": 32, "cold": 16}
    told = World().served("ABX", 0).mark(Action.GAP, 50_000).served("ABC", NOW, found=2, cached=32)
    assert parts(told.climb()) == {"actual": 32, "cold": 16}
    again = World().served("ABX", 0).mark(Action.GAP, 50_000).store("AB", 60_000).ask("ABC", NOW)
    assert parts(again.climb()) == {"actual": 32, "cold": 16}
    after = World().mark(Action.GAP, 0).served("AB", 10).store("X", 50).remove("AB", 50).ask("ABC", NOW)
    assert parts(after.climb()) == {"capacity": 32, "cold": 16}


def test_a_server_without_events_can_be_told_from_nothing_but_its_usage() -> None:
    world = World({"a": 1, "b": 1}, joined={("a", 0): None})
    world.ask("ABC", 0).ask("ABCD", NOW, cached=16)
    assert parts(world.climb()) == {"actual": 16, "unknown": 32, "cold": 16}
    assert parts(World(joined={("a", 0): None}).ask("ABC", 0).ask("ABC", NOW, cached=32).climb()) == {
        "actual": 32,
        "unknown": 16,  # held and never the last token, or gone
    }
    other = World({"a": 1, "b": 1}, joined={("b", 0): None}).ask("AB", 0, "b").ask("ABC", NOW, "a")
    assert parts(other.climb()) == {"unknown": 32, "cold": 16}


def test_a_rank_that_is_not_told_is_known_by_what_was_stored_there() -> None:
    world = World({"a": 2}).served("AB", 0, rank=1)
    world.ask("ABC", NOW, rank=None).store("ABC", NOW + 10, begin=2, rank=1)
    assert parts(world.climb()) == {"actual": 32, "cold": 16}
    unseen = World({"a": 2}).served("AB", 0, rank=1).ask("ABC", NOW, rank=None)
    assert parts(unseen.climb()) == {"unknown": 32, "cold": 16}
    neither = World({"a": 2}).ask("AB", 0, rank=1).ask("ABC", NOW, rank=None)
    neither.store("A", 2 * NOW)
    assert parts(neither.climb()) == {"not_loaded": 32, "cold": 16}


def test_blocks_that_stay_behind_one_that_went_go_with_it() -> None:
    world = World().served("ABCD", 0).store("X", 50).remove("AB", 50, begin=1).served("ABCDE", NOW, found=1)
    world.rows = [row for row in world.rows if row[0] < NOW]
    assert parts(world.climb()) == {"actual": 16, "capacity": 48, "cold": 16}


PAIRS: list[tuple[str, Callable[[World], World], Callable[[World], World]]] = [
    ("not_loaded", lambda world: world.served("AB", 0), lambda world: world),
    ("elsewhere", lambda world: world.served("AB", 0, "b"), lambda world: world.served("ABCD", 0, "b")),
    (
        "isolated",
        lambda world: world.served("AB", 0, salt=7),
        lambda world: world.served("ABCD", 0, salt=7),
    ),
    (
        "capacity",
        lambda world: world.served("AB", 0).store("X", 50).remove("AB", 50),
        lambda world: world.served("ABCD", 1, "c").store("X", 60, "c").remove("ABCD", 60, "c"),
    ),
]


@pytest.mark.parametrize(("near", "far"), [*itertools.combinations(range(len(PAIRS)), 2)])
def test_pairs(near: int, far: int) -> None:
    """The first two blocks were lost one way, the next two another way that only a later rung makes good."""
    world = World({"a": 1, "b": 1, "c": 1})
    PAIRS[far][2](PAIRS[near][1](world)).ask("ABCDE", NOW, cached=0)
    told = parts(world.climb())
    assert told == {PAIRS[near][0]: 32, PAIRS[far][0]: 32, "cold": 16}
