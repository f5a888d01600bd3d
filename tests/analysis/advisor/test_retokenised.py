"""Replies that are sent back as they were said, and read as other tokens than the model made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.advisor.advice import advise
from analysis.advisor.learning.cause import Cause
from analysis.advisor.serving.retokenised import retokenised_slots
from analysis.prefix_replay.rules import BlockRule
from cachemodel.prompts.model import Prompt
from cachemodel.prompts.read import read_value
from tests.analysis.advisor.test_advice import tokens

SYSTEM = "You answer what sailors ask. " + " ".join(f"Rule {number}: be brief." for number in range(12))


def answer(number: int) -> str:
    return " ".join(f"word{number}-{at}" for at in range(40))


def conversation(number: int, *, cut_at: int | None, before: str = "") -> list[Prompt]:
    """Two turns. cut_at: the token of the reply from which on the model made other ones than the text is cut into;
    before: words that stand before the reply where it is sent back."""
    first = {
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"Ask {number}"}]
    }
    later = [
        {"role": "assistant", "content": before + answer(number)},
        {"role": "user", "content": "And then?"},
    ]
    second = {"messages": [*first["messages"], *later]}
    (a,), (b,) = (
        read_value(
            {"id": f"{number}-{turn}", "session": f"s{number}", "time": number + turn / 2, "body": body},
            "f:1",
            "",
        )
        for turn, body in enumerate((first, second))
    )
    made = tokens(second)[len(tokens(first)) :]
    reply = made[: len(tokens({"messages": [later[0]]}))].astype(np.int64)
    if cut_at is not None:
        reply[cut_at:] ^= 1  # the same letters, another token
    return [replace(a, response=answer(number), reply=tuple(reply.tolist())), b]


def log(cut_at: int | None, before: str = "", n: int = 6) -> list[Prompt]:
    return [prompt for number in range(n) for prompt in conversation(number, cut_at=cut_at, before=before)]


def test_the_token_from_which_on_it_differs_is_told() -> None:
    prompts = log(10)
    (slot,) = retokenised_slots(prompts, [tokens(prompt.body or {}) for prompt in prompts], 0.2)
    assert (slot.cause, slot.path, slot.requests, slot.of) == (Cause.RETOKENISED, "messages[2].content", 6, 6)
    assert slot.token == len(tokens(prompts[0].body or {})) + 10
    assert slot.behind * 0.2 == pytest.approx(len(prompts[0].reply) - 10)


def test_advice_names_it() -> None:
    found = advise(log(3), tokens, BlockRule(block_size=4), cache_name="c", tokens_by="words", min_share=0)
    (one,) = found.suggestions
    assert one.slot.cause is Cause.RETOKENISED
    assert (one.rules, one.gain) == ((), None)
    assert one.at_most > 0


@pytest.mark.parametrize(
    "prompts",
    [log(None), log(10, before="In short: "), log(10, n=1)],
    ids=["the same tokens", "other words", "once"],
)
def test_nothing_else_is(prompts: list[Prompt]) -> None:
    assert list(retokenised_slots(prompts, [tokens(prompt.body or {}) for prompt in prompts], 0.2)) == []


@pytest.mark.parametrize(
    ("response", "reply"),
    [
        ({"choices": [{"message": {"content": "hi"}, "token_ids": [5, 6]}]}, (5, 6)),
        ({"text": "hi", "output_ids": [7]}, (7,)),
        ({"choices": [{"message": {"content": "hi"}, "token_ids": [5, "6"]}]}, ()),
        ({"choices": [{"message": {"content": "hi"}, "token_ids": [True]}]}, ()),
        ({"choices": [{"message": {"content": "hi"}, "token_ids": [1 << 40]}]}, ()),
        ({"choices": [{"message": {"content": "hi"}}]}, ()),
    ],
)
def test_tokens_of_replies_are_read(response: object, reply: tuple[int, ...]) -> None:
    (told,) = read_value(
        {"messages": [{"role": "user", "content": "hi"}], "response": response}, "file:1", ""
    )
    assert isinstance(told, Prompt)
    assert told.reply == reply
