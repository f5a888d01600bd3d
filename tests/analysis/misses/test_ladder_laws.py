"""Laws of the ladder on random worlds, and its agreement with the same rules in plain Python."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.misses.ladder import climb
from analysis.misses.model import NOT_TOLD, Action, Ladder
from tests.analysis.misses.build import World
from tests.analysis.misses.served_worlds import served_worlds
from tests.analysis.misses.slow_ladder import AmbiguousError, SlowLadder
from tests.analysis.misses.worlds import worlds

_ELSEWHERE, _EVICTED = 3, 5


@settings(max_examples=150)
@given(worlds())
def test_it_is_what_plain_python_says(world: World) -> None:
    ladder, chains = world.climb(), world.chains()
    slow = SlowLadder(chains, world.events(), world.blocks_sent(), world.pieces_sent(), world.alignments)
    for i in range(chains.n):
        try:
            served, unknown, evicted = slow.climb(i)
        except AmbiguousError:
            continue
        assert ladder.served[i].tolist() == served
        assert ladder.unknown[i].tolist() == unknown
        assert ladder.evicted[i].tolist() == evicted


@settings(max_examples=60)
@given(worlds())
def test_monotone_and_its_causes_add_up(world: World) -> None:
    ladder, chains = world.climb(), world.chains()
    steps = np.diff(ladder.served, axis=1, prepend=0)
    assert (steps >= 0).all()
    assert (ladder.served[:, -1] == chains.prompt).all()
    assert (ladder.unknown >= 0).all()
    assert (ladder.unknown <= steps).all()
    assert (ladder.evicted >= 0).all()
    assert (ladder.evicted.sum(axis=1) == steps[:, _EVICTED] - ladder.unknown[:, _EVICTED]).all()
    told = chains.cached >= 0
    assert (ladder.derived == ~told).all()
    assert (ladder.served[told, 0] == np.minimum(chains.cached, chains.prompt)[told]).all()


@settings(max_examples=60)
@given(served_worlds(usage=True))
def test_where_all_events_are_known_nothing_of_the_device_is_unknown(
    served: tuple[World, list[Counter[str]]],
) -> None:
    world, _ = served
    late = max(one.at for one in world.asked) + 1_000_000
    for word, salt in itertools.product("AQ", (0, 1)):
        world.store(word, late, salt=salt)  # so that its events are seen to speak of these blocks
    assert not world.climb().unknown.any()


@settings(max_examples=60)
@given(worlds(), st.randoms(use_true_random=False))
def test_other_hashes_change_nothing(world: World, random: object) -> None:
    chains, events, sent, pieces = world.chains(), world.events(), world.blocks_sent(), world.pieces_sent()
    rng = np.random.default_rng(random.getrandbits(64))  # type: ignore[attr-defined]
    old = np.unique(np.concatenate([chains.blocks, events.content, sent.hash]))
    new = np.unique(rng.integers(1, 1 << 63, 4 * len(old) + 4, dtype=np.uint64))
    new = rng.permutation(new)[: len(old)]
    new[old == 0] = 0

    def other(hashes: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return new[np.searchsorted(old, hashes)]

    order = np.argsort(other(sent.hash), kind="stable")
    relabelled = climb(
        replace(chains, blocks=other(chains.blocks)),
        replace(events, content=other(events.content)),
        replace(
            sent,
            hash=other(sent.hash)[order],
            first=sent.first[order],
            server=sent.server[order],
            isolation=sent.isolation[order],
        ),
        pieces,
        world.alignments,
    )
    _same(world.climb(), relabelled)


@settings(max_examples=60)
@given(worlds())
def test_requests_that_come_later_change_nothing_of_earlier_ones_but_whose_stores_are_whose(
    world: World,
) -> None:
    """What is stored for whom is the one thing that a later request can show: without any, all of it is left out."""
    world.rows = [row for row in world.rows if row[3] != Action.STORED]
    for one in world.asked:
        one.split = None  # whose those tokens were is told by the chains at hand
    whole = world.climb()
    asked = sorted(world.asked, key=lambda one: one.at)
    for n in range(1, len(asked)):
        world.asked = asked[:n]
        part = world.climb()
        assert (part.served == whole.served[:n]).all()
        assert (part.unknown == whole.unknown[:n]).all()


@settings(max_examples=60)
@given(worlds(usage=False))
def test_nobody_is_served_by_what_came_later(world: World) -> None:
    """The first prompt of its letters is cold but for what was stored by then."""
    chains = world.chains()
    ladder = world.climb()
    stored = min([row[0] for row in world.rows if row[3] == Action.STORED], default=1 << 40)
    first = world.asked and min(world.asked, key=lambda one: one.at)
    if first and stored > first.at + (60_300 if first.first == NOT_TOLD else 300) and not world.sent_rows:
        split = first.split[1] if first.split and first.split[0] == 0 else 0
        assert ladder.served[0, _EVICTED] == min(split, chains.prompt[0])


@settings(max_examples=60)
@given(worlds(), st.permutations(range(24)))
def test_rows_in_another_order_change_nothing_once_sorted(world: World, order: list[int]) -> None:
    before = world.climb()
    asked = world.asked
    world.asked = [asked[at] for at in order if at < len(asked)]
    _same(before, world.climb())


@settings(max_examples=60)
@given(worlds(gaps=False, usage=False, tiers=False))
def test_one_more_replica_never_takes_from_elsewhere(world: World) -> None:
    words = ("ABCD", "QRSTU")
    for word in words:
        world.sent(word, 0)  # or the new one makes known what was not
    before = world.climb()
    world.servers["z"] = 1
    for word in words:
        world.store(word, 50, "z")
    after = world.climb()
    assert (after.served[:, _ELSEWHERE] >= before.served[:, _ELSEWHERE]).all()
    assert (after.served[:, :_ELSEWHERE] == before.served[:, :_ELSEWHERE]).all()


def test_no_requests_and_no_events() -> None:
    empty = World().climb()
    assert empty.served.shape == (0, 8)
    assert empty.evicted.shape == (0, 4)
    alone = World().ask("", 0, more=5).climb()
    assert alone.served.tolist() == [[0, 0, 0, 0, 0, 0, 0, 5]]


def _same(one: Ladder, other: Ladder) -> None:
    assert (one.served == other.served).all()
    assert (one.unknown == other.unknown).all()
    assert (one.evicted == other.evicted).all()
