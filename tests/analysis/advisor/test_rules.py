"""A rule does what it says and nothing else, and what the advisor proposes makes the heads of prompts one."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from analysis.advisor.learning.learn import learn
from analysis.advisor.learning.remedy import rules_of
from analysis.advisor.rewriting.canonical import array_key, structure
from analysis.advisor.rewriting.rules import Action, Body, Rule, apply, one_form, search
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import Change, at_top, clock, conversations, log, sometimes
from tests.analysis.advisor.test_learn import PAIRS, TOOLS, VALUES

LEAVES = st.none() | st.booleans() | st.integers(-9, 99) | st.text('abc {}[]:",\\\n é', max_size=12)
VALUES_OF_JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abcd", max_size=3), inner, max_size=4)
    ),
)
TEXTS = st.lists(
    st.sampled_from(
        [
            "The rules are these.",
            "Now: 12:04:11",
            "  a  b\t",
            "x\r\n",
            "\n\n",
            '{"b": 1, "a": [2, "c"]}',
            "é",
            '{"c": ["b", "a"]}',
        ]
    ),
    max_size=8,
).map("\n".join)
ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool"])
MESSAGES = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        ROLES,
        TEXTS
        | st.lists(st.builds(lambda text: {"type": "text", "text": text}, TEXTS), max_size=2)
        | st.none(),
    ),
    max_size=5,
)
TOOL = st.builds(
    lambda name, told: {"type": "function", "function": {"name": name, "parameters": told}},
    st.text("abc", min_size=1, max_size=3),
    st.dictionaries(st.text("abcd", max_size=3), VALUES_OF_JSON, max_size=3),
)
BODIES = st.builds(
    lambda messages, tools, model: {"model": model, "messages": messages, "tools": tools, "temperature": 0.5},
    MESSAGES,
    st.lists(TOOL, max_size=4),
    st.just("m"),
)
FIELDS = (
    "messages",
    "tools",
    "system",
    "prompt",
    "role",
    "content",
    "input",
    "instructions",
    "text",
    "tool_calls",
    "function",
    "arguments",
    "name",
    "contents",
    "parts",
    "systemInstruction",
    "description",
    "toolConfig",
    "functionDeclarations",
    "functionCall",
    "args",
    "type",
    "cache_control",
    "cachePoint",
)
STRANGE = st.dictionaries(
    st.sampled_from(FIELDS),
    st.recursive(
        st.none() | st.integers(0, 3) | TEXTS | st.sampled_from(["system", "user", "assistant"]),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
        ),
        max_leaves=12,
    ),
)
"""Requests that no API takes, made of its words."""
RULES = st.sampled_from(
    [
        Rule(Action.SORT_TOOLS, "tools"),
        Rule(Action.SORT_KEYS, "tools"),
        Rule(Action.SORT_KEYS, "assistant"),
        Rule(Action.SORT_JSON, "system", items=(array_key(["b", "a"]),)),
        Rule(Action.SORT_KEYS, "user", items=(structure('{"b": 1, "a": []}'),)),
        Rule(Action.ONE_FORM, "system"),
        Rule(Action.SORT_ITEMS, "system", items=("Now: 12:04:11", "The rules are these.")),
        Rule(Action.MOVE, "system", pattern=r"^Now:\s+\d+:\d+:\d+$"),
        Rule(Action.DROP, "user", pattern=r"^Now:\s+\d+:\d+:\d+$"),
        Rule(Action.MOVE_MESSAGE, "system", message=1),
        Rule(Action.MOVE_MESSAGE, "system", pattern=r"^Now:", message=1),
        Rule(Action.MOVE_MESSAGE, "system", pattern=r"^Now:", within=True),
        Rule(Action.MOVE, "user", pattern=r"^Now:\s+\d+:\d+:\d+$", within=True),
        Rule(Action.MOVE, "tools", pattern=r"^Now:\s+\d+:\d+:\d+$", within=True),
        Rule(Action.DROP, "tools", pattern=r"^Now:\s+\d+:\d+:\d+$"),
        Rule(Action.ONE_FORM, "tools"),
    ]
)


def words_of(body: Body) -> Counter[str]:
    """What the model reads of a request, apart from order, blanks and Unicode form."""
    told = json.dumps([body.get("messages"), body.get("tools")], ensure_ascii=False, sort_keys=True)
    return Counter(
        re.findall(r"\w+|[^\w\s]", one_form(told.replace("\\n", " ").replace("\\r", " ").replace("\\t", " ")))
    )


@given(BODIES, RULES)
def test_what_was_given_stays_as_it_was_and_the_rest_of_the_request_too(
    body: dict[str, Any], rule: Rule
) -> None:
    before = copy.deepcopy(body)
    after = apply([rule], body)
    assert body == before
    assert {name: after[name] for name in after if name not in ("messages", "tools")} == {
        "model": "m",
        "temperature": 0.5,
    }


@given(STRANGE, RULES)
def test_no_request_is_so_strange_that_a_rule_fails(body: dict[str, Any], rule: Rule) -> None:
    before = copy.deepcopy(body)
    json.dumps(apply([rule], body))
    assert body == before


RESPONSES = {
    "instructions": "Now: 12:04\nBe kind.",
    "input": [
        {"role": "developer", "content": "Now: 12:05\nBe brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Where is it?"}]},
        {"type": "function_call_output", "call_id": "c", "output": "12"},
    ],
}


def test_requests_of_the_responses_api_are_rewritten_where_they_keep_it() -> None:
    rule = Rule(Action.MOVE, "system", pattern="^Now: .*$")
    after = apply([rule], RESPONSES)
    assert after["instructions"] == "Be kind."
    assert after["input"][0]["content"] == "Be brief."
    assert after["input"][1:3] == RESPONSES["input"][1:]
    assert after["input"][3] == {"role": "user", "content": "Now: 12:04\nNow: 12:05"}, "behind the result"
    spoken = apply([rule], {**RESPONSES, "input": RESPONSES["input"][:2]})
    assert spoken["input"][1]["content"] == [
        {"type": "input_text", "text": "Where is it?"},
        {"type": "input_text", "text": "Now: 12:04\nNow: 12:05"},
    ]
    asked = apply([rule], {"instructions": "Now: 12:04\nBe kind.", "input": "Where is it?"})
    assert asked == {"instructions": "Be kind.", "input": "Where is it?\n\nNow: 12:04"}
    assert apply([Rule(Action.ONE_FORM, "user")], {"input": "a  b"}) == {"input": "a b"}
    both = {"messages": [{"role": "user", "content": "a  b"}], "input": "c  d"}
    assert apply([Rule(Action.ONE_FORM, "user")], both)["input"] == "c  d", (
        "messages are the conversation then"
    )


def test_what_moves_behind_a_message_without_words_is_all_that_it_says() -> None:
    rule = Rule(Action.MOVE, "system", pattern="^Now: .*$")
    said: list[dict[str, Any]] = [{"role": "system", "content": "Now: 12:04\nBe kind."}]
    for empty in ({"role": "user", "content": None}, {"role": "user"}, {"role": "user", "content": ""}):
        after = apply([rule], {"messages": [*said, empty]})
        assert after["messages"][1]["content"] == "Now: 12:04"
    assert apply([rule], {"messages": said})["messages"][1] == {"role": "user", "content": "Now: 12:04"}


def test_a_rule_leaves_alone_what_is_nested_too_deep_for_it() -> None:
    deep: Any = {"a": 1}
    for _ in range(5000):
        deep = {"b": deep}
    body = {"tools": [deep], "messages": [{"role": "system", "content": "x  y"}]}
    after = apply([Rule(Action.SORT_KEYS, "tools"), Rule(Action.ONE_FORM, "system")], body)
    assert after["tools"][0] is deep
    text = {"messages": [{"role": "system", "content": '[{"b":' * 3000 + "1" + "}]" * 3000}]}
    assert apply([Rule(Action.SORT_KEYS, "system")], text) == text


FIXED = st.lists(st.sampled_from(["a", "b", "now", "at"]), min_size=1, max_size=2).map(r"\s+".join)
PATTERNS = st.builds(
    lambda begin, parts, gaps, end: begin + parts[0] + "".join(map(str.__add__, gaps, parts[1:])) + end,
    st.sampled_from(["", "^", r"[^\n]*?\s+"]),
    st.lists(FIXED, min_size=4, max_size=4),
    st.lists(st.sampled_from([r"\s+[^\n]*?\s+", r"\s+[^\n]+?\s+", r"[^\n]*?\."]), max_size=3),
    st.sampled_from(["", "$", r"[^\n]*?$", r"\s+[^\n]+?$"]),
)


@example(r"a\s+[^\n]+?$", "a  ")
@example(r"a\s+[^\n]*?\s+b", "a  b")
@given(
    PATTERNS, st.lists(st.sampled_from(["a", "b", "now", "at", " ", " ", "  ", ".", "x", "\n"])).map("".join)
)
def test_a_pattern_finds_what_it_says(pattern: str, text: str) -> None:
    meant = pattern.replace(r"\s+[", r"\s+(?=\S)[")  # a value does not begin with blanks
    own, found = search(pattern, text), re.search(meant, text, re.MULTILINE)
    assert (own and own.span()) == (found and found.span())


@pytest.mark.parametrize("begin", ["^", "", r"[^\n]*?\s+"])
def test_no_text_makes_a_pattern_take_longer_than_its_length(begin: str) -> None:
    """Searched for by the library, 2,000 characters of this take ten seconds."""
    pattern = begin + r"Hi\s+[^\n]*?,\s+you\s+are\s+[^\n]*?\s+at\s+[^\n]*?\s+end\."
    for unit in ("Hi , you are  at ", "Hi, ", "Hi\n", "you are at "):
        assert search(pattern, unit * 100_000) is None


@given(BODIES, RULES)
def test_a_rule_applied_twice_changes_nothing_more(body: dict[str, Any], rule: Rule) -> None:
    if rule.action in (Action.MOVE_MESSAGE, Action.DROP, Action.MOVE):
        return  # of several, each call takes one
    once = apply([rule], body)
    assert apply([rule], once) == once


@given(BODIES)
def test_sorted_tools_are_the_same_tools_in_any_order(body: dict[str, Any]) -> None:
    rules = [Rule(Action.SORT_KEYS, "tools"), Rule(Action.SORT_TOOLS, "tools")]
    after = apply(rules, body)
    assert Counter(json.dumps(one, sort_keys=True) for one in after["tools"]) == Counter(
        json.dumps(one, sort_keys=True) for one in body["tools"]
    )
    names = [one["function"]["name"] for one in after["tools"]]
    assert names == sorted(names)
    if len(set(names)) == len(names):
        turned = {**body, "tools": body["tools"][::-1]}
        assert json.dumps(apply(rules, turned)) == json.dumps(after)


@given(BODIES, RULES)
def test_nothing_that_is_said_gets_lost_unless_the_rule_says_so(body: dict[str, Any], rule: Rule) -> None:
    before, after = words_of(body), words_of(apply([rule], body))
    if rule.action is Action.DROP:
        assert after <= before
        assert before["rules"] == after["rules"]
    elif rule.action in (Action.MOVE, Action.MOVE_MESSAGE):
        for word in ("Now", "rules", "04"):
            assert after[word] == before[word]
    else:
        letters = {word: count for word, count in before.items() if word.isalnum()}
        assert {word: count for word, count in after.items() if word.isalnum()} == letters


@given(VALUES_OF_JSON)
def test_sorted_keys_say_the_same(value: Any) -> None:
    text = json.dumps({"x": value, "a": 1})
    body = {"messages": [{"role": "system", "content": text}]}
    after = apply([Rule(Action.SORT_KEYS, "system")], body)
    assert json.loads(after["messages"][0]["content"]) == json.loads(text)


def heads(bodies: list[Body]) -> set[str]:
    """What stands before the first question, without the last paragraph, where what lasts for a session may be."""
    return {
        json.dumps([body["messages"][0]["content"].partition("\n\n")[0], body.get("tools")])
        for body in bodies
    }


def rewritten(
    changes: list[Change], *, tools: bool = False, language: str = "en", n: int = 60
) -> tuple[int, int]:
    """How many heads there are before and after the rules of what is found."""
    prompts = log(changes, tools=tools, language=language, n=n)
    rules = [rule for slot in learn(prompts) for rule in rules_of(slot)]
    bodies = [prompt.body for prompt in prompts if prompt.body]
    return len(heads(bodies)), len(heads([apply(rules, body) for body in bodies]))


@pytest.mark.parametrize("language", planted.RULES)
@pytest.mark.parametrize("name", VALUES)
def test_the_rule_for_a_value_makes_one_head_of_all(name: str, language: str) -> None:
    before, after = rewritten([VALUES[name][0]], language=language)
    assert before > 1
    assert after == 1


@pytest.mark.parametrize("name", [name for name in TOOLS if name != "set"])
def test_the_rule_for_tools_makes_one_head_of_all(name: str) -> None:
    before, after = rewritten([TOOLS[name][0]], tools=True)
    assert (before > 1, after) == (True, 1)


@pytest.mark.parametrize("name", PAIRS)
def test_the_rules_of_two_faults_make_one_head_of_all(name: str) -> None:
    before, after = rewritten(PAIRS[name][0], tools=True)
    assert (before > 1, after) == (True, 1)


def test_the_rule_for_what_is_rare_is_about_that_alone() -> None:
    assert rewritten([sometimes(at_top(clock("Now: %H:%M:%S")), 0.06)], n=250)[1] == 1


def test_a_rule_for_the_time_holds_on_another_day() -> None:
    prompts = log([at_top(clock("Today is %A, %d %B %Y, %H:%M."))])
    rules = [rule for slot in learn(prompts) for rule in rules_of(slot)]
    body = {
        "messages": [
            {"role": "system", "content": "Today is Friday, 25 December 2026, 07:15.\nBe kind."},
            {"role": "user", "content": "Hello"},
        ]
    }
    assert [message["content"] for message in apply(rules, body)["messages"]] == [
        "Be kind.",
        "Hello\n\nToday is Friday, 25 December 2026, 07:15.",
    ]


def test_a_value_beside_another_is_not_dropped_with_it() -> None:
    prompts = log([at_top(lambda made: f"{planted.request_id(made)} for {planted.user_name(made)}")])
    rules = [rule for slot in learn(prompts) for rule in rules_of(slot)]
    assert {rule.action for rule in rules} == {Action.MOVE}
    first = prompts[0].body
    assert first
    assert "customer is called" in apply(rules, first)["messages"][-1]["content"]


def test_what_was_looked_up_moves_behind_the_conversation() -> None:
    prompts = conversations([planted.memory_first])
    rules = [rule for slot in learn(prompts) for rule in rules_of(slot)]
    body = prompts[-1].body
    assert body
    after = apply(rules, body)
    assert [m["role"] for m in after["messages"]] == [
        m["role"] for m in body["messages"] if "Looked up" not in m["content"]
    ]
    assert after["messages"][-1]["content"].endswith(body["messages"][1]["content"])


def test_one_form_takes_out_what_is_neither_seen_nor_joins() -> None:
    assert one_form("\ufeffBe\u200b ki\u00adnd.\r\n\n") == "Be kind."
    family, word = "\U0001f468\u200d\U0001f469", "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    assert one_form(f"{family} {word}") == f"{family} {word}"
    assert one_form("a\n\n\nb") == "a\n\n\nb"
