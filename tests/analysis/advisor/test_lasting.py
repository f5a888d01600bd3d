"""Values that change within a conversation cost its history, however few they are; those that it keeps cost nothing
behind what all share. What is said to be lost is what a cache of prefixes computes more."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

import pytest

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.learn import learn
from analysis.advisor.learning.remedy import rules_of
from analysis.advisor.rewriting.rules import Action, apply
from cachemodel.prompts.model import Prompt
from cachemodel.prompts.read import read
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import Change, Log, after_first_line, at_top, conversations

MODES = ("plan", "act", "review")
SKILLS = tuple(" ".join(planted.question(random.Random(at)) for _ in range(3)) for at in range(4))


def at_bottom(make: Callable[[Log], str]) -> Change:
    def change(made: Log, _: int) -> None:
        made.system = f"{made.system}\n\n{make(made)}"

    return change


def now(*what: str, say: str = "{}") -> Callable[[Log], str]:
    """Another one from turn to turn."""
    return lambda made: say.format(made.random.choice(what))


def kept(*what: str, say: str = "{}") -> Callable[[Log], str]:
    """The same all through a conversation."""
    return lambda made: say.format(what[int(made.last.session[1:]) % len(what)])


PLACES = {"top": at_top, "behind a line": after_first_line, "end": at_bottom}
TURNING: dict[str, tuple[Callable[[Log], str], str]] = {
    "mode": (now(*MODES, say="Current mode: {}"), "en"),
    "mood in Finnish": (now("iloinen", "kiireinen", "epävarma", "vihainen", say="Mieliala nyt: {}"), "fi"),
    "open file in Japanese": (now("認証.py", "会計.py", "郵便.py", say="開いているファイル：{}"), "ja"),
    "flag": (now("true", "false", say='{{"terse": {}}}'), "en"),
}


def computed(prompts: Sequence[Prompt]) -> int:
    """Characters that no earlier prompt begins with, in blocks of eight."""
    known, total = set[int](), 0
    for text in ("\0".join(part.text for part in prompt.parts) for prompt in prompts):
        begin = [0, *accumulate((text[at : at + 8] for at in range(0, len(text), 8)), _chained, initial=0)][
            2:
        ]
        total += len(text) - 8 * next((at for at, one in enumerate(begin) if one not in known), len(begin))
        known.update(begin)
    return total


def _chained(before: int, block: str) -> int:
    return hash((before, block))


def rewritten(prompts: Sequence[Prompt], *rules: object) -> list[Prompt]:
    told = [read({"body": apply(rules, prompt.body or {})}, prompt.request_id) for prompt in prompts]  # type: ignore[arg-type]
    return [next(one for one in of if isinstance(one, Prompt)) for of in told]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", TURNING)
def test_what_changes_from_turn_to_turn_is_moved_behind_the_last(name: str, place: str) -> None:
    make, language = TURNING[name]
    prompts = conversations([PLACES[place](make)], language=language)
    (slot,) = learn(prompts)
    assert slot.path == "messages[0].content"
    assert slot.cause is Cause.VARIANT
    assert not slot.lasts
    (rule,) = rules_of(slot)
    assert (rule.action, rule.within) == (Action.MOVE, False)
    without = computed(conversations([], language=language))
    assert computed(rewritten(prompts, rule)) - without < 0.2 * (computed(prompts) - without)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("values", [MODES, MODES[:2], SKILLS])
def test_what_is_lost_is_what_a_cache_computes_more(values: Sequence[str], place: str, seed: int) -> None:
    prompts = conversations([PLACES[place](now(*values, say="Now: {}"))], seed=seed)
    (slot,) = learn(prompts)
    assert slot.anew is None or slot.anew >= len(values) - 1
    more = computed(prompts) - computed(conversations([], seed=seed))
    own = sum(map(len, values)) / len(values) * slot.requests  # of the values themselves, which stay
    assert 0.75 * (more - own) <= slot.lost <= 1.15 * more


@pytest.mark.parametrize("beside", [[], [at_top(kept(*planted.NAMES, say="For {}."))]])
def test_of_long_logs_it_is_estimated(beside: Sequence[Change]) -> None:
    """By those that are compared, where texts are many, and by all others that have the same."""
    changes = [at_bottom(now(*MODES, say="Now: {}")), *beside]
    prompts = conversations(changes, talks=50, turns=16)
    told = next(slot for slot in learn(prompts) if not slot.lasts)
    more = computed(prompts) - computed(conversations([], talks=50, turns=16))
    assert 0.6 * more <= told.lost <= 1.3 * more


def test_a_value_of_a_tools_description_that_changes_goes_behind_the_conversation() -> None:
    def put(made: Log, _: int) -> None:
        search = planted.tool("search")
        mode = made.random.choice(MODES)
        search["function"]["description"] += f"\nThe mode of the session is {mode}."
        made.last.tools = [search, planted.tool("hold")]

    (slot,) = learn(conversations([put]))
    assert (slot.path, slot.cause, slot.lasts) == ("tools[0]", Cause.VARIANT, False)
    (rule,) = rules_of(slot)
    assert (rule.action, rule.within) == (Action.MOVE, False)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(
    "values", [MODES, SKILLS, tuple(f"Client {name}, who rides." for name in planted.NAMES)]
)
def test_what_a_conversation_keeps_costs_nothing_at_the_end(values: Sequence[str], told: bool) -> None:
    prompts = conversations([at_bottom(kept(*values, say="On file: {}"))], talks=12)
    assert learn(prompts if told else [replace(one, session="", user="") for one in prompts]) == []


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("say", ["On file: {}.", "Asiakas on {}.", "ご担当：{}。"])
def test_what_a_conversation_keeps_goes_to_the_end_of_the_system_message(say: str, told: bool) -> None:
    """Where it is known by what the conversation says, if requests name no session."""
    people = [f"{name} {other}" for name in planted.NAMES for other in ("Aalto", "Bruni", "Costa")]
    prompts = conversations([at_top(kept(*people, say=say))], talks=12)
    (slot,) = learn(prompts if told else [replace(one, session="", user="") for one in prompts])
    assert slot.cause is Cause.SESSION_VALUE
    assert slot.lasts
    (rule,) = rules_of(slot)
    assert (rule.action, rule.within) == (Action.MOVE, True)


@pytest.mark.parametrize("turns", [4, 12])
def test_a_value_of_its_own_for_each_turn_costs_all_that_stands_behind(turns: int) -> None:
    prompts = conversations([at_top(planted.request_id)], turns=turns)
    (slot,) = learn(prompts)
    more = computed(prompts) - computed(conversations([], turns=turns))
    assert slot.cause is Cause.NONCE
    assert 0.9 * more <= slot.lost <= 1.1 * more


def test_few_values_that_requests_of_their_own_have_are_not_said_to_cost_a_history() -> None:
    prompts = planted.log([at_bottom(now(*MODES, say="Tone: {}"))], 120)
    assert learn(prompts) == []
