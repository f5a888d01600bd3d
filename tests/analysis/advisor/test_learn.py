"""What is planted is named at its place, alone and in pairs, in several languages; nothing is said of clean logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.learn import learn
from cachemodel.prompts.model import Prompt
from cachemodel.prompts.read import read
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import (
    Change,
    after_first_line,
    at_top,
    clock,
    conversations,
    log,
    sometimes,
)

SYSTEM, FIRST_TOOL, HISTORY = "messages[0].content", "tools[0]", "messages[1].content"
LANGUAGES = tuple(planted.RULES)

VALUES: dict[str, tuple[Change, Cause]] = {
    "ISO time at the top": (at_top(clock("Now: %Y-%m-%dT%H:%M:%SZ")), Cause.CLOCK),
    "a date in words": (after_first_line(clock("Today is %A, %d %B %Y, %I:%M %p")), Cause.CLOCK),
    "day first, in Finnish": (at_top(clock("Kello on %d.%m.%Y klo %H.%M")), Cause.CLOCK),
    "milliseconds since 1970": (at_top(planted.epoch), Cause.CLOCK),
    "a UUID": (at_top(planted.request_id), Cause.NONCE),
    "an id of no known form": (after_first_line(planted.odd_id), Cause.NONCE),
    "a counter": (at_top(planted.counter), Cause.COUNTER),
    "a reading": (after_first_line(planted.reading), Cause.MEASUREMENT),
    "the user's name": (at_top(planted.user_name), Cause.USER_VALUE),
    "a note on the session": (after_first_line(planted.session_note), Cause.SESSION_VALUE),
    "one of three tones": (at_top(planted.tone), Cause.VARIANT),
    "memories by likeness": (planted.facts_by_likeness, Cause.ITEM_ORDER),
    "line ends": (planted.line_ends, Cause.WHITESPACE),
}
TOOLS: dict[str, tuple[Change, Cause]] = {
    "order": (planted.tools_shuffled, Cause.TOOL_ORDER),
    "set": (planted.tool_comes, Cause.TOOL_SET),
    "keys": (planted.keys_shuffled, Cause.KEY_ORDER),
}
HISTORIES: dict[str, tuple[Change, Cause, str]] = {
    "window": (planted.window, Cause.SLIDING_WINDOW, HISTORY),
    "time told anew": (planted.retold, Cause.CLOCK, HISTORY),
    "thoughts dropped": (planted.thoughts_dropped, Cause.REASONING_STRIPPED, "messages[2]"),
    "looked up first": (planted.memory_first, Cause.MEMORY, HISTORY),
}
PAIRS = {
    "time, name": (
        [at_top(clock("Now: %H:%M:%S")), after_first_line(planted.user_name)],
        {Cause.CLOCK, Cause.USER_VALUE},
    ),
    "time, tools": (
        [at_top(clock("Now: %H:%M:%S")), planted.tools_shuffled],
        {Cause.CLOCK, Cause.TOOL_ORDER},
    ),
    "keys, tools": ([planted.keys_shuffled, planted.tools_shuffled], {Cause.KEY_ORDER, Cause.TOOL_ORDER}),
    "memories, line ends": (
        [planted.facts_by_likeness, planted.line_ends],
        {Cause.ITEM_ORDER, Cause.WHITESPACE},
    ),
    "id, name in one line": (
        [at_top(lambda made: f"{planted.request_id(made)} for {planted.user_name(made)}")],
        {Cause.NONCE, Cause.USER_VALUE},
    ),
    "id, keys": ([at_top(planted.odd_id), planted.keys_shuffled], {Cause.NONCE, Cause.KEY_ORDER}),
}


def causes(prompts: list[Prompt]) -> set[Cause]:
    return {slot.cause for slot in learn(prompts)}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", VALUES)
def test_a_value_in_the_system_message(name: str, language: str) -> None:
    change, cause = VALUES[name]
    slot, *others = learn(log([change], language=language))
    assert (slot.cause, slot.path) == (cause, SYSTEM)
    assert not others
    assert slot.requests > 10


@pytest.mark.parametrize("language", ["fi", "ja"])
def test_two_unicode_forms(language: str) -> None:
    (slot,) = learn(log([planted.decomposed], language=language))
    assert (slot.cause, slot.path) == (Cause.UNICODE, SYSTEM)


@pytest.mark.parametrize("name", TOOLS)
def test_tools(name: str) -> None:
    change, cause = TOOLS[name]
    (slot,) = learn(log([change], tools=True))
    assert slot.cause is cause
    assert slot.path.startswith("tools[")


@pytest.mark.parametrize("name", HISTORIES)
def test_what_becomes_of_a_conversation(name: str) -> None:
    change, cause, path = HISTORIES[name]
    slot, *_ = learn(conversations([change]))
    assert slot.cause is cause
    assert slot.path.startswith(path)


@pytest.mark.parametrize("name", PAIRS)
def test_two_at_once(name: str) -> None:
    changes, expected = PAIRS[name]
    assert causes(log(changes, tools=True)) == expected


@pytest.mark.parametrize("seed", range(4))
def test_what_one_request_in_sixteen_has_is_found(seed: int) -> None:
    (slot,) = learn(log([sometimes(at_top(clock("Now: %H:%M:%S")), 0.06)], n=250, seed=seed))
    assert slot.cause is Cause.CLOCK
    assert 5 <= slot.requests <= 30


CLEAN: dict[str, Callable[[int], list[Prompt]]] = {
    "questions": lambda seed: log([], seed=seed),
    "with tools": lambda seed: log([], seed=seed, tools=True),
    "conversations": lambda seed: conversations([], seed=seed),
    "the time at the end": lambda seed: log([at_the_end], seed=seed),
    "documents of their own": lambda seed: log([document], seed=seed),
}


def at_the_end(made: planted.Log, _: int) -> None:
    """Where it costs nothing."""
    made.last.messages[1]["content"] += f"\n\n(Current time: {made.last.time:%H:%M:%S})"


def document(made: planted.Log, _: int) -> None:
    """A page that no other request has, in front of its question."""
    page = "\n".join(planted.question(made.random) for _ in range(20))
    made.last.messages[1]["content"] = f"{page}\n\n{made.last.messages[1]['content']}"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_said_of_what_is_as_it_should_be(name: str, seed: int) -> None:
    assert learn(CLEAN[name](seed)) == []


def test_two_applications_are_two_clusters() -> None:
    """What differs between them is no slot."""
    both = [p for pair in zip(log([], language="en"), log([], language="fi"), strict=True) for p in pair]
    assert learn(both) == []


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_a_part_of_a_log_says_the_same_as_all_of_it(share: float) -> None:
    prompts = log([planted.facts_by_likeness], n=120)
    assert causes(prompts[: int(120 * share)]) == {Cause.ITEM_ORDER}


CASES = Path(__file__).parents[4] / "shared/cases/prompts"
EXPECTED = {
    "clean": set[Cause](),
    "timestamp": {Cause.CLOCK},
    "user_in_system": {Cause.USER_VALUE},
    "whitespace": {Cause.WHITESPACE},
    "doc_shuffle": {Cause.ITEM_ORDER},
    "tool_added": {Cause.TOOL_SET},
    "tool_keyorder": {Cause.KEY_ORDER},
    "sliding_window": {Cause.SLIDING_WINDOW},
}


@pytest.mark.skipif(
    not CASES.is_dir(), reason="no planted cases beside this checkout (../shared/cases/prompts)"
)
@pytest.mark.parametrize("case", EXPECTED)
def test_planted_cases_are_named(case: str) -> None:
    prompts = [
        one
        for at, line in enumerate((CASES / f"{case}.jsonl").read_text().splitlines())
        for one in read(json.loads(line), f"{case}:{at}")
        if isinstance(one, Prompt)
    ]
    slots = learn(prompts)
    assert {slot.cause for slot in slots} == EXPECTED[case]
    assert [slot.path.partition("[")[0] for slot in slots] == [
        "tools" if "tool" in case else "messages"
    ] * len(slots)


def test_names_without_users_are_a_users_value() -> None:
    """Nobody tells the user; names and places come again, more than somebody writes one by one."""
    people = [f"{name} {of} {town}" for name, of in (("Ana", "aus"), ("José", "de"), ("Mei", "z")) for town in
              ("Köln", "Łódź", "Lima", "Bergen", "Oulu", "Porto")]  # fmt: skip

    def greeted(made: planted.Log, _: int) -> None:
        made.system = f"You talk to {made.random.choice(people)}.\n{made.system}"

    unnamed = [replace(one, user="", session="") for one in log([greeted], n=90)]
    assert causes(unnamed) == {Cause.USER_VALUE}


@pytest.mark.parametrize("sign", ["\u200b", "\ufeff", "\u200f", "\ufe0f", "\u200d"])
def test_signs_that_nobody_sees_are_no_words(sign: str) -> None:
    """One at the beginning of what some requests have, alone or before it, broke the command."""

    def put(made: planted.Log, index: int) -> None:
        if index % 2:
            made.system = (
                f"{sign} {made.system}" if index % 4 == 1 else made.system.replace(". ", f". {sign}", 1)
            )

    causes = {slot.cause for slot in learn(log([put]))}
    assert causes <= {Cause.WHITESPACE, Cause.UNICODE}


def test_versions_that_give_way_to_the_next_are_deploys() -> None:
    """Rising as a clock's hours do, five in three hundred requests."""

    def put(made: planted.Log, index: int) -> None:
        made.system = f"Version {index // 60 + 1}.0 of the rules.\n{made.system}"

    assert learn(log([put], 300)) == []
