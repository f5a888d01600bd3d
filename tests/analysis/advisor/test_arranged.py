"""Where things stand: tools that come in front, instructions behind the conversation, conversations without any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.clusters import clusters
from analysis.advisor.learning.learn import learn
from analysis.advisor.learning.messages.tools import list_slots
from cachemodel.prompts.model import Kind, Part, Prompt
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import Change, Log, conversations, log

MORE = ("tickets", "mail", "notes")


def tools_come(at: int) -> Change:
    """A tool more in each of three turns, that many tools behind the first."""

    def change(made: Log, turn: int) -> None:
        come = MORE[: max(0, min(turn - 2, 3))]
        names = [*planted.TOOLS[:at], *come, *planted.TOOLS[at:]]
        made.last.tools = [planted.tool(name) for name in names]

    return change


@pytest.mark.parametrize("at", range(len(planted.TOOLS)))
def test_tools_that_come_are_told_where_they_come(at: int) -> None:
    (slot,) = learn(conversations([tools_come(at)]))
    assert (slot.cause, slot.path) == (Cause.TOOL_SET, f"tools[{at}]")
    assert "grows" in slot.detail


def test_tools_that_come_at_the_end_are_told_there() -> None:
    """Where a request has no tool more, it is the last one that stands in front."""
    slot, *_ = learn(conversations([tools_come(len(planted.TOOLS))]))
    assert (slot.cause, slot.path) == (Cause.TOOL_SET, f"tools[{len(planted.TOOLS) - 1}]")


def test_tools_that_stay_are_nothing() -> None:
    def change(made: Log, _: int) -> None:
        made.last.tools = [planted.tool(name) for name in (*MORE, *planted.TOOLS)]

    assert learn(conversations([change])) == []


NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1)


@given(NAMES, st.integers(0, 8))
def test_one_tool_more_is_told_at_its_place(names: list[str], at: int) -> None:
    at = min(at, len(names))
    requests = [
        (index, Prompt(request_id=f"r{index}", parts=tuple(
            Part(f"tools[{i}]", "tools", Kind.TOOL, f'{{"name":"{name}"}}') for i, name in enumerate(own))))
        for index, own in enumerate((names, names, [*names[:at], "new", *names[at:]]))
    ]  # fmt: skip
    (slot,) = list_slots(requests, {1: 0, 2: 1})
    assert slot.after == (names[at] if at < len(names) else "")
    assert slot.before == (names[at - 1] if at else "")


# Instructions behind the conversation.


def behind(role: str) -> Change:
    def change(made: Log, _: int) -> None:
        system, *said = made.last.messages
        made.last.messages = [*said, {**system, "role": role}]

    return change


@pytest.mark.parametrize("language", planted.RULES)
@pytest.mark.parametrize("role", ["system", "developer", "user"])
def test_instructions_that_every_request_sends_last(role: str, language: str) -> None:
    prompts = conversations([behind(role)], language=language)
    (slot,) = learn(prompts)
    assert slot.cause is Cause.SHARED_BEHIND
    assert slot.requests == len(prompts) - 1
    assert slot.behind == len(prompts[0].parts[-1].text)


def test_a_short_reminder_at_the_end_is_nothing() -> None:
    def change(made: Log, _: int) -> None:
        made.last.messages.append({"role": "user", "content": "Keep it brief."})

    assert learn(conversations([change])) == []


def test_instructions_that_stay_where_they_were_said_count_once_a_conversation() -> None:
    def change(made: Log, _: int) -> None:
        note = {"role": "developer", "content": " ".join(planted.RULES["en"])}
        made.last.messages.insert(2, note)

    (slot,) = learn(conversations([change], talks=6))
    assert slot.cause is Cause.SHARED_BEHIND
    assert slot.requests == 5


# Conversations that no instructions precede.


def without_head(made: Log, _: int) -> None:
    made.last.messages = made.last.messages[1:]


def test_what_happens_in_conversations_without_instructions_is_one_thing() -> None:
    def change(made: Log, _: int) -> None:
        for message in made.last.messages[:-1]:
            message["content"] = message["content"].replace("Certainly. ", f"[{made.last.time:%H:%M:%S}] ")

    prompts = conversations([without_head, change], talks=8)
    (slot,) = learn(prompts)
    assert slot.cause is Cause.CLOCK
    assert slot.requests > 30


def test_conversations_without_instructions_that_only_grow_are_nothing() -> None:
    prompts = conversations([without_head], talks=8)
    assert learn(prompts) == []
    assert len(clusters(prompts)) == 1


def test_questions_without_instructions_are_of_nobody() -> None:
    prompts = log([without_head])
    assert max(len(one.requests) for one in clusters(prompts)) < len(prompts) / 2
    assert learn(prompts) == []


def test_questions_of_numbers_alone_are_not_one_template() -> None:
    def change(made: Log, index: int) -> None:
        made.last.messages = [{"role": "user", "content": f"{index} + {index * 7} = ?"}]

    assert len(clusters(log([change], 20))) == 20
