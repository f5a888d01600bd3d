"""What says the same and is written in another way is called what it is, and the rule makes it one again."""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.learn import learn
from analysis.advisor.learning.messages.history import changes
from analysis.advisor.learning.remedy import rules_of
from analysis.advisor.learning.text.json_forms import way
from analysis.advisor.rewriting.rules import apply
from cachemodel.prompts.model import Kind, Part, Prompt
from cachemodel.prompts.read import read
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import Change, Log, after_first_line, at_top, clock, conversations, log

SYSTEM = "messages[0].content"
ACCOUNT = {
    "Straße": "Königsallee",
    "plan": "Flex 20",
    "router": {"model": "X5", "fw": 1.5},
    "fees": ["a", "b"],
}


def one_of(made: Log, ways: list[str]) -> str:
    return made.random.choice(ways)


def ended(ends: list[str]) -> Change:
    def change(made: Log, _: int) -> None:
        made.system = made.system.rstrip() + one_of(made, ends)

    return change


def begun(signs: list[str]) -> Change:
    def change(made: Log, _: int) -> None:
        made.system = one_of(made, signs) + made.system

    return change


EDGES: dict[str, Change] = {
    "line ends at the end": ended(["", "\n", "\n\n"]),
    "a blank at the end": ended(["", " "]),
    "a line end at the end, in few": ended([""] * 5 + ["\n"]),
    "a byte order mark": begun(["", "\ufeff"]),
    "what nobody sees in front": begun(["", "", "\u200b"]),
    "line ends in front": begun(["", "\n"]),
}


@pytest.mark.parametrize("language", planted.RULES)
@pytest.mark.parametrize("name", EDGES)
def test_blanks_in_front_of_a_text_and_behind_it(name: str, language: str) -> None:
    (slot,) = learn(conversations([EDGES[name]], language=language))
    assert (slot.cause, slot.path) == (Cause.WHITESPACE, SYSTEM)


def test_blanks_behind_a_text_that_all_have_are_nothing() -> None:
    assert learn(conversations([ended(["\n"])])) == []


def test_blanks_beside_a_value_fill_its_column() -> None:
    """A number that is set flush right brings more blanks or fewer."""
    aligned = at_top(lambda made: f"Load: {made.random.randrange(1, 120):>5} per minute")
    (slot,) = learn(log([aligned], 80))
    assert slot.cause is Cause.MEASUREMENT


def test_line_ends_beside_a_value_are_told() -> None:
    def change(made: Log, index: int) -> None:
        made.system = made.system.replace("\n", "\r\n" if index % 3 else "\n", 1)

    both = [after_first_line(clock("Now: %H:%M:%S")), change]
    assert {slot.cause for slot in learn(log(both, 80))} == {Cause.CLOCK, Cause.WHITESPACE}


# JSON.


def account(written: Callable[[dict[str, Any], Log], str]) -> Change:
    return at_top(lambda made: f"Account: {written(ACCOUNT, made)}")


def indented(value: dict[str, Any], made: Log) -> str:
    return json.dumps(value, ensure_ascii=False, indent=made.random.choice([None, 2, 4]))


def compact(value: dict[str, Any], made: Log) -> str:
    return json.dumps(value, ensure_ascii=False, separators=made.random.choice([(",", ":"), (", ", ": ")]))


def escaped(value: dict[str, Any], made: Log) -> str:
    return json.dumps(value, ensure_ascii=made.random.random() < 0.5)


def numbers(value: dict[str, Any], made: Log) -> str:
    return json.dumps(value, ensure_ascii=False).replace("1.5", made.random.choice(["1.5", "1.50", "1.500"]))


def ordered(value: dict[str, Any], made: Log) -> str:
    return json.dumps(planted.shuffled_keys(value, made.random), ensure_ascii=False)


WAYS: dict[str, tuple[Callable[[dict[str, Any], Log], str], Cause, str]] = {
    "indent": (indented, Cause.WHITESPACE, "blanks and line ends in up to 3 ways"),
    "compact": (compact, Cause.WHITESPACE, "blanks and line ends in up to 2 ways"),
    "escapes": (escaped, Cause.UNICODE, "escaped"),
    "numbers": (numbers, Cause.KEY_ORDER, "numbers in up to 3 ways, its keys in one order"),
    "order": (ordered, Cause.KEY_ORDER, "orders"),
}


@pytest.mark.parametrize("name", WAYS)
def test_json_in_a_text_is_told_by_what_differs_and_put_right(name: str) -> None:
    written, cause, detail = WAYS[name]
    prompts = log([account(written)], 80)
    (slot,) = learn(prompts)
    assert (slot.cause, slot.path) == (cause, SYSTEM)
    assert detail in slot.detail
    heads = [apply(rules_of(slot), one.body or {})["messages"][0]["content"] for one in prompts]
    assert len({one.parts[0].text for one in prompts}) > 1
    assert len(set(heads)) == 1


def test_json_that_is_written_in_one_way_is_nothing() -> None:
    assert learn(log([account(lambda value, _: json.dumps(value, indent=2))], 80)) == []


