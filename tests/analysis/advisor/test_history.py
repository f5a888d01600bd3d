"""Which requests are of one conversation, where no session tells it."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.learn import learn
from analysis.advisor.learning.messages.threads import threads
from cachemodel.prompts.model import Prompt
from cachemodel.prompts.read import read
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


def agent(later: Callable[[str], str], keep: int, *, sessions: bool, anthropic: bool) -> list[Prompt]:
    """Four agents side by side read files, step by step; of results but the last `keep` the `later` form is sent."""
    chance, told = random.Random(0), list[Prompt]()
    talks: list[list[tuple[str, str]]] = [[] for _ in range(4)]
    for step in range(12):
        for number, results in enumerate(talks):
            shown = [
                text if at >= len(results) - keep else later(text) for at, (_, text) in enumerate(results)
            ]
            calls = [(name, text) for (name, _), text in zip(results, shown, strict=True)]
            body = (as_anthropic if anthropic else as_openai)(number, calls)
            record = {"time": 1e9 + 10 * step + number, "body": body}
            (one,) = read(record | ({"session": f"s{number}"} if sessions else {}), f"r{step}-{number}")
            assert isinstance(one, Prompt)
            told.append(one)
            results.append((f"src/module_{step}.py", planted.question(chance) * 12))
    return told


TASK = "Find out why the parcels of branch {} are late, and mend it in the code."
SYSTEM = "\n".join(planted.RULES["en"] * 2)


def as_openai(number: int, calls: Sequence[tuple[str, str]]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    messages.append({"role": "user", "content": TASK.format(number)})
    for at, (name, text) in enumerate(calls):
        call = {"name": "read_file", "arguments": json.dumps({"path": name})}
        called = {"id": f"call_{at}", "type": "function", "function": call}
        messages.append({"role": "assistant", "content": None, "tool_calls": [called]})
        messages.append({"role": "tool", "tool_call_id": f"call_{at}", "content": text})
    return {"model": "m", "messages": messages}


def as_anthropic(number: int, calls: Sequence[tuple[str, str]]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": TASK.format(number)}]
    for at, (name, text) in enumerate(calls):
        call = {"type": "tool_use", "id": f"toolu_{at}", "name": "read_file", "input": {"path": name}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{at}", "content": text}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return {"model": "claude", "max_tokens": 10, "system": SYSTEM, "messages": messages}


@pytest.mark.parametrize("sessions", [True, False])
@pytest.mark.parametrize("anthropic", [True, False])
@pytest.mark.parametrize("keep", [2, 4])
@pytest.mark.parametrize(
    "later", [lambda _: "[Old tool result content cleared]", lambda text: text[:60] + " ..."]
)
def test_tool_results_that_are_cleared_later_are_told(
    later: Callable[[str], str], keep: int, anthropic: bool, sessions: bool
) -> None:
    (slot,) = learn(agent(later, keep, sessions=sessions, anthropic=anthropic))
    assert slot.cause is Cause.HISTORY_REWRITTEN
    assert slot.detail == "what tools answered is replaced or cut afterwards"
    assert slot.requests == 4 * (12 - keep - 1)
    for harmless in (1, 99):  # behind the last result nothing was sent before
        assert learn(agent(later, harmless, sessions=sessions, anthropic=anthropic)) == []


def test_an_image_that_is_encoded_anew_is_told() -> None:
    """Each turn brings the same receipt as other bytes, in front of all that was said."""

    def receipt(made: planted.Log, _: int, *, anew: bool) -> None:
        first = made.last.messages[1]
        if not isinstance(first["content"], str):
            return
        told = made.random if anew else random.Random(made.last.session)
        data = base64.b64encode(told.randbytes(300)).decode()
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        made.last.messages[1] = first | {"content": [picture, {"type": "text", "text": first["content"]}]}

    for anew, found in ((True, [Cause.HISTORY_REWRITTEN]), (False, [])):
        log = planted.conversations([partial(receipt, anew=anew)], turns=10)
        prompts = [
            one
            for at, prompt in enumerate(log)
            for one in read({"time": prompt.time, "session": prompt.session, "body": prompt.body}, f"r{at}")
            if isinstance(one, Prompt)
        ]
        slots = learn(prompts)
        assert [slot.cause for slot in slots] == found
        assert all(slot.path == "messages[1].content[0]" for slot in slots)
        assert all(slot.detail == "the image is another one: encoded anew, or another file" for slot in slots)


@pytest.mark.parametrize("anew", [True, False])
@pytest.mark.parametrize("anthropic", [True, False])
def test_results_of_parallel_calls_in_another_order_are_one_fault(anthropic: bool, anew: bool) -> None:
    """Three calls a step; whoever sends the conversation gathers their results as a set."""
    chance, told = random.Random(2), list[Prompt]()
    talks: list[list[list[str]]] = [[] for _ in range(4)]
    for step in range(10):
        for number, results in enumerate(talks):
            messages: list[dict[str, Any]] = [{"role": "user", "content": TASK.format(number)}]
            for at, texts in enumerate(results):
                order = chance.sample(texts, 3) if anew else texts
                messages += (_anthropic_turn if anthropic else _openai_turn)(at, order)
            system = {"system": SYSTEM} if anthropic else {}
            head = [] if anthropic else [{"role": "system", "content": SYSTEM}]
            body = {"model": "m", "max_tokens": 9, **system, "messages": head + messages}
            (one,) = read({"time": 1e9 + 10 * step + number, "body": body}, f"r{step}-{number}")
            assert isinstance(one, Prompt)
            told.append(one)
            results.append([planted.question(chance) * 4 for _ in range(3)])
    slots = learn(told)
    assert [slot.cause for slot in slots] == [Cause.ITEM_ORDER] * anew
    assert all("made at once" in slot.detail for slot in slots)


def _openai_turn(at: int, texts: Sequence[str]) -> list[dict[str, Any]]:
    calls = [
        {
            "id": f"c{at}{n}",
            "type": "function",
            "function": {"name": "look", "arguments": json.dumps({"n": n})},
        }
        for n in range(3)
    ]
    results = [{"role": "tool", "tool_call_id": f"c{at}{n}", "content": text} for n, text in enumerate(texts)]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def _anthropic_turn(at: int, texts: Sequence[str]) -> list[dict[str, Any]]:
    calls = [{"type": "tool_use", "id": f"t{at}{n}", "name": "look", "input": {"n": n}} for n in range(3)]
    results = [
        {"type": "tool_result", "tool_use_id": f"t{at}{n}", "content": text} for n, text in enumerate(texts)
    ]
    return [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]
