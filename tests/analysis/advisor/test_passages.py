"""Documents that come again: their order, what stands before them, and what stands beside each."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.learn import learn
from analysis.advisor.learning.model import Slot
from analysis.advisor.learning.remedy import rules_of
from analysis.advisor.learning.text.orders import Item, again
from analysis.advisor.rewriting.rules import apply
from cachemodel.prompts.model import Prompt
from tests.analysis.advisor import planted
from tests.analysis.advisor.prose import sentence

USER, SYSTEM = "messages[1].content", "messages[0].content"
Write = Callable[[random.Random, Sequence[tuple[str, str]], str], tuple[str, str]]
"""What stands in the system message, and what the user sends, of documents (name, text) and a question."""


def asked(write: Write, *, n: int = 150, topics: int = 8, anew: bool = False, seed: int = 0) -> list[Prompt]:
    """n questions on so many topics of four documents each; anew: documents of their own choice each."""
    chance = random.Random(seed)
    pages = [
        (f"KB-{1000 + at}", " ".join(sentence(chance) for _ in range(6))) for at in range(200 if anew else 40)
    ]
    known = [chance.sample(pages, 4) for _ in range(topics)]
    told = list[Prompt]()
    for index in range(n):
        found = chance.sample(pages, 4) if anew else chance.choice(known)
        system, user = write(chance, found, planted.question(chance))
        messages = [
            {"role": "system", "content": "\n".join(planted.RULES["en"] * 2) + system},
            {"role": "user", "content": user},
        ]
        time = planted.START + timedelta(seconds=index)
        told.append(planted.prompt(planted.Request(index, "", "", time, messages)))
    return told


def tagged(pages: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join(f'<doc id="{name}">\n{text}\n</doc>' for name, text in pages)


def as_found(chance: random.Random, pages: Sequence[tuple[str, str]], question: str) -> tuple[str, str]:
    """In one order."""
    return "", f"Context:\n{tagged(pages)}\n\nQuestion: {question}"


def shuffled(chance: random.Random, pages: Sequence[tuple[str, str]], question: str) -> tuple[str, str]:
    return as_found(chance, chance.sample(pages, len(pages)), question)


def question_first(chance: random.Random, pages: Sequence[tuple[str, str]], question: str) -> tuple[str, str]:
    return "", f"Question: {question}\n\nContext:\n{tagged(pages)}"


def scored(chance: random.Random, pages: Sequence[tuple[str, str]], question: str) -> tuple[str, str]:
    """A score beside each document that is another one for each question."""
    listed = (
        f"[{at}] {name} (score {chance.uniform(0.4, 1):.2f})\n{text}"
        for at, (name, text) in enumerate(pages, 1)
    )
    return "", "Context:\n" + "\n\n".join(listed) + f"\n\nQuestion: {question}"


def ranked(chance: random.Random, pages: Sequence[tuple[str, str]], question: str) -> tuple[str, str]:
    """Shuffled, with a rank and a score beside each that goes with its place."""
    listed = (
        f"[{at}] {name} (score {0.95 - at / 20:.2f})\n{text}"
        for at, (name, text) in enumerate(chance.sample(pages, len(pages)), 1)
    )
    return "", "Context:\n" + "\n\n".join(listed) + f"\n\nQuestion: {question}"


TEMPLATE = "\n".join(sentence(random.Random(at)) for at in range(60))


def in_system(chance: random.Random, pages: Sequence[tuple[str, str]], question: str) -> tuple[str, str]:
    return f"\n\nContext:\n{tagged(pages)}\n\nAnswer in the language of the question.\n{TEMPLATE}", question


FAULTS: dict[str, tuple[Write, Cause, str]] = {
    "order": (shuffled, Cause.ITEM_ORDER, USER),
    "question first": (question_first, Cause.SHARED_BEHIND, USER),
    "scores": (scored, Cause.MEASUREMENT, USER),
    "order with scores": (ranked, Cause.ITEM_ORDER, USER),
    "in the system message": (in_system, Cause.MEMORY, SYSTEM),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", FAULTS)
def test_one_fault_is_one_suggestion(name: str, seed: int) -> None:
    write, cause, path = FAULTS[name]
    told = learn(asked(write, topics=40 if path == SYSTEM else 8, seed=seed))
    assert [(one.cause, one.path) for one in told] == [(cause, path)]


def test_a_question_in_front_hides_the_order_and_both_are_told() -> None:
    def both(chance: random.Random, pages: Sequence[tuple[str, str]], question: str) -> tuple[str, str]:
        return question_first(chance, chance.sample(pages, len(pages)), question)

    first, second = learn(asked(both))
    assert (first.cause, second.cause) == (Cause.SHARED_BEHIND, Cause.ITEM_ORDER)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("write", [as_found, shuffled])
def test_nothing_is_said_of_what_costs_nothing(write: Write, anew: bool, seed: int) -> None:
    """Documents in one order; or such as hardly two questions have in common."""
    if write is shuffled and not anew:
        return
    assert learn(asked(write, anew=anew, seed=seed)) == []


def order_of(prompts: Sequence[Prompt]) -> Slot:
    (slot,) = learn(prompts)
    return slot


def test_its_rule_writes_each_topic_in_one_way() -> None:
    """The first document, too, which stands behind the line that introduces them all."""
    prompts = asked(shuffled)
    rules = rules_of(order_of(prompts))
    before, after = (
        {body["messages"][1]["content"].partition("Question:")[0] for body in bodies}
        for bodies in ([one.body or {} for one in prompts], [apply(rules, one.body or {}) for one in prompts])
    )
    assert len(before) > 50
    assert len(after) == 8
    assert {frozenset(one.split("\n\n")) for one in after} != before


def test_titles_that_go_with_their_place_have_no_rule() -> None:
    """To sort them would sort their numbers, too."""
    slot = order_of(asked(ranked))
    assert rules_of(slot) == ()
    assert "titles" in slot.detail


@given(st.lists(st.permutations(range(4)), min_size=2, max_size=30))
def test_what_is_lost_is_what_one_order_would_find(orders: list[list[int]]) -> None:
    """Each request but the first would find all four items: what it has of them from where it parts from all others."""
    told = again([(at, [Item(one, 10) for one in order]) for at, order in enumerate(orders)])
    lost = {}
    for at, order in enumerate(orders[1:], 1):
        same = max(next((n for n in range(4) if order[n] != other[n]), 4) for other in orders[:at])
        if same < 4:
            lost[at] = 10 * (4 - same)
    if len(lost) < 3:
        assert told is None
    else:
        assert told is not None
        assert told.lost == lost
        assert told.orders == len({tuple(order) for order in orders})
        assert told.moved == frozenset(lost)