@given(st.dictionaries(st.text(max_size=6), st.integers() | st.text(max_size=6), min_size=2, max_size=5))
def test_what_json_differs_in_is_what_was_changed(value: dict[str, Any]) -> None:
    one = json.dumps(value, ensure_ascii=False)
    turned = json.dumps(dict(reversed(value.items())), ensure_ascii=False)
    assert way((one, json.dumps(value, ensure_ascii=False, indent=1)))[0] is Cause.WHITESPACE
    assert way((one, turned))[0] is Cause.KEY_ORDER
    if (other := json.dumps(value)) != one:
        assert way((one, other))[0] is Cause.UNICODE


def called(arguments: str) -> str:
    return json.dumps({"name": "find", "arguments": arguments}, ensure_ascii=False, separators=(",", ":"))


GIVEN = {"title": "Die Räuber", "branch": 2}


@pytest.mark.parametrize(
    ("now", "cause"),
    [
        (json.dumps(GIVEN, ensure_ascii=False, separators=(",", ":")), Cause.WHITESPACE),
        (json.dumps(GIVEN, ensure_ascii=False, indent=2), Cause.WHITESPACE),
        (json.dumps(GIVEN), Cause.UNICODE),
        (json.dumps(dict(reversed(GIVEN.items())), ensure_ascii=False), Cause.KEY_ORDER),
    ],
)
def test_arguments_of_a_call_that_are_written_anew(now: str, cause: Cause) -> None:
    def prompt(number: int, arguments: str) -> Prompt:
        call = Part("messages[1].tool_calls[0].function", "assistant", Kind.CALL, called(arguments), 1)
        asked = Part("messages[0].content", "user", Kind.TEXT, "Where does this one stand, please?", 0)
        found = Part("messages[2].content", "tool", Kind.RESULT, "Third floor, shelf nine.", 2)
        more = Part("messages[3].content", "user", Kind.TEXT, "And the other?", 3)
        return Prompt(request_id=f"r{number}", parts=(asked, call, found, *([more] * number)))

    before, after = prompt(0, json.dumps(GIVEN, ensure_ascii=False)), prompt(1, now)
    (change,) = changes(1, after, 0, before)
    assert change.cause is cause


@pytest.mark.parametrize("name", ["indent", "escapes", "order"])
def test_calls_are_put_right(name: str) -> None:
    written, cause, _ = WAYS[name]
    requests = []
    for one in conversations([], turns=6):
        made = Log(random.Random(one.request_id), "en")
        body = json.loads(json.dumps(one.body))
        for message in body["messages"][2:3]:
            call = {"name": "find", "arguments": written(ACCOUNT, made)}
            message["tool_calls"] = [{"id": "c", "type": "function", "function": call}]
        requests.append((one, body))
    prompts = [
        prompt
        for one, body in requests
        for prompt in read(
            {
                "request_id": one.request_id,
                "timestamp": one.time,
                "session_id": one.session,
                "body": {"model": "m", **body},
            },
            one.request_id,
        )
        if isinstance(prompt, Prompt)
    ]
    slot = next(one for one in learn(prompts) if "tool_calls" in one.path)
    assert slot.cause is cause
    told = [apply(rules_of(slot), prompt.body or {})["messages"] for prompt in prompts]
    written_as = {
        call["function"]["arguments"]
        for messages in told
        for message in messages
        for call in message.get("tool_calls", ())
    }
    assert len(written_as) == 1


def test_a_unicode_form_of_words_is_still_one() -> None:
    """Escapes of JSON have a rule of their own; words do not."""

    def change(made: Log, index: int) -> None:
        made.system = unicodedata.normalize("NFD" if index % 2 else "NFC", made.system)

    (slot,) = learn(log([change], language="fi"))
    assert slot.cause is Cause.UNICODE
    assert [rule.action.value for rule in rules_of(slot)] == ["one form"]


# What one line lists.

TOPICS = ("billing", "roaming", "number porting", "outages", "insurance", "fibre")


@pytest.mark.parametrize("form", ["Allowed topics: {}", "<topics {}/>", "Aiheet ovat: {}."])
def test_what_one_line_lists_now_in_this_order_and_now_in_that(form: str) -> None:
    sign = " " if "<" in form else ", "
    listed = [f'{one.replace(" ", "")}="1"' for one in TOPICS] if "<" in form else list(TOPICS)
    shuffled = after_first_line(lambda made: form.format(sign.join(made.random.sample(listed, len(listed)))))
    (slot,) = learn(log([shuffled], 80))
    assert (slot.cause, slot.path) == (Cause.ITEM_ORDER, SYSTEM)
    assert "words in" in slot.detail


def test_what_one_line_lists_of_many_is_no_order() -> None:
    some = after_first_line(lambda made: "Allowed topics: " + ", ".join(made.random.sample(TOPICS, 3)))
    (slot,) = learn(log([some], 80))
    assert slot.cause is not Cause.ITEM_ORDER
