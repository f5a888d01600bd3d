"""What could have been served, from ladders given by hand; the ladder itself is tested elsewhere."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.misses.across import hits_across, served_across
from analysis.misses.ceilings import ceilings, too_long_units
from analysis.misses.model import NOT_TOLD, Chains, Ladder, Sent
from analysis.misses.report_model import CeilingLine
from analysis.misses.sent_before import sent_before
from cachemodel.alignment import Alignment
from cachemodel.alignment_fit import Fit
from tests.field_reports.caches import Cache, Fleet, Tokens

PLAIN = Alignment(16)


def ladder(
    served: Sequence[Sequence[int]],
    unknown: Sequence[Sequence[int]] | None = None,
    laws: Mapping[str, Alignment] | None = None,
) -> Ladder:
    """Rows are what each of the eight caches serves."""
    n = len(served)
    return Ladder(
        served=np.array(served, dtype=np.int64).reshape(n, 8),
        unknown=np.zeros((n, 8), np.int64) if unknown is None else np.array(unknown, dtype=np.int64),
        evicted=np.zeros((n, 4), np.int64),
        shared=np.zeros(n, np.int64),
        derived=np.zeros(n, dtype=bool),
        alignments=dict(laws or {}),
    )


def two_replicas() -> tuple[Fleet, list[int]]:
    """A prompt of 100 tokens goes to a, twice to b, and to c, which tells no events."""
    fleet = Fleet({name: Cache(PLAIN) for name in "abc"}, told="ab")
    prompt = Tokens(1)(100)
    for at, server in enumerate("abbc"):
        fleet.ask(server, prompt, at)
    return fleet, prompt


def test_the_steps_from_achieved_to_attainable() -> None:
    fleet, _ = two_replicas()
    climbed = ladder(
        [
            [0, 0, 0, 0, 0, 0, 0, 100],
            [0, 0, 0, 96, 96, 100, 100, 100],
            [64, 96, 96, 96, 96, 100, 100, 100],  # its last blocks were not loaded
            [0, 0, 0, 96, 96, 100, 100, 100],
        ]
    )
    laws = {"b": Fit(PLAIN, (), True, pairs=40, hits=30, misfits=3, above=0, sentence="")}
    lines = ceilings(fleet.chains(), fleet.events(), fleet.blocks_sent(), climbed, laws)
    assert lines == [
        CeilingLine("a", 16, 0, 0, prompt=100, achieved=0, attainable=0, reachable=0, routing_loss=0),
        CeilingLine("b", 16, 0, 37, prompt=200, achieved=64, attainable=192, reachable=192, routing_loss=96),
        CeilingLine("c", 16, 0, 0, prompt=100, achieved=0, attainable=96, reachable=None, routing_loss=None),
    ]


def test_its_law_bounds_every_step() -> None:
    fleet, _ = two_replicas()
    climbed = ladder([[0, 0, 0, 96, 96, 100, 100, 100]] * 4, laws={"b": Alignment(32, 1)})
    b = ceilings(fleet.chains(), fleet.events(), fleet.blocks_sent(), climbed, {})[1]
    assert (b.unit, b.dropped_units) == (32, 1)
    assert (b.reachable, b.attainable) == (128, 128)  # of each prompt 96 in units of 32, less one


def test_what_is_not_certain_is_not_counted_as_reachable() -> None:
    fleet, _ = two_replicas()
    served = [[0, 0, 0, 96, 96, 100, 100, 100]] * 4
    unknown = [[0, 0, 0, 48, 0, 0, 0, 0]] * 4
    b = ceilings(fleet.chains(), fleet.events(), fleet.blocks_sent(), ladder(served, unknown), {})[1]
    assert (b.reachable, b.routing_loss) == (96, 96)
    assert b.attainable == 192


def test_only_requests_that_were_asked_for_and_are_known_count() -> None:
    fleet, _ = two_replicas()
    chains = fleet.chains()
    climbed = ladder([[0, 0, 0, 96, 96, 100, 100, 100]] * 4)
    asked = np.array([True, True, False, True])
    lines = ceilings(chains, fleet.events(), fleet.blocks_sent(), climbed, {}, asked)
    assert [line.prompt for line in lines] == [100, 100, 100]
    nobody = replace(chains, known=np.zeros(4, dtype=bool))
    assert ceilings(nobody, fleet.events(), fleet.blocks_sent(), climbed, {}) == []


def test_another_salt_is_not_attainable() -> None:
    fleet = Fleet({"a": Cache(PLAIN)})
    prompt = Tokens(2)(160)
    for at, key in enumerate(["one", "two", "two"]):
        fleet.ask("a", prompt, at, key)
    assert sent_before(fleet.chains(), fleet.blocks_sent()).tolist() == [0, 0, 160]
    assert sent_before(fleet.chains(), fleet.blocks_sent(), any_isolation=True).tolist() == [0, 160, 160]


@given(st.data())
def test_what_was_sent_before_is_what_a_slow_search_finds(data: st.DataObject) -> None:
    fleet = Fleet({"a": Cache(PLAIN, block=2), "b": Cache(PLAIN, block=2)})
    prompts = st.lists(st.integers(0, 1), min_size=1, max_size=9)
    rows = data.draw(
        st.lists(st.tuples(prompts, st.sampled_from("ab"), st.sampled_from(["", "x", "y"])), max_size=8)
    )
    for at, (prompt, server, key) in enumerate(rows):
        fleet.ask(server, prompt, at, key)
    expected = []
    for number, (prompt, _, key) in enumerate(rows):
        before = [_common(prompt, other) for other, _, _ in rows[:number]]
        own = [_common(prompt, other) // 2 for other, _, others in rows[:number] if others == key]
        run = max(own, default=0)
        split = max(before, default=0)
        expected.append(run * 2 + (split % 2 if run == split // 2 else 0))
    assert sent_before(fleet.chains(), fleet.blocks_sent()).tolist() == expected


@given(st.data())
def test_no_step_is_below_the_one_before(data: st.DataObject) -> None:
    fleet, _ = two_replicas()
    rows = st.lists(st.integers(0, 100), min_size=7, max_size=7).map(lambda row: [*sorted(row), 100])
    served = data.draw(st.lists(rows, min_size=4, max_size=4))
    law = Alignment(data.draw(st.integers(1, 40)), data.draw(st.integers(0, 2)))
    climbed = ladder(served, laws=dict.fromkeys("abc", law))
    for line in ceilings(fleet.chains(), fleet.events(), fleet.blocks_sent(), climbed, {}):
        steps = [line.achieved, *([] if line.reachable is None else [line.reachable]), line.attainable]
        assert steps == sorted(steps)
        assert line.routing_loss is None or 0 <= line.routing_loss <= steps[1] - steps[0]


def test_units_longer_than_prompts_are_said() -> None:
    fleet = Fleet({"hybrid": Cache(Alignment(4096)), "plain": Cache(PLAIN)})
    tokens = Tokens(3)
    for at, length in enumerate([561, 700, 9000]):
        fleet.ask("hybrid", tokens(length), at)
        fleet.ask("plain", tokens(length), at)
    laws = {"hybrid": Alignment(4096, 1), "plain": PLAIN}
    (said,) = too_long_units(fleet.chains(), ladder([[0] * 8] * 6, laws=laws))
    assert said.startswith(
        "hybrid: 2 of 3 prompts can never hit: that takes 8,193 tokens or more, and the median has 700."
    )


@pytest.mark.parametrize("keyed", [True, False])
def test_hits_under_another_adapter_are_said(keyed: bool) -> None:
    fleet = Fleet({"a": Cache(PLAIN, keyed=str if keyed else lambda _: "")})
    prompt = Tokens(4)(170)
    hits = [fleet.ask("a", prompt, at, key) for at, key in enumerate(["one", "one", "two", "three", "two"])]
    climbed = ladder([[hit, *[170] * 7] for hit in hits])
    chains, sent = fleet.chains(), fleet.blocks_sent()
    assert served_across(chains, sent, climbed).tolist() == ([0] * 5 if keyed else [0, 0, 160, 160, 0])
    said = hits_across(chains, sent, climbed)
    assert said == [] if keyed else "2 requests were served 320 tokens" in said[0]
    untold = replace(climbed, derived=np.ones(5, dtype=bool))
    assert hits_across(chains, sent, untold) == []


def test_hits_on_answers_are_not_taken_for_hits_of_others() -> None:
    """The turn after an answer hits blocks of that answer, which nobody ever sent."""
    fleet = Fleet({"a": Cache(PLAIN)})
    tokens = Tokens(5)
    turn, answer = tokens(160), tokens(64)
    fleet.ask("a", turn, 0, "one")
    fleet.ask("a", turn + answer + tokens(32), 1, "one", cached=224)
    climbed = ladder([[0] + [160] * 7, [224] + [256] * 7])
    assert served_across(fleet.chains(), fleet.blocks_sent(), climbed).tolist() == [0, 0]


def test_nothing_told_is_nothing_said() -> None:
    empty = Fleet({"a": Cache(PLAIN)})
    chains: Chains = empty.chains()
    sent: Sent = empty.blocks_sent()
    assert ceilings(chains, empty.events(), sent, ladder([]), {}) == []
    assert too_long_units(chains, ladder([])) == []
    assert hits_across(chains, sent, ladder([])) == []
    assert empty.events().joined.tolist() != [NOT_TOLD]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))
