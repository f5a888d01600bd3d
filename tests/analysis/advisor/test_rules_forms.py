"""Rules do the same to a conversation in whichever API it is sent: what they say, nothing else, and no cache mark is
lost."""

from __future__ import annotations

import copy
import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.advisor.rewriting.rules import Action, Body, Rule, apply
from cachemodel.prompts.model import Kind, Part
from cachemodel.prompts.read import read
from tests.analysis.advisor.forms import FORMS, MARK, NOW, PATTERN, POINT, TALKS, Talk

CUTS = [
    Rule(Action.MOVE, "system", PATTERN),
    Rule(Action.MOVE, "system", PATTERN, within=True),
    Rule(Action.MOVE, "user", PATTERN, within=True),
    Rule(Action.MOVE, "assistant", PATTERN, within=True),
    Rule(Action.MOVE, "tools", PATTERN),
    Rule(Action.MOVE, "tools", PATTERN, within=True),
    Rule(Action.MOVE_MESSAGE, "system", "^Now:", message=1),
    Rule(Action.MOVE_MESSAGE, "system", "^Now:", message=0, within=True),
    Rule(Action.DROP, "system", PATTERN),
    Rule(Action.DROP, "user", PATTERN),
    Rule(Action.DROP, "tools", PATTERN),
]
FORMING = [
    Rule(Action.ONE_FORM, "system"),
    Rule(Action.ONE_FORM, "assistant"),
    Rule(Action.ONE_FORM, "tools"),
    Rule(Action.SORT_ITEMS, "system", items=("Be brief.", NOW)),
    Rule(Action.SORT_TOOLS, "tools"),
    Rule(Action.SORT_KEYS, "tools"),
]
BODIES = st.builds(lambda form, talk: FORMS[form](talk), st.sampled_from(sorted(FORMS)), TALKS)
RULES = st.sampled_from([*CUTS, *FORMING])


def parts(body: Body) -> Sequence[Part]:
    told = read({"body": body}, "f")
    assert not isinstance(told, str), told
    return told[0].parts


def words(body: Body) -> Counter[str]:
    """What the model reads of a request, apart from order and blanks."""
    said = [one.text.replace("\\n", "\n").replace("\\r", "\n") for one in parts(body)]
    return Counter(word for text in said for word in re.findall(r"\w+", text))


def marks(body: Body) -> Sequence[str]:
    told = read({"body": body}, "f")
    assert not isinstance(told, str), told
    return told[0].marks


@given(BODIES, RULES)
def test_what_was_given_stays_as_it_was(body: dict[str, Any], rule: Rule) -> None:
    before = copy.deepcopy(body)
    apply([rule], body)
    assert body == before


@given(BODIES, RULES)
def test_a_rule_applied_twice_changes_nothing_more(body: dict[str, Any], rule: Rule) -> None:
    once = apply([rule], body)
    several = (
        sum(one.role in ("system", "developer") and one.text.startswith("Now:") for one in parts(body)) > 1
    )
    if rule.action is Action.MOVE_MESSAGE and several:
        return  # the next one stands in its place then
    assert apply([rule], once) == once


@given(BODIES, RULES)
def test_nothing_that_is_said_gets_lost_unless_the_rule_says_so(body: dict[str, Any], rule: Rule) -> None:
    before, after = words(body), words(apply([rule], body))
    names = {name for part in parts(body) if part.kind is Kind.TOOL for name in re.findall(r"\w+", part.text)}
    lost, new = before - after, after - before
    if rule.action is not Action.DROP:
        once = rule.role == "tools"  # what several descriptions say is told once, with all of their names
        assert set(before) == set(after) if once else not lost
    assert set(lost) <= set(re.findall(r"\w+", NOW))
    assert set(new) <= (names if rule.role == "tools" else set()), "what a moved sentence is said of"


@given(BODIES, RULES)
def test_what_the_rule_is_not_about_stays_where_it_is(body: dict[str, Any], rule: Rule) -> None:
    """Texts of other roles in their order, the last message of the user apart, behind which things move."""
    after = apply([rule], body)
    own = {"system": ("system", "developer"), "assistant": ("assistant", "model")}.get(
        rule.role, (rule.role,)
    )
    told = [[(one.role, one.text) for one in parts(each) if one.role not in own] for each in (body, after)]
    if rule.within and rule.role == "tools":
        told = [[one for one in each if one[0] not in ("system", "developer")] for each in told]
    assert told[1][: len(told[0])] == told[0] or told[1][: len(told[0]) - 1] == told[0][:-1]
    assert "".join(text for _, text in told[1]).startswith("".join(text for _, text in told[0]))
    fixed = ("model", "instructions") if rule.role != "system" else ("model",)
    assert all(after.get(name) == body.get(name) for name in fixed if not rule.within)


