"""Examples that stand in front of a question as messages are no history, in whatever order they come."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.learn import learn
from analysis.advisor.learning.messages.examples import examples
from analysis.advisor.learning.remedy import rules_of
from cachemodel.prompts.model import Prompt
from tests.analysis.advisor import planted
from tests.analysis.advisor.prose import sentence

LABELS = ("billing", "login", "outage", "other")


def classified(n: int, shown: int, *, of: int, seed: int = 0, shuffled: bool = True) -> list[Prompt]:
    """n tickets, each behind `shown` of the same examples: all of them or picked anew, shuffled or in one order."""
    chance = random.Random(seed)
    pool = [(" ".join(sentence(chance) for _ in range(3)), chance.choice(LABELS)) for _ in range(of)]
    told = list[Prompt]()
    for index in range(n):
        chosen = chance.sample(range(of), shown)
        messages: list[dict[str, Any]] = [{"role": "system", "content": "\n".join(planted.RULES["en"] * 2)}]
        for at in chosen if shuffled else sorted(chosen):
            messages.append({"role": "user", "content": pool[at][0]})
            messages.append({"role": "assistant", "content": pool[at][1]})
        messages.append({"role": "user", "content": planted.question(chance)})
        time = planted.START + timedelta(seconds=index)
        told.append(planted.prompt(planted.Request(index, "", "", time, messages)))
    return told


@pytest.mark.parametrize("shown", [5, 8])
def test_examples_in_random_order_are_one_suggestion(shown: int) -> None:
    (slot,) = learn(classified(120, shown, of=shown))
    assert (slot.cause, slot.path) == (Cause.ITEM_ORDER, "messages[1].content")
    assert slot.detail.startswith(f"the same {shown} messages with their answers in ")
    assert slot.requests > 30
    assert rules_of(slot) == ()


def test_the_orders_are_counted() -> None:
    """Of three examples there are six, all of which a hundred requests have, and of which five are computed anew."""
    (slot,) = learn(classified(120, 3, of=3))
    assert slot.detail.endswith("in 6 orders")
    assert slot.requests == 5


def test_two_orders_that_a_cache_has_both_of_cost_nothing() -> None:
    assert learn(classified(120, 2, of=2)) == []


@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_said_of_the_history_of_examples_that_are_picked_anew(seed: int, shuffled: bool) -> None:
    assert learn(classified(150, 4, of=40, seed=seed, shuffled=shuffled)) == []


def test_examples_in_one_order_are_as_they_should_be() -> None:
    assert learn(classified(120, 8, of=8, shuffled=False)) == []


@pytest.mark.parametrize(
    "change", [[], [planted.window], [planted.retold], [planted.thoughts_dropped], [planted.memory_first]]
)
def test_a_conversation_has_no_examples_whatever_becomes_of_it(change: list[planted.Change]) -> None:
    assert not examples(list(enumerate(planted.conversations(change)))).moved


def test_a_conversation_behind_shuffled_examples_is_still_followed() -> None:
    """Both faults: the examples of each request stand in another order, and earlier turns are told anew."""
    chance = random.Random(3)
    pool = [(" ".join(sentence(chance) for _ in range(3)), f"label {at}") for at in range(4)]

    def behind_examples(made: planted.Log, _: int) -> None:
        head, *talk = made.last.messages
        shown = [
            {"role": role, "content": text}
            for question, answer in made.random.sample(pool, len(pool))
            for role, text in (("user", question), ("assistant", answer))
        ]
        made.last.messages = [head, *shown, *talk]

    causes = {
        slot.cause for slot in learn(planted.conversations([planted.window, behind_examples], turns=10))
    }
    assert causes == {Cause.ITEM_ORDER, Cause.SLIDING_WINDOW}
