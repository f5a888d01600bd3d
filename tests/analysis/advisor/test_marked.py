"""Caches that keep what they are asked to: breakpoints of requests become token positions, before and after rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from analysis.advisor.advice import Advice, advise
from analysis.advisor.learning.cause import Cause
from analysis.advisor.pricing.marked import marked
from analysis.advisor.rewriting.rules import Body
from analysis.prefix_replay.rules import ANTHROPIC, BlockRule
from cachemodel.prompts.model import Prompt
from cachemodel.prompts.read import read
from hitmap.prompt_tokens import body_tokens

MARK = {"cache_control": {"type": "ephemeral"}}
RULES = " ".join(f"Rule {number}: answer in one sentence and name the shelf." for number in range(160))


def body(number: int, *, mark: bool, clock: bool = False) -> dict[str, Any]:
    """A request of Anthropic's API: long instructions, with a breakpoint at their end, and a question."""
    text = f"Now: 2026-11-30 12:{number // 60:02d}:{number % 60:02d}\n{RULES}" if clock else RULES
    system = {"type": "text", "text": text, **(MARK if mark else {})}
    return {
        "system": [system],
        "messages": [{"role": "user", "content": f"Where is book {number}?"}],
        "max_tokens": 10,
    }


def prompts(n: int = 40, **how: bool) -> list[Prompt]:
    told = [read({"id": f"r{at}", "time": 1000.0 + at, "body": body(at, **how)}, "f") for at in range(n)]
    return [one for each in told for one in each if isinstance(one, Prompt)]


def advised(log: list[Prompt]) -> Advice:
    tokens = body_tokens("approximate")
    return advise(log, tokens, ANTHROPIC, cache_name="c", tokens_by="t", ends=tokens.ends)


def test_a_breakpoint_is_the_tokens_up_to_the_end_of_its_block() -> None:
    tokens = body_tokens("approximate")
    one = body(3, mark=True)
    found = marked([one, body(3, mark=False), {}], tokens.ends)
    upto = tokens({"messages": [{"role": "system", "content": RULES}], "add_generation_prompt": False})
    (position,) = found.breakpoints.values.tolist()
    whole = tokens(one)
    assert whole[:position].tolist() == upto[:position].tolist()
    assert position > 1024
    assert found.breakpoints.lengths.tolist() == [1, 0, 0]
    assert found.parts.lengths.tolist() == [2, 2, 0]
    assert found.parts.values[0] == position < found.parts.values[1] <= len(whole)


def test_marks_of_tools_messages_and_whole_requests_are_found() -> None:
    tokens = body_tokens("approximate")
    one: Body = {
        "tools": [{"name": "a", "input_schema": {}}, {"name": "b", "input_schema": {}, **MARK}],
        "system": "Be kind.",
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two", **MARK}],
            },
            {"role": "user", "content": "three"},
        ],
        **MARK,
    }
    positions = sorted(marked([one], tokens.ends).breakpoints.values.tolist())
    ids = tokens(one).tolist()
    two = tokens({"messages": [{"role": "user", "content": "two"}]}).tolist()
    assert len(positions) == 3
    assert ids[: positions[1]][-1] == two[3], "up to the word two"
    assert positions[0] < positions[1] < positions[2] == len(ids) - 4, "all but what bids the assistant speak"


def test_what_was_marked_is_served_to_all_that_come_after() -> None:
    found = advised(prompts(mark=True))
    first = found.together.before
    assert first.served[0] == 0
    assert (first.served[1:] == first.served[1]).all()
    assert first.served[1] > 1024
    assert found.suggestions == ()
    assert found.beside == ()


def test_a_clock_in_front_of_a_mark_costs_it_and_a_rule_gets_it_back() -> None:
    (one,) = advised(prompts(mark=True, clock=True)).suggestions
    assert one.slot.cause is Cause.CLOCK
    assert one.gain
    clean = advised(prompts(mark=True)).together.before
    after = one.gain.most.after
    assert one.gain.most.before.served.sum() == 0
    assert (after.served[1:] > 1024).all()
    assert after.served.sum() == pytest.approx(clean.served.sum(), rel=0.02)


def test_where_nobody_marks_anything_that_is_told() -> None:
    found = advised(prompts(mark=False))
    (one,) = found.beside
    assert (one.cause, one.requests) == (Cause.UNMARKED, 40)
    assert found.as_sent.served == 0
    marked_ = advised(prompts(mark=True)).as_sent
    assert one.tokens == pytest.approx(marked_.served, rel=0.01)
    assert found.suggestions == ()


def test_marks_where_nobody_comes_again_are_told() -> None:
    """On the question alone, which is another one each time: an entry is written with each request and never found."""

    def moved(one: Prompt) -> Prompt:
        body = dict(one.body or {})
        body["system"] = [
            {k: v for k, v in block.items() if k != "cache_control"} for block in body["system"]
        ]
        *before, last = body["messages"]
        text = {"type": "text", "text": last["content"], "cache_control": {"type": "ephemeral"}}
        return replace(one, body=body | {"messages": [*before, last | {"content": [text]}]}, marks=("m",))

    found = advised([moved(one) for one in prompts(mark=True)])
    (one,) = found.beside
    assert (one.cause, one.requests, found.as_sent.served) == (Cause.UNMARKED, 40, 0)
    assert "stand where few requests find them" in one.detail
    assert one.tokens == pytest.approx(advised(prompts(mark=True)).as_sent.served, rel=0.01)


def test_prompts_that_are_too_short_for_the_cache_are_told() -> None:
    short = [replace(one, body={**(one.body or {}), "system": "Be kind."}) for one in prompts(mark=True)]
    assert advised(short).notes == (
        "40 of 40 prompts are shorter than the 1,024 tokens that this cache keeps at least.",
    )
    assert advised(prompts(mark=True)).notes == ()


def test_other_caches_need_no_marks() -> None:
    tokens = body_tokens("approximate")
    with_ends, without = (
        advise(prompts(mark=False), tokens, BlockRule(), cache_name="c", tokens_by="t", ends=ends)
        for ends in (tokens.ends, None)
    )
    assert with_ends.as_sent == without.as_sent
    assert with_ends.as_sent.served > 0