@given(BODIES, st.sampled_from([r"^Then:\s+\d+$", r"^Now:\s+\d+$"]), st.sampled_from(CUTS))
def test_without_its_pattern_a_request_stays_the_same_one(
    body: dict[str, Any], pattern: str, rule: Rule
) -> None:
    other = Rule(rule.action, rule.role, pattern, message=rule.message, within=rule.within)
    assert apply([other], body) is body


def said(content: Any) -> list[tuple[str, bool]]:
    """The texts of a content's blocks, and whether a cache ends behind each."""
    told: list[tuple[str, bool]] = []
    for block in content:
        if "text" in block:
            told.append((block["text"], "cache_control" in block))
        else:
            assert block == POINT
            assert told, "a mark behind nothing"
            assert not told[-1][1], "two at one place"
            told[-1] = told[-1][0], True
    return told


@given(
    TALKS,
    st.sampled_from(["anthropic", "bedrock"]),
    st.sampled_from([Action.DROP, Action.MOVE]),
    st.booleans(),
)
def test_no_mark_gets_lost(talk: Talk, form: str, action: Action, within: bool) -> None:
    """Each stands behind the blocks that it stood behind, without those that are gone; at the first one that is left
    where none of those is."""
    body = FORMS[form](talk)
    if "system" not in body or (action is Action.DROP and within):
        return
    before = said(body["system"])
    after = said(apply([Rule(action, "system", PATTERN, within=within)], body).get("system", []))
    gone = [text == NOW for text, _ in before]
    if all(gone):
        assert before == after
        return
    if within:
        last = [one and not marked for one, (_, marked) in zip(gone, before, strict=True)]
        trailing = last[::-1].index(False)
        gone[len(gone) - trailing :] = [False] * trailing
    places = {max(1, at + 1 - sum(gone[: at + 1])) for at, (_, marked) in enumerate(before) if marked}
    assert {at + 1 for at, (_, marked) in enumerate(after) if marked} == places


@given(BODIES, RULES)
def test_no_block_is_empty_and_each_is_of_the_form_of_the_others(body: dict[str, Any], rule: Rule) -> None:
    after = apply([rule], body)
    system = after.get("system", after.get("systemInstruction", {"parts": []}))
    messages = after.get("messages", after.get("input", after.get("contents")))
    contents = [system["parts"] if isinstance(system, dict) else system]
    contents += [one.get("content", one.get("parts")) for one in messages]
    typed = not ("toolConfig" in body or "contents" in body)
    kinds = {"input_text", "output_text"} if "input" in body else {"text"}
    for content in contents:
        for block in content if isinstance(content, list) else ():
            assert block == POINT or block["text"].strip()
            assert (block.get("type") in kinds) if typed else ("type" not in block)
        assert content or content is contents[0]


def test_what_a_tool_says_moves_with_its_name_and_examples_stay() -> None:
    told = f"Finds a book.\n{NOW}\nAsk first."
    talk = Talk([], [[]], [("search", told, told), ("hold", told, NOW)])
    for name, make in FORMS.items():
        body = {**make(talk), "messages": [{"role": "user", "content": "Where?"}]}
        body = {one: value for one, value in body.items() if one not in ("contents", "input", "instructions")}
        after = apply([Rule(Action.MOVE, "tools", PATTERN)], body)
        moved = f"search, search.description, hold: {NOW}"
        assert after["messages"] == [{"role": "user", "content": f"Where?\n\n{moved}"}], name
        left = json.dumps({**after, "messages": []})
        assert left.count(NOW) == 3, "two examples, and all that a description says"
        assert left.count("Finds a book.\\nAsk first.") == 3
        dropped = apply([Rule(Action.DROP, "tools", PATTERN)], body)
        assert dropped == {**after, "messages": body["messages"]}


def test_what_lasts_for_a_session_goes_from_tools_behind_what_all_share_of_the_system() -> None:
    rule = Rule(Action.MOVE, "tools", PATTERN, within=True)
    tools = [{"name": "search", "description": f"Finds a book.\n{NOW}", "input_schema": {}}]
    asked = [{"role": "user", "content": "Where?"}]
    rules = {"type": "text", "text": "Be kind.", **MARK}
    line = f"search: {NOW}"
    for system, after in (
        ("Be kind.", f"Be kind.\n\n{line}"),
        ([rules], [rules, {"type": "text", "text": line}]),
        ([{"text": "Be kind."}, POINT], [{"text": "Be kind."}, POINT, {"text": line}]),
    ):
        told = apply([rule], {"tools": tools, "system": system, "messages": asked})
        assert (told["system"], told["messages"]) == (after, asked)
    chat = [{"role": "system", "content": "Be kind."}, *asked]
    assert apply([rule], {"tools": tools, "messages": chat})["messages"] == [
        {"role": "system", "content": f"Be kind.\n\n{line}"},
        *asked,
    ]
    assert apply([rule], {"tools": tools, "messages": asked})["messages"][0]["content"] == f"Where?\n\n{line}"
    parts = {"parts": [{"text": "Be kind."}]}
    told = apply([rule], {"tools": tools, "system_instruction": parts, "contents": []})
    assert told["system_instruction"] == {"parts": [{"text": f"Be kind.\n\n{line}"}]}


