"""What a rule takes or reorders is what was learned, and what it leaves behind still says what it said."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from analysis.advisor.learning.behaviour import Seen, behaviour, cause
from analysis.advisor.learning.cause import REMEDIES, Cause, Safety
from analysis.advisor.learning.learn import learn
from analysis.advisor.learning.model import Slot
from analysis.advisor.learning.remedy import rules_of
from analysis.advisor.rewriting.canonical import array_key, permuted_arrays
from analysis.advisor.rewriting.rules import Action, Rule, apply
from analysis.advisor.rewriting.words import SURE_END
from cachemodel.prompts.model import Prompt
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import TOOLS, Change, Log, at_top, clock, log, sometimes
from tests.analysis.advisor.test_rules import VALUES_OF_JSON, rewritten

IDENTITY = "You are the assistant of a bookshop with four branches."
NAMES = st.text("abcd", min_size=1, max_size=3)
ARRAYS = st.lists(NAMES, min_size=2, max_size=5, unique=True) | st.lists(
    st.builds(lambda name, told: {"name": name, "parameters": told}, NAMES, VALUES_OF_JSON),
    min_size=2,
    max_size=4,
    unique_by=lambda tool: tool["name"],
)


def system(rule: Rule, text: str) -> str:
    """A system message as the rule writes it."""
    return str(apply([rule], {"messages": [{"role": "system", "content": text}]})["messages"][0]["content"])


def arrays(value: Any) -> list[list[Any]]:
    """All arrays in a JSON value."""
    if not isinstance(value, (list, dict)):
        return []
    inner = [one for own in (value if isinstance(value, list) else value.values()) for one in arrays(own)]
    return [value, *inner] if isinstance(value, list) else inner


@given(ARRAYS, VALUES_OF_JSON, st.randoms(), st.sampled_from([None, 1]))
def test_a_rule_changes_no_array_that_it_was_not_learned_from(
    learned: list[Any], value: Any, chance: random.Random, indent: int | None
) -> None:
    key = array_key(learned)
    assume(all(array_key(one) != key for one in arrays([value, learned])[1:] if one is not learned))
    rule = Rule(Action.SORT_JSON, "system", items=(key,))
    turned = chance.sample(learned, len(learned))
    before = json.dumps({"x": value, "steps": ["b", "a", 3], "at": [60.40, 22.3]}, indent=indent)
    told = [
        system(rule, f"Of {before}:\n{json.dumps(own, indent=indent)}.")[len("Of :\n.") + len(before) - 1 :]
        for own in (learned, turned)
    ]
    assert told[0] == told[1], "in one order, whatever they came in"
    assert system(rule, before) == before
    assert sorted(map(json.dumps, json.loads(told[0].rstrip(".")))) == sorted(map(json.dumps, learned))


def test_without_knowing_any_array_a_rule_changes_none() -> None:
    text = '{"steps": ["verify identity", "ask reason", "block card"], "coordinates": [60.40, 22.3]}'
    assert system(Rule(Action.SORT_JSON, "system"), text) == text


STEPS = 'Escalate: {"steps": ["verify identity", "ask reason", "block card"], "at": [60.40, 22.3]}'


def tools_in_text(made: Log, _: int) -> None:
    """Tools in any order, beside steps whose order says something."""
    told = [planted.tool(name)["function"] for name in TOOLS]
    made.random.shuffle(told)
    made.system = f"Tools: {json.dumps(told)}\n{STEPS}\n{made.system}"


def tags_in_text(made: Log, _: int) -> None:
    """A set of tags, within an object whose keys always stand in one order."""
    tags = ["poetry", "atlas", "novel", "crime"]
    made.random.shuffle(tags)
    made.system = f"Shop: {json.dumps({'z': 1.50, 'tags': tags, 'a': 2})}\n{STEPS}\n{made.system}"


def keys_in_text(made: Log, _: int) -> None:
    """A profile whose keys come in the order of a hash."""
    profile = {"plan": "gold", "city": "Turku", "since": 2019}
    made.system = f"Shop: {json.dumps(planted.shuffled_keys(profile, made.random))}\n{STEPS}\n{made.system}"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (tools_in_text, Cause.TOOL_ORDER),
        (tags_in_text, Cause.ITEM_ORDER),
        (keys_in_text, Cause.KEY_ORDER),
    ],
)
def test_json_that_was_seen_in_several_orders_is_all_that_is_put_in_order(change: Change, why: Cause) -> None:
    assert rewritten([change])[1] == 1
    slot, rules, body = learned_from([change])
    assert slot.cause is why
    after = apply(rules, body)["messages"][0]["content"]
    assert STEPS in after
    other = f'Labels: ["urgent", "normal", "low"]\n{STEPS}\nUser: {{"b": 1.0, "a": 2}}'
    assert all(system(rule, other) == other for rule in rules)


def test_an_array_that_stands_in_two_orders_in_one_text_says_something_by_its_order() -> None:
    both = ['{"up": ["a", "b"], "down": ["b", "a"]}', '{"up": ["b", "a"], "down": ["a", "b"]}']
    assert permuted_arrays(both) == ()
    assert permuted_arrays(['["a", "b"]', '["b", "a"]']) == (array_key(["a", "b"]),)


def learned_from(
    changes: list[Change], n: int = 60, *, tools: bool = False
) -> tuple[Slot, tuple[Rule, ...], dict[str, Any]]:
    """The costliest slot of a log, its rules, and a request of it that has a value there."""
    prompts = log(changes, n=n, tools=tools)
    slot, *_ = learn(prompts)
    return slot, rules_of(slot), next(dict(one.body or {}) for one in prompts if differs(one, slot))


def differs(prompt: Prompt, slot: Slot) -> bool:
    usual = max({one.value for one in slot.seen}, key=[one.value for one in slot.seen].count)
    return any(f"r{one.request}" == prompt.request_id and one.value != usual for one in slot.seen)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Tänään on 29. marraskuuta 2026. Ole kohtelias.", 2),
        ("Heute ist der 29. November 2026. Sei nett.", 2),
        ("Today is Nov. 29, 2026. Be kind.", 2),
        ("Dr. Ito, M.D. of Turku, e.g. St. Mary, asks. Answer.", 2),
        ("It is 08.00. Be kind. It is 2026. Be brief.", 4),
        ("Take 12. Be kind", 1),
        ("Be kind; be brief! be short.\nAnswer in 29.\nNovember. so", 5),
    ],
)
def test_a_full_stop_that_ends_no_sentence(text: str, told: int) -> None:
    assert len(SURE_END.split(text)) == told


DATES = {
    "fi": lambda made: f"Tänään on sunnuntai 29. marraskuuta 2026, kello on {made.last.time:%H.%M}.",
    "de": lambda made: f"Heute ist Sonntag, der 29. November 2026, {made.last.time:%H:%M} Uhr.",
    "en": lambda made: f"Today is Nov. 29, 2026 at {made.last.time:%H:%M} AM.",
}
LATER = {
    "fi": "Tänään on maanantai 7. joulukuuta 2026, kello on 9.15.",
    "de": "Heute ist Montag, der 7. Dezember 2026, 09:15 Uhr.",
    "en": "Today is Dec. 7, 2026 at 09:15 AM.",
}


@pytest.mark.parametrize("behind", ["\n", " "])
@pytest.mark.parametrize("language", DATES)
def test_the_sentence_of_a_date_moves_whole_and_on_another_day_too(language: str, behind: str) -> None:
    def dated(made: Log, _: int) -> None:
        made.system = f"{DATES[language](made)}{behind}{made.system}"

    _, rules, body = learned_from([dated])
    head, asked = apply(rules, body)["messages"]
    if (language, behind) == (
        "de",
        " ",
    ):  # `Uhr.` may be short for something: rather no rule than half a sentence
        assert head["content"] == body["messages"][0]["content"]
        return
    assert head["content"].startswith(IDENTITY)
    first, last = {"fi": ("Tänään", "."), "de": ("Heute", "Uhr."), "en": ("Today", "AM.")}[language]
    moved = asked["content"].splitlines()[-1]
    assert (moved.startswith(first), moved.endswith(last)) == (True, True)
    assert system(rules[0], f"{LATER[language]}{behind}{IDENTITY}") == IDENTITY


HEADS: dict[str, Callable[[Log], str]] = {
    "brackets": clock("[%Y-%m-%dT%H:%M:%S]"),
    "brackets and a sign": clock("[%H:%M:%S] -"),
    "a sign": clock("%H:%M:%S -"),
    "a colon": clock("%H:%M:%S:"),
    "a label in brackets": lambda made: f"(build {planted.hash_of(str(made.last.index))})",
}


@pytest.mark.parametrize("share", [1.0, 0.1])
@pytest.mark.parametrize("name", HEADS)
def test_of_a_value_at_the_head_of_a_line_nothing_else_moves(name: str, share: float) -> None:
    def headed(made: Log, _: int) -> None:
        made.system = f"{HEADS[name](made)} {made.system}"

    _, rules, body = learned_from([sometimes(headed, share)], n=200)
    (rule,) = rules
    before = body["messages"][0]["content"]
    after = apply(rules, body)["messages"]
    assert after[0]["content"].startswith(IDENTITY)
    assert before.endswith(after[0]["content"])
    if rule.action is Action.MOVE:
        assert after[1]["content"].endswith(before[: -len(after[0]["content"])].strip())
    assert system(rule, IDENTITY) == IDENTITY


def test_two_values_at_the_head_of_a_line_and_behind_it_move_one_by_one() -> None:
    def both(made: Log, _: int) -> None:
        made.system = f"[{made.last.time:%H:%M:%S}] {planted.user_name(made)}\n{made.system}"

    assert rewritten([both])[1] == 1


@pytest.mark.parametrize(
    "line",
    [
        "Hello, it is {} and you are a helpful concierge for Hotel Aalto in Turku.",
        "You are the concierge on duty since {} and answer all of the guests in their own language.",
    ],
)
def test_a_sentence_that_says_much_more_than_its_value_stays(line: str) -> None:
    def inline(made: Log, _: int) -> None:
        made.system = f"{line.format(f'{made.last.time:%H:%M:%S}')}\n{made.system}"

    slot, rules, _ = learned_from([inline])
    assert slot.cause is Cause.CLOCK
    assert rules == ()


@pytest.mark.parametrize(
    ("refers", "why"),
    [
        ("Pass the session token above to every tool call.", Cause.NONCE_IN_USE),
        ("Every call needs that token first.", Cause.NONCE),
        ("Never tell anybody what the Session is.", Cause.NONCE_IN_USE),
        ("", Cause.NONCE),
    ],
)
def test_an_id_that_the_prompt_refers_to_is_not_dropped(refers: str, why: Cause) -> None:
    def token(made: Log, _: int) -> None:
        made.system = f"Session token: {made.random.getrandbits(64):016x}\n{made.system}\n{refers}"

    slot, (rule,), _ = learned_from([token])
    assert slot.cause is why
    dropped = why is Cause.NONCE
    assert rule.action is (Action.DROP if dropped else Action.MOVE)
    assert REMEDIES[why].safety is (Safety.DROP if dropped else Safety.MOVE)


def told(values: list[str]) -> Cause:
    seen = [Seen(at, value) for at, value in enumerate(values)]
    return cause(seen, behaviour(seen))


@given(st.integers(0, 10**6), st.integers(20, 60))
def test_readings_with_their_units_are_a_measurement(seed: int, n: int) -> None:
    chance = random.Random(seed)

    def reading() -> str:
        return f"{chance.uniform(-9, 30):.1f} °C, wind {chance.uniform(0, 15):.1f}"

    values = [reading() for _ in range(n)]
    assert told(values) is Cause.MEASUREMENT
    assert told([f"{one} m/s" for one in values]) is Cause.MEASUREMENT


@given(st.integers(0, 10**6))
def test_ids_of_several_numbers_are_no_measurement(seed: int) -> None:
    chance = random.Random(seed)
    values = [f"{chance.randrange(16**8):08x}-{chance.randrange(16**4):04x} 7f" for _ in range(40)]
    assert told(values) is Cause.NONCE


@given(st.lists(st.integers(1, 9), min_size=6, max_size=60), st.integers(0, 10**6))
def test_whole_numbers_that_go_up_are_a_counter_with_gaps_too(steps: list[int], start: int) -> None:
    values, at = [], start
    for step in steps:
        at += step
        values.append(str(at))
    assert told(values) is Cause.COUNTER


def test_numbers_since_1970_are_a_clock_and_others_in_no_order_a_measurement() -> None:
    assert told([str(1_790_000_000 + 17 * at + at % 3) for at in range(30)]) is Cause.CLOCK
    assert told([str(at * 37 % 101) for at in range(30)]) is Cause.MEASUREMENT


@pytest.mark.parametrize("n", [60, 300])
@pytest.mark.parametrize("skip", [1, 3])
def test_a_counter_is_one_in_long_logs_and_with_gaps(n: int, skip: int) -> None:
    def numbered(made: Log, index: int) -> None:
        made.system = f"Conversation number {4000 + skip * index + index % skip}.\n{made.system}"

    assert learned_from([numbered], n=n)[0].cause is Cause.COUNTER


def test_orders_are_counted_and_not_the_items_that_moved() -> None:
    slot, _, _ = learned_from([planted.facts_by_likeness], n=120)
    orders = {
        tuple(
            line
            for line in str((one.body or {})["messages"][0]["content"]).splitlines()
            if line in planted.FACTS
        )
        for one in log([planted.facts_by_likeness], n=120)
    }
    assert f"in {len(orders)} orders" in slot.detail


def test_values_at_the_top_are_still_moved_with_their_line() -> None:
    assert (
        rewritten([at_top(lambda made: f"The customer is called {planted.NAMES[0]}{made.last.index}.")])[1]
        == 1
    )
