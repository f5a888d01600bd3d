"""Values that hide in what is one sentence to the eye: heads of one line, definitions of tools, short instructions."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.clusters import clusters
from analysis.advisor.learning.learn import learn
from analysis.advisor.learning.text.pieces import LONG, phrases, pieces, size
from analysis.advisor.rewriting.words import sentences
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import RULES, Change, Log, conversations, log

SYSTEM = "messages[0].content"
THAI = (
    "ผู้ช่วยของร้านหนังสือต้องทักทายลูกค้าด้วยชื่อจริงทุกครั้งที่ทราบชื่อ ห้ามสัญญาวันจัดส่งที่แน่นอนและให้บอกช่วงเวลาโดยประมาณเท่านั้น "
    "รับคืนสินค้าภายในสามสิบวันเมื่อมีใบเสร็จ ห้ามแนะนำร้านคู่แข่งหรือพูดถึงลูกค้ารายอื่น ตอบไม่เกินสามย่อหน้าสั้นโดยไม่ใช้ตาราง "
)
Made = Callable[[Log, str], str]


def bare(language: str) -> list[str]:
    """The rules without what ends a sentence, and each of them once."""
    return [rule.rstrip(".。") for rule in RULES[language]]


def one_line_json(made: Log, value: str) -> str:
    return json.dumps(
        {"role": "clerk", "at": value, "rules": bare(made.language)},
        ensure_ascii=False,
        separators=(",", ":"),
    )


def one_line_xml(made: Log, value: str) -> str:
    return (
        f"<prompt ref='{value}'>"
        + "".join(f"<rule>{one}</rule>" for one in bare(made.language))
        + "</prompt>"
    )


def one_sentence(made: Log, value: str) -> str:
    comma = "、" if made.language == "ja" else ", "
    return f"{value}{comma}" + comma.join(bare(made.language))


def one_text_without_signs(_: Log, value: str) -> str:
    return f"{value} {THAI}"


HEADS: dict[str, Made] = {
    "JSON": one_line_json,
    "XML": one_line_xml,
    "one sentence": one_sentence,
    "no signs at all": one_text_without_signs,
}


def head(make: Made, value: Callable[[Log], str]) -> Change:
    def change(made: Log, _: int) -> None:
        made.system = make(made, value(made))

    return change


def an_id(made: Log) -> str:
    return f"{made.random.getrandbits(44):011x}"


VALUES: dict[str, tuple[Callable[[Log], str], set[Cause]]] = {
    "time": (planted.clock("%Y-%m-%dT%H:%M:%S"), {Cause.CLOCK}),
    "id": (an_id, {Cause.NONCE, Cause.NONCE_IN_USE, Cause.UNKNOWN}),
}


@pytest.mark.parametrize("language", planted.RULES)
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("value", VALUES)
def test_a_value_in_a_head_of_one_line(value: str, name: str, language: str) -> None:
    make, causes = VALUES[value]
    (slot,) = learn(log([head(HEADS[name], make)], 80, language=language))
    assert slot.path == SYSTEM
    assert slot.cause in causes
    assert slot.requests >= 78
    assert max(len(one.value) for one in slot.seen) < 40  # the value, and not the line


@pytest.mark.parametrize("language", planted.RULES)
@pytest.mark.parametrize("name", HEADS)
def test_nothing_is_said_of_a_head_of_one_line_that_stays(name: str, language: str) -> None:
    assert learn(log([head(HEADS[name], lambda _: "v2")], 80, language=language)) == []


@pytest.mark.parametrize("name", ["JSON", "XML", "one sentence"])
def test_an_order_of_tools_is_seen_behind_a_head_of_one_line(name: str) -> None:
    found = {
        slot.cause for slot in learn(log([head(HEADS[name], an_id), planted.tools_shuffled], 80, tools=True))
    }
    assert Cause.TOOL_ORDER in found
    assert len(found) == 2


@pytest.mark.parametrize("sign", "，、；")
def test_a_time_in_a_line_of_a_script_without_blanks(sign: str) -> None:
    """Nothing but what the time is called stands beside it: all words of such a script do."""

    def change(made: Log, _: int) -> None:
        made.system = f"現在時刻{made.last.time:%Y年%m月%d日%H時%M分%S秒}{sign}" + sign.join(bare("ja"))

    (slot,) = learn(log([change], 80, language="ja"))
    assert (slot.cause, slot.path) == (Cause.CLOCK, SYSTEM)
    assert max(len(one.value) for one in slot.seen) <= len("11月03日09時30分00秒")


SHORT = {
    "en": "You are a helpful assistant of a bookshop and it is {} right now",
    "fi": "Olet kirjakaupan avustaja ja kello on nyt {} joten vastaa lyhyesti",
    "ja": "あなたは書店の案内係で現在時刻は{}です",
}


@pytest.mark.parametrize("language", SHORT)
def test_a_time_in_instructions_of_one_short_sentence(language: str) -> None:
    def change(made: Log, _: int) -> None:
        made.system = SHORT[language].format(f"{made.last.time:%H:%M:%S}")

    (slot,) = learn(conversations([change], language=language))
    assert (slot.cause, slot.path) == (Cause.CLOCK, SYSTEM)


def test_instructions_of_one_short_sentence_that_stay() -> None:
    def change(made: Log, _: int) -> None:
        made.system = SHORT["en"].format("noon")

    assert learn(conversations([change])) == []


def _only(make: Made, rules: tuple[str, ...]) -> Change:
    def change(made: Log, _: int) -> None:
        made.system = make(made, an_id(made)).replace(RULES["en"][0].rstrip("."), rules[0])
        for own, other in zip(RULES["en"][1:], rules[1:], strict=True):
            made.system = made.system.replace(own.rstrip("."), other)

    return change


@pytest.mark.parametrize("name", ["JSON", "XML", "one sentence"])
def test_applications_of_one_line_each_are_clusters_of_their_own(name: str) -> None:
    others = (
        "You triage incoming tickets of a telephone company by urgency",
        "Label outages as urgent when more than ten households report one",
        "Copy the street and the postcode into the field for places word by word",
        "Leave the field for amounts empty where no invoice is mentioned",
        "Mark duplicates with the number of the oldest ticket that says the same",
        "Reply with one object of the given schema and add no words around it",
    )
    ours = log([head(HEADS[name], an_id)], 30)
    theirs = log([_only(HEADS[name], others)], 30, seed=1)
    found = clusters([one for pair in zip(ours, theirs, strict=True) for one in pair])
    assert [len(one.requests) for one in found] == [30, 30]


# Definitions of tools.


def described(made: Log) -> str:
    return f"Looks in the stock as of {made.last.time:%H:%M:%S}"


FIELDS = ("title", "author", "branch", "shelf", "language", "binding", "condition", "price")


def tools_with(change: Callable[[dict[str, Any], Log], None], at: int) -> Change:
    """One definition is changed; all have more in their schemas than in their descriptions."""

    def put(made: Log, _: int) -> None:
        for one in made.last.tools:
            own = {
                name: {"type": "string", "description": f"The {name} to look for, none for any"}
                for name in FIELDS
            }
            one["function"]["parameters"]["properties"].update(own)
        change(made.last.tools[at]["function"], made)

    return put


def ending_in_a_time(one: dict[str, Any], made: Log) -> None:
    one["description"] = described(made)


def beginning_with_an_id(one: dict[str, Any], made: Log) -> None:
    one["description"] = f"[{an_id(made)}] {one['description']}"


def ending_in_an_id(one: dict[str, Any], made: Log) -> None:
    one["description"] += f"Trace {an_id(made)}"


def default_of_now(one: dict[str, Any], made: Log) -> None:
    one["parameters"]["properties"]["limit"]["default"] = int(made.last.time.timestamp())


def strict_at_times(one: dict[str, Any], made: Log) -> None:
    if made.random.random() < 0.4:
        one["strict"] = True


def blank_at_times(one: dict[str, Any], made: Log) -> None:
    one["description"] = one["description"].strip() + " " * made.random.randrange(2)


IN_TOOLS: dict[str, tuple[Callable[[dict[str, Any], Log], None], set[Cause]]] = {
    "a time at the end": (ending_in_a_time, {Cause.CLOCK}),
    "an id in front": (beginning_with_an_id, {Cause.NONCE, Cause.NONCE_IN_USE}),
    "an id at the end": (ending_in_an_id, {Cause.NONCE, Cause.NONCE_IN_USE}),
    "a default of now": (default_of_now, {Cause.CLOCK}),
    "strict at times": (strict_at_times, {Cause.VARIANT}),
    "a blank at times": (blank_at_times, {Cause.WHITESPACE}),
}


@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("name", IN_TOOLS)
def test_a_value_in_a_definition(name: str, at: int) -> None:
    change, causes = IN_TOOLS[name]
    (slot,) = learn(log([tools_with(change, at)], 80, tools=True))
    assert slot.cause in causes
    assert slot.path == f"tools[{at}]"


@pytest.mark.parametrize("language", planted.RULES)
def test_a_value_in_a_definition_of_another_api_and_language(language: str) -> None:
    def put(made: Log, _: int) -> None:
        made.last.tools = [
            {"name": one, "description": RULES[language][at], "input_schema": {"type": "object"}}
            for at, one in enumerate(planted.TOOLS)
        ]
        made.last.tools[2]["description"] += f" ({made.last.time:%d.%m.%Y %H:%M:%S})"

    (slot,) = learn(log([put], 80, language=language, tools=True))
    assert (slot.cause, slot.path) == (Cause.CLOCK, "tools[2]")


# Laws.


def test_short_sentences_are_pieces_as_they_are() -> None:
    text = "\n".join(RULES["en"])
    assert pieces(text) == sentences(text)


WORDS = st.lists(st.sampled_from([word for rule in RULES["fi"] for word in rule.split()]), max_size=60)


@given(WORDS, WORDS, st.uuids(), st.uuids())
def test_a_value_changes_the_phrases_that_it_is_in(
    before: list[str], after: list[str], a: Any, b: Any
) -> None:
    """All that end before it, and all that begin behind the next end, stay."""
    first, second = (phrases(" ".join([*before, str(one), *after])) for one in (a, b))
    ahead, behind = phrases(" ".join(before))[:-1], phrases(" ".join(after))[1:]
    for told in (first, second):
        assert told[: len(ahead)] == ahead
        assert told[len(told) - len(behind) :] == behind


@given(WORDS)
def test_phrases_leave_out_no_word(said: list[str]) -> None:
    assert " ".join(phrases(" ".join(said))).split() == [
        one for word in said for one in "".join(c if c.isalpha() else " " for c in word).split()
    ]


@given(st.lists(st.sampled_from(RULES["ja"] + RULES["en"]), min_size=1, max_size=12), st.sampled_from("、,|"))
def test_clauses_of_a_long_sentence_are_short(said: list[str], sign: str) -> None:
    text = f"{sign} ".join(one.rstrip(".。") for one in said)
    assert all(size(piece) <= LONG for piece in pieces(text)) or len(text) <= LONG


def test_a_log_of_heads_of_one_line_is_one_cluster_however_it_begins() -> None:
    chance = random.Random(5)
    prompts = log([head(one_line_json, an_id)], 60)
    chance.shuffle(prompts)
    assert len(clusters(prompts)) == 1
