"""Slots of prompts that are tokens alone: at the token where they begin, by how their values behave."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.clusters import clusters
from analysis.advisor.learning.learn import learn
from analysis.advisor.learning.model import Cluster, Slot
from analysis.advisor.learning.token_align import align, gaps, same_tokens
from analysis.advisor.learning.token_slots import MIN_BEHIND, token_slots
from cachemodel.prompts.model import Kind, Part, Prompt

IDS = range(100, 30_000)
Make = Callable[[random.Random, int], list[int]]


def prompt(index: int, ids: Sequence[int]) -> Prompt:
    part = Part("prompt", "prompt", Kind.TOKENS, " ".join(map(str, ids)), -1, tuple(ids))
    return Prompt(request_id=f"r{index}", parts=(part,), time=1e9 + index, body={"prompt": list(ids)})


def some(rng: random.Random, count: int) -> list[int]:
    return rng.choices(IDS, k=count)


def log(make: Make, n: int = 40, seed: int = 1) -> tuple[list[Prompt], int]:
    """Prompts of one template: 20 tokens, what `make` says, 300 tokens, a question. And where the value stands."""
    rng = random.Random(seed)
    head, rest = some(rng, 20), some(rng, 300)
    made = [[*head, *make(rng, at), *rest, *some(rng, rng.randint(5, 60))] for at in range(n)]
    return [prompt(at, ids) for at, ids in enumerate(made)], len(head)


def found(prompts: Sequence[Prompt]) -> list[Slot]:
    return [slot for slot in learn(prompts) if slot.path == "prompt"]


def unique(rng: random.Random, _: int) -> list[int]:
    return some(rng, rng.randint(3, 9))


def of_three(rng: random.Random, at: int) -> list[int]:
    return [[50, 51, 52, 53], [60, 61], [70]][at % 3]


RUNS = [some(random.Random(n), 20) for n in range(5)]


def shuffled(rng: random.Random, _: int) -> list[int]:
    return [token for run in rng.sample(RUNS, k=len(RUNS)) for token in run]


def rare(rng: random.Random, at: int) -> list[int]:
    return some(rng, 8) if at % 10 == 3 else []


@pytest.mark.parametrize(
    ("make", "cause", "requests", "words"),
    [
        (unique, Cause.UNKNOWN, range(40, 41), "nobody sends one twice"),
        (of_three, Cause.VARIANT, range(26, 28), "different values"),
        (shuffled, Cause.ITEM_ORDER, range(30, 41), "the same 100 tokens in"),
        (rare, Cause.UNKNOWN, range(4, 5), "4 different values in 4"),
    ],
)
def test_a_planted_value_is_found_at_its_token(make: Make, cause: Cause, requests: range, words: str) -> None:
    prompts, token = log(make)
    (slot,) = found(prompts)
    assert (slot.cause, slot.of) == (cause, 40)
    assert slot.token is not None
    assert abs(slot.token - token) <= 1  # a run may begin as the one that most begin with
    assert slot.requests in requests
    assert words in slot.detail
    # What stands behind is the rest of the template, told in characters of the prompt's text.
    part = next(one for one in prompts if one.request_id == slot.example).parts[0]
    assert 280 <= slot.behind * len(part.tokens) / len(part.text) <= 420
    assert part.text[: slot.offset].split() == list(map(str, part.tokens[: slot.token]))


@pytest.mark.parametrize("n", [1, 2, 40])
def test_questions_that_differ_at_the_end_are_no_slot(n: int) -> None:
    prompts, _ = log(lambda rng, at: [], n)
    assert found(prompts) == []


def test_prompts_that_have_nothing_in_common_say_nothing() -> None:
    rng = random.Random(3)
    prompts = [prompt(at, some(rng, 400)) for at in range(30)]
    assert found(prompts) == []
    assert len(clusters(prompts)) == 30


def test_two_templates_are_told_apart_and_a_value_in_front_tears_none() -> None:
    ours, _ = log(unique, 20, seed=5)
    theirs, _ = log(unique, 20, seed=6)
    both = [one for pair in zip(ours, theirs, strict=True) for one in pair]
    assert [set(one.requests) for one in clusters(both)] == [set(range(0, 40, 2)), set(range(1, 40, 2))]


def test_several_senders_that_fill_one_place_are_several_slots() -> None:
    def make(rng: random.Random, at: int) -> list[int]:
        return [[], [40, *some(rng, 6)], [41, *some(rng, 4)], [], []][at % 5]

    prompts, token = log(make, 60)
    slots = found(prompts)
    assert [(slot.cause, slot.token, slot.requests) for slot in slots] == [(Cause.UNKNOWN, token, 12)] * 2
    assert {slot.seen[0].value.split()[1] for slot in slots} <= {"...", "40", "41"}


def test_two_that_change_places_are_one_order_and_not_two_variants() -> None:
    def make(rng: random.Random, at: int) -> list[int]:
        first, *between, last = RUNS
        runs = [last, *between, first] if at % 4 == 1 else RUNS
        return [token for run in runs for token in run]

    prompts, token = log(make)
    (slot,) = found(prompts)
    assert (slot.cause, slot.token, slot.requests) == (Cause.ITEM_ORDER, token, 10)


def in_one(prompts: Sequence[Prompt]) -> list[Slot]:
    cluster = Cluster(0, tuple(range(len(prompts))))
    return list(token_slots(list(enumerate(prompts)), cluster))


def test_what_has_less_than_a_block_behind_it_costs_nothing() -> None:
    rng = random.Random(1)
    head, rest = some(rng, 300), some(rng, MIN_BEHIND)
    enough = [prompt(at, [*head, *some(rng, 4), *rest]) for at in range(20)]
    assert [slot.token for slot in in_one(enough)] == [300]
    too_few = [prompt(at, [*head, *some(rng, 4), *rest[1:]]) for at in range(20)]
    assert in_one(too_few) == []


def test_a_stranger_in_a_cluster_adds_nothing_to_a_slot() -> None:
    prompts, token = log(unique, 20)
    rng = random.Random(9)
    (slot,) = in_one([*prompts, *(prompt(at, some(rng, 300)) for at in range(20, 30))])
    assert (slot.token, slot.requests) == (token, 20)
    assert {one.request for one in slot.seen} == set(range(20))


def test_a_very_long_prompt_is_looked_at_as_far_as_that_is_affordable() -> None:
    rng = random.Random(1)
    rest = some(rng, 60_000)
    prompts = [prompt(at, [*some(rng, 5), *rest]) for at in range(4)]
    (slot,) = found(prompts)
    assert (slot.token, slot.cause) == (0, Cause.UNKNOWN)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=60), st.lists(st.integers(0, 5), max_size=60))
def test_what_is_no_difference_is_the_same(reference: list[int], ids: list[int]) -> None:
    a, b = tuple(reference), tuple(ids)
    told = align(a, b)
    at = begin = 0
    for span in (*told.spans, None):
        first, second = (span.first, span.begin) if span else (len(a), len(b))
        assert a[at:first] == b[begin:second]
        at, begin = (span.last, span.end) if span else (at, begin)
    assert told.same_from(0) == len(a) - sum(span.last - span.first for span in told.spans)
    rebuilt: list[int] = []
    at = 0
    for first, last in gaps([told]):
        rebuilt += [*a[at:first], *told.value(first, last)]
        at = last
    assert (*rebuilt, *a[at:]) == b


@given(st.permutations(range(40)))
def test_another_order_is_the_same_tokens(order: list[int]) -> None:
    assert same_tokens(tuple(range(40)), tuple(order))
    assert not same_tokens(tuple(range(40)), tuple(range(5, 45)))
