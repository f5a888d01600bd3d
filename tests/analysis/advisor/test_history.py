"""Which requests are of one conversation, where no session tells it."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.learn import learn
from analysis.advisor.learning.messages.history import threads
from cachemodel.prompts.model import Prompt
from tests.analysis.advisor import planted

NAMES = ("Hugo", "Kaya", "Aino", "Liam", "Noor", "Omar")
ANSWER = (
    "Happy to help. Orders arrive within five working days of being sent, and you will get a message. " * 3
)
RULES = "Please follow these instructions to the letter, whatever it is that you are asked for."


def people(seed: int, *, instructed: bool = False, kept: float = 1.0) -> tuple[list[Prompt], dict[int, int]]:
    """Thirty people who open with their name and ask the same from then on, and are answered alike, side by side and
    without a session; with who sent each request. instructed: behind one message of the user's. kept: of the log."""
    chance = random.Random(seed)
    talks = [
        [
            f"Hello, my name is {chance.choice(NAMES)} {number} and I ask about my order of last week.",
            *(f"Thank you, and what about question number {turn}?" for turn in range(chance.randrange(2, 6))),
        ]
        for number in range(30)
    ]
    turns = [number for number, asked in enumerate(talks) for _ in asked]
    chance.shuffle(turns)
    told, who, done = list[Prompt](), dict[int, int](), [0] * len(talks)
    for index, number in enumerate(turns):
        said = [{"role": "system", "content": "\n".join(planted.RULES["en"] * 2)}]
        said += [{"role": "user", "content": RULES}] * instructed
        for asked in talks[number][: done[number]]:
            said += [{"role": "user", "content": asked}, {"role": "assistant", "content": ANSWER}]
        said.append({"role": "user", "content": talks[number][done[number]]})
        done[number] += 1
        if chance.random() < kept:
            time = planted.START + timedelta(seconds=index)
            who[len(told)] = number
            told.append(planted.prompt(planted.Request(index, "", "", time, said)))
    return told, who


@pytest.mark.parametrize("instructed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_people_who_are_answered_alike_are_several(seed: int, instructed: bool) -> None:
    prompts, _ = people(seed, instructed=instructed)
    assert learn(prompts) == []


@given(seed=st.integers(0, 10_000), instructed=st.booleans())
def test_a_request_goes_on_from_its_own_conversation(seed: int, instructed: bool) -> None:
    prompts, who = people(seed, instructed=instructed)
    last: dict[int, int] = {}
    for index, thread in threads(list(enumerate(prompts))).items():
        if who[index] in last:
            assert (thread.earlier, thread.surely) == (last[who[index]], True)
        last[who[index]] = index


@pytest.mark.parametrize("seed", range(3))
def test_a_log_with_holes_joins_nobody_to_others(seed: int) -> None:
    prompts, _ = people(seed, kept=0.6)
    assert Cause.HISTORY_REWRITTEN not in {slot.cause for slot in learn(prompts)}


@pytest.mark.parametrize("change", [planted.window, planted.retold])
def test_without_sessions_what_becomes_of_a_conversation_is_still_told(change: planted.Change) -> None:
    with_sessions = planted.conversations([change], turns=12)
    without = [replace(one, session="", user="") for one in with_sessions]
    assert {one.cause for one in learn(without)} == {one.cause for one in learn(with_sessions)}


def test_where_a_summary_breaks_the_prefix_the_window_behind_it_is_not_blamed() -> None:
    """Both are told: the window of the requests that have the summary of the one before them."""

    def summary(made: planted.Log, turn: int) -> None:
        head, *talk = made.last.messages
        about = random.Random(f"{made.last.session} {turn // 2}")
        told = " ".join(planted.question(about) for _ in range(6))
        summed = [{"role": "system", "content": f"Summary of the conversation so far: {told}"}] * (turn > 1)
        made.last.messages = [head, *summed, *talk[-5:]]

    told = {one.path: one for one in learn(planted.conversations([summary], talks=12, turns=12))}
    assert told.keys() == {"messages[1].content", "messages[2].content"}
    window = told["messages[2].content"]
    assert window.cause is Cause.SLIDING_WINDOW
    assert window.requests == 60  # of 12 talks and nine turns on which it slides, those without a new summary