def test_behind_a_result_a_message_of_the_apis_own_form_comes() -> None:
    gemini = {
        "systemInstruction": {"parts": [{"text": f"{NOW}\nBe kind."}]},
        "contents": [{"parts": [{"text": "Go"}]}, {"role": "function", "parts": [{"functionResponse": {}}]}],
    }
    after = apply([CUTS[0]], gemini)
    assert after["contents"] == [*gemini["contents"], {"role": "user", "parts": [{"text": NOW}]}]
    asked = apply([CUTS[0]], {**gemini, "contents": gemini["contents"][:1]})
    assert asked["contents"] == [{"parts": [{"text": "Go"}, {"text": NOW}]}]
    bedrock = {"system": [{"text": f"{NOW}\nBe kind."}], "messages": []}
    assert apply([CUTS[0]], bedrock)["messages"] == [{"role": "user", "content": [{"text": NOW}]}]
    result = [{"toolResult": {"toolUseId": "t", "content": [{"text": NOW}]}}]
    bedrock = {**bedrock, "messages": [{"role": "user", "content": result}]}
    assert apply([CUTS[0]], bedrock)["messages"] == [{"role": "user", "content": [*result, {"text": NOW}]}]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"b":1,"a":2}'}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {"b": 1, "a": 2}}]},
        {"role": "assistant", "content": [{"toolUse": {"name": "f", "input": {"b": 1, "a": 2}}}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"b": 1, "a": 2}}}]},
        {"type": "function_call", "name": "f", "arguments": '{"b":1,"a":2}'},
    ],
)
def test_the_arguments_of_calls_come_in_one_order(message: dict[str, Any]) -> None:
    talk = "contents" if "parts" in message else "input" if "type" in message else "messages"
    body = {talk: [{"role": "user", "content": "Go"}, message]}
    (call,) = [
        one for one in parts(apply([Rule(Action.SORT_KEYS, "assistant")], body)) if one.kind is Kind.CALL
    ]
    assert re.search(r"a\W+2\W+b\W+1", call.text)
    assert apply([Rule(Action.SORT_KEYS, "user")], body) is body


def test_tools_of_each_api_come_in_one_order() -> None:
    told = [("c", "c", "c"), ("a", "a", "a"), ("b", "b", "b")]
    rule = Rule(Action.SORT_TOOLS, "tools")
    for make in FORMS.values():
        after, turned = (apply([rule], make(Talk([], [[]], own))) for own in (told, told[::-1]))
        assert json.dumps(after) == json.dumps(turned)
    points = [{"toolSpec": {"name": "b"}}, POINT, {"toolSpec": {"name": "a"}}]
    after = apply([rule], {"toolConfig": {"tools": points}})
    assert after["toolConfig"]["tools"] == [points[2], POINT, points[0]]


def test_no_text_makes_a_rule_slow_wherever_it_stands() -> None:
    text = "Now: 1" + " " * 100_000 + "1" * 100_000
    body = {"tools": [{"name": "a", "description": text}], "system": [{"type": "text", "text": text}] * 3}
    begun = time.process_time()
    for rule in [one for one in CUTS if one.pattern == PATTERN]:
        assert apply([rule], body) is body
    assert time.process_time() - begun < 2.0


@pytest.mark.parametrize("rule", [CUTS[0], CUTS[8], Rule(Action.MOVE_MESSAGE, "system", "^Now:", message=0)])
def test_the_mark_of_a_message_that_goes_is_its_neighbours(rule: Rule) -> None:
    clock, rules = {"role": "system", "content": NOW, **MARK}, {"role": "system", "content": "Be kind."}
    asked = {"role": "user", "content": "Where?"}
    orders = (
        [[clock, rules, asked]]
        if rule.action is Action.MOVE_MESSAGE
        else [[clock, rules, asked], [rules, clock, asked]]
    )
    for messages in orders:
        after = apply([rule], {"messages": messages})["messages"]
        assert after[0] == {**rules, **MARK}
        assert [one["role"] for one in after] == ["system", "user"]
