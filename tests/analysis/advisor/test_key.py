"""A suggestion has one name, whatever values, counts and places a log happens to have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.advisor.advice import advise
from analysis.advisor.key import LENGTH, key_of, said_by
from analysis.advisor.learning.behaviour import Seen
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.model import Slot
from analysis.advisor.suggest import Suggestion
from analysis.prefix_replay.rules import BlockRule
from hitmap.prompt_tokens import body_tokens
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import after_first_line, at_top, clock, conversations, log

FAULTS: dict[str, list[Callable[..., Any]]] = {
    "clock": [at_top(clock("Now: %H:%M:%S"))],
    "clock in words": [at_top(clock("It is %A, %d %B %Y, %H:%M."))],
    "user": [after_first_line(planted.user_name)],
    "both": [at_top(clock("Now: %H:%M:%S")), after_first_line(planted.user_name)],
    "id": [at_top(planted.request_id)],
    "tools": [planted.tools_shuffled],
}


def suggestions(faults: list[Callable[..., Any]], seed: int, n: int = 60) -> tuple[Suggestion, ...]:
    tokens = body_tokens("approximate")
    prompts = log(faults, n, seed=seed, tools=True)
    return advise(prompts, tokens, BlockRule(block_size=16), cache_name="b", tokens_by="t").suggestions


@pytest.mark.parametrize("name", FAULTS)
def test_other_logs_with_the_same_fault_give_the_same_keys(name: str) -> None:
    """Other times, users, ids and questions, fewer of them."""
    first, second = suggestions(FAULTS[name], 0), suggestions(FAULTS[name], 7, 45)
    assert first
    assert {key_of(one) for one in first} == {key_of(one) for one in second}
    assert len({key_of(one) for one in first}) == len(first)


def test_other_faults_have_other_keys() -> None:
    keys = [
        key_of(one)
        for name in ("clock", "clock in words", "user", "id", "tools")
        for one in suggestions(FAULTS[name], 0)
    ]
    assert len(set(keys)) == len(keys) >= 5


def test_no_value_is_in_a_key() -> None:
    for faults in FAULTS.values():
        for one in suggestions(faults, 0):
            said = " ".join(said_by(one)[3:4]).split()
            values = {word.casefold() for seen in one.slot.seen for word in seen.value.split()}
            assert not values & set(said)
            assert not any(character.isdigit() for word in said for character in word)


def test_of_a_conversation_the_place_does_not_count() -> None:
    tokens = body_tokens("approximate")
    found = [
        advise(
            conversations([planted.window], 6, turns),
            tokens,
            BlockRule(block_size=16),
            cache_name="b",
            tokens_by="t",
        )
        for turns in (8, 11)
    ]
    keys = [
        {key_of(one) for one in advice.suggestions if one.slot.cause is Cause.SLIDING_WINDOW}
        for advice in found
    ]
    assert keys[0]
    assert keys[0] == keys[1]


VALUES = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=12)


@given(
    values=st.lists(VALUES, min_size=1, max_size=5),
    index=st.integers(0, 400),
    counts=st.integers(1, 10**6),
    around=st.text(max_size=40),
)
def test_a_key_depends_on_none_of_what_varies(
    values: list[str], index: int, counts: int, around: str
) -> None:
    slot = Slot(Cause.CLOCK, 0, "messages[3].content", "user", 0, "", "", "r", (), None, 1, 1, 0.0,
                pattern=r"^Zeit\ ist\s+\d+:\d+\s+[^\n]*?\.$")  # fmt: skip
    other = replace(
        slot,
        path=f"messages[{index}].content",
        seen=tuple(Seen(n, f"{value}7") for n, value in enumerate(values)),
        requests=counts,
        of=counts,
        offset=counts,
        before=around,
        after=around,
        example=around,
        cluster=counts,
    )
    first, second = (Suggestion(one, None, (), None, 1, 0.1, "") for one in (slot, other))  # type: ignore[call-arg,arg-type]
    if not {"zeit", "ist"} & {word.casefold() for value in values for word in value.split()}:
        assert key_of(first) == key_of(second)
    assert len(key_of(first)) == LENGTH
    head = replace(first, slot=replace(slot, role="system"))
    assert key_of(head) != key_of(first)
    assert (key_of(head) == key_of(replace(first, slot=replace(other, role="system", seen=())))) == (
        index == 3
    )
