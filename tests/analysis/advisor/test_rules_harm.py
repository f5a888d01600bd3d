"""What rules must not do to requests, as reviewers saw them do it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.learn import learn
from analysis.advisor.learning.remedy import rules_of
from analysis.advisor.learning.whole import whole_pattern
from analysis.advisor.rewriting.rules import Action, Rule, apply
from analysis.advisor.rewriting.search import search
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import after_first_line, conversations, log

NOW = Rule(Action.MOVE, "system", pattern="^Now: .*$")


def test_a_system_message_is_moved_only_where_it_is_the_one_that_was_learned_from() -> None:
    """A rule without that moved the guard rules of other services, and the next message when it was applied twice."""
    values = [f"The time is {at}:0{at % 10}." for at in range(10, 20)]
    rule = Rule(Action.MOVE_MESSAGE, "system", whole_pattern(values), message=0)
    guard: dict[str, Any] = {
        "messages": [
            {"role": "system", "content": "Never refund over 100 EUR."},
            {"role": "system", "content": "Answer in English."},
            {"role": "user", "content": "Hi"},
        ]
    }
    assert apply([rule], guard) is guard
    clock = {"messages": [{"role": "system", "content": values[3]}, *guard["messages"]]}
    after = apply([rule], clock)
    assert after["messages"][:2] == guard["messages"][:2]
    assert after["messages"][2]["content"] == f"Hi\n\n{values[3]}"
    assert apply([rule], after) == after
    alone = {"messages": [clock["messages"][0], {"role": "user", "content": "Hi"}]}
    assert apply([rule], alone) is alone, "all that the system says stays"


@pytest.mark.parametrize(
    ("values", "pattern"),
    [
        (["2026-11-30 12:04", "2026-11-30 12:05", "2026-11-30 12:09"], r"^\d+\-\d+\-\d+\ \d+:\d+$"),
        (
            ["Relevant memories:\n- a", "Relevant memories:\n- b c", "Relevant memories:\n"],
            r"^Relevant\s+memories:",
        ),
        (["Be kind.", "Answer in rhymes.", "No jokes today."], ""),
        (["one\ntwo", "three\nfour", "five\nsix"], ""),
        ([], ""),
    ],
)
def test_messages_are_known_by_what_they_begin_with_or_by_their_shape(
    values: list[str], pattern: str
) -> None:
    assert whole_pattern(values) == pattern


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"Request\s+[^\n]*?\s+at\s+[^\n]*?\.", "Request" + " " * 20_000),
        (r"Nous\s+sommes\s+le\s+[^\n]*?\s+et\s+il\s+est\s+[^\n]*?\.", "Nous sommes le" + " " * 20_000),
        (r"\d+\s+tokens\s+were\s+used", "1" * 200_000),
        (r"[^\W\d_]+\s+left", "a" * 200_000),
        (r"\s+left", " " * 200_000),
        (r"Now:\s+[^\n]*?\s+x", "Now: " + "a " * 50_000),
    ],
)
def test_no_text_makes_a_search_slow(pattern: str, text: str) -> None:
    """Minutes before; a second is many times what it takes."""
    begun = time.process_time()
    assert search(pattern, text) is None
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"Request\s+[^\n]*?\s+at\s+\d+\.", "a\nRequest   x  y   at 12. b", "Request   x  y   at 12."),
        (r"\d+\s+tokens", "x12  tokens", "12  tokens"),
        (r"^Now:\s+[^\n]+?$", "Be.\nNow: 12:04  \nBe.", "Now: 12:04  "),
    ],
)
def test_what_is_there_is_found(pattern: str, text: str, found: str) -> None:
    match = search(pattern, text)
    assert match
    assert match[0] == found


def test_a_cache_breakpoint_stays_behind_as_many_tools() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    tools: list[Any] = [{"name": "b"}, {"name": "c"}, {"name": "a", **mark}]
    after = apply([Rule(Action.SORT_TOOLS, "tools")], {"tools": tools})["tools"]
    assert after == [{"name": "a"}, {"name": "b"}, {"name": "c", **mark}]


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("Bo\t\t\tbo@x.de", "Bo\t\t\tbo@x.de"),
        ("say `a  b` twice", "say `a  b` twice"),
        ("```\nx  =  1\n```\nand  so", "```\nx  =  1\n```\nand so"),
        ("| a  | b |", "| a  | b |"),
        ("    indented  code", "    indented  code"),
        ("two  blanks \r\nand e\u0301 ", "two blanks\nand \u00e9"),
    ],
)
def test_tables_and_code_keep_their_blanks(text: str, after: str) -> None:
    body = {"messages": [{"role": "system", "content": text}]}
    assert apply([Rule(Action.ONE_FORM, "system")], body)["messages"][0]["content"] == after


def test_no_empty_block_is_left() -> None:
    blocks = [{"type": "text", "text": "Now: 12:04"}, {"type": "text", "text": "Be kind."}]
    body = {"system": blocks, "messages": [{"role": "user", "content": "Hi"}]}
    after = apply([NOW], body)
    assert after["system"] == blocks[1:]
    assert after["messages"][0]["content"] == "Hi\n\nNow: 12:04"


def test_in_a_tool_loop_it_goes_behind_the_result() -> None:
    """In front of it stands what is history by then, and would be computed again in every step."""
    said = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]},
    ]
    result = {"role": "tool", "tool_call_id": "c", "content": "12"}
    body = {"messages": [{"role": "system", "content": "Now: 12:04\nBe kind."}, *said, result]}
    after = apply([NOW], body)["messages"]
    assert after[1:4] == [*said, result]
    assert after[4:] == [{"role": "user", "content": "Now: 12:04"}]


def test_what_lasts_for_a_session_stays_with_the_system() -> None:
    """At its end: all share what is in front of it, and the turns of a session share it, too."""
    prompts = conversations([after_first_line(planted.session_note)])
    (slot,) = (one for one in learn(prompts) if one.cause is Cause.SESSION_VALUE)
    (rule,) = rules_of(slot)
    assert (rule.action, rule.within) == (Action.MOVE, True)
    bodies = [one.body for one in prompts if one.body]
    for body in bodies:
        after = apply([rule], body)
        assert after["messages"][1:] == body["messages"][1:]
        assert sorted(after["messages"][0]["content"].split()) == sorted(
            body["messages"][0]["content"].split()
        )
        assert apply([rule], after) == after
    heads = {apply([rule], body)["messages"][0]["content"].partition("\n\n")[0] for body in bodies}
    assert len(heads) == 1


def test_a_clock_of_the_user_stays_in_its_message() -> None:
    """Each of the history keeps its own; applied again, nothing changes."""
    rule = Rule(Action.MOVE, "user", pattern="^Now: .*$", within=True)
    asked = [{"role": "user", "content": f"Now: 12:0{at}\nWhat is {at}?"} for at in range(3)]
    after = apply([rule], {"messages": asked})
    assert [one["content"] for one in after["messages"]] == [
        f"What is {at}?\n\nNow: 12:0{at}" for at in range(3)
    ]
    assert apply([rule], after) == after


def test_rules_of_clocks_go_behind_everything() -> None:
    (slot,) = learn(log([planted.at_top(planted.clock("Now: %H:%M:%S"))]))
    assert not any(rule.within for rule in rules_of(slot))


CLOCK = {"role": "system", "content": "Now: 3"}
MARKED = {"type": "text", "text": "Now: 3", "cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [CLOCK]},
        {"messages": [CLOCK, {"role": "system", "content": "Now: 4"}]},
        {"system": "be kind", "messages": [CLOCK]},
        {"system": "Now: 1\nbe kind", "messages": [CLOCK]},
        {"messages": [{"role": "system", "content": [MARKED]}]},
        {"instructions": [CLOCK], "input": "x"},
        {"instructions": "be kind", "input": [CLOCK]},
    ],
)
@pytest.mark.parametrize("within", [False, True])
def test_nothing_is_said_twice_where_nothing_would_be_left(body: dict[str, Any], within: bool) -> None:
    """What must not go stays, and is not told once more behind it."""
    words = json.dumps(body).count("Now:")
    for action in (Action.MOVE, Action.MOVE_MESSAGE, Action.DROP):
        after = apply([Rule(action, "system", r"^Now: \d+$", within=within)], body)
        assert json.dumps(after).count("Now:") == words, action
        assert after.get("messages") != []
        assert after.get("input") != []
        assert after.get("instructions") != []
