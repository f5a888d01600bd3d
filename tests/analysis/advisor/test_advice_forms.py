"""Advice on a value that breaks the cache wherever an API lets it stand, and what its rule makes of the same log."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from analysis.advisor.advice import Advice, advise
from analysis.advisor.export import chosen, module
from analysis.advisor.learning.cause import Cause, Safety
from analysis.advisor.rewriting.rules import Action, Body, apply
from analysis.prefix_replay.rules import ANTHROPIC, BlockRule
from analysis.prefix_replay.rules import Rule as CacheRule
from cachemodel.prompts.model import Prompt
from cachemodel.prompts.read import read
from hitmap.prompt_tokens import body_tokens
from tests.analysis.advisor import planted
from tests.analysis.advisor.forms import FORMS, Block, Talk
from tests.analysis.advisor.test_export import executed

Make = Callable[[datetime, str, random.Random], Talk]
RULES = "\n".join(planted.RULES["en"] * 2)
CAREFUL = "Does what the customer wants of the shelves, with care and only after it was asked for. " * 2
N = 60


def within_rules(time: datetime, asked: str, _: random.Random) -> Talk:
    return Talk([Block(f"Now: {time:%H:%M:%S}\n{RULES}", marked=True)], [[Block(asked)]])


def of_its_own(time: datetime, asked: str, _: random.Random) -> Talk:
    return Talk([Block(f"Now: {time:%H:%M:%S}"), Block(RULES, marked=True)], [[Block(asked)]])


def in_a_tool(time: datetime, asked: str, _: random.Random) -> Talk:
    told = f"Searches the shelves. Stock as of {time:%Y-%m-%d %H:%M:%S}. {CAREFUL}"
    tools = [
        ("search", told, "What to look for."),
        ("hold", CAREFUL, "Which book."),
        ("refund", CAREFUL, "Why."),
    ]
    return Talk([Block(RULES)], [[Block(asked)]], tools)


def in_a_parameter(time: datetime, asked: str, _: random.Random) -> Talk:
    told = (
        f"From which day on. Today is {time:%Y-%m-%d %H:%M:%S}. Days before that one are found in no shelf."
    )
    return Talk(
        [Block(RULES)], [[Block(asked)]], [("search", CAREFUL, told), ("hold", CAREFUL, "Which book.")]
    )


def requests(form: str, make: Make, n: int = N) -> list[tuple[float, dict[str, Any]]]:
    chance, time, told = random.Random(1), planted.START, list[tuple[float, dict[str, Any]]]()
    for _ in range(n):
        time += timedelta(seconds=chance.expovariate(1 / 40))
        told.append((time.timestamp(), FORMS[form](make(time, planted.question(chance), chance))))
    return told


def prompts(log: Sequence[tuple[float, Body]]) -> list[Prompt]:
    lines = [{"id": f"r{at}", "time": time, "body": body} for at, (time, body) in enumerate(log)]
    return [one for line in lines for one in read(line, "f") if isinstance(one, Prompt)]


def advised(log: Sequence[tuple[float, Body]], cache: CacheRule | None = None) -> Advice:
    tokens, rule = body_tokens("approximate"), cache or BlockRule(block_size=4)
    told = advise(prompts(log), tokens, rule, cache_name="c", tokens_by="t", ends=tokens.ends)
    assert len(told.requests) == len(log)
    assert not told.untold
    return told


PLACES: dict[str, tuple[str, str, str]] = {
    "chat, blocks": ("messages[0].content[0].text", "messages[0].content[0].text", "tools[0]"),
    "chat, messages": ("messages[0].content", "messages[0].content", "tools[0]"),
    "anthropic": ("system[0].text", "system[0].text", "tools[0]"),
    "gemini": (
        "systemInstruction.parts[0].text",
        "systemInstruction.parts[0].text",
        "tools[0].functionDeclarations[0]",
    ),
    "bedrock": ("system[0].text", "system[0].text", "toolConfig.tools[0]"),
    "responses": ("input[0].content[0].text", "input[0].content[0].text", "tools[0]"),
}
CASES = [
    (form, make, path)
    for form, paths in PLACES.items()
    for make, path in zip(
        (within_rules, of_its_own, in_a_tool, in_a_parameter), (*paths, paths[-1]), strict=True
    )
]


@pytest.mark.parametrize(("form", "make", "path"), CASES)
def test_a_clock_is_named_where_it_stands_and_its_rule_saves_what_was_predicted(
    form: str, make: Make, path: str
) -> None:
    log = requests(form, make)
    found = advised(log)
    (one,) = found.suggestions
    assert (one.slot.cause, one.slot.path, one.remedy.safety) == (Cause.CLOCK, path, Safety.MOVE)
    assert one.rules
    assert one.gain
    assert one.gain.most.saved > 0.5 * found.as_sent.computed
    assert one.diff
    after = advised([(time, apply(one.rules, body)) for time, body in log])
    assert after.as_sent == one.gain.most.after.total
    assert after.suggestions == ()
    rewrite = executed(module(chosen(found)))
    assert all(rewrite(body) == apply(one.rules, body) for _, body in log)
    values = [seen.value for seen in one.slot.seen]
    last = [prompt.parts[-1].text for prompt in prompts([(time, rewrite(body)) for time, body in log])]
    assert all(value in text for value, text in zip(values, last, strict=True)), (
        "the model reads it, at the end"
    )


def test_a_marked_block_behind_a_clock_is_served_again() -> None:
    """Anthropic's cache, which keeps what is marked: the mark of the clock's own block goes to the block before it."""
    long = "\n".join(f"{RULES}\n{at}" for at in range(8))

    def three(time: datetime, asked: str, _: random.Random) -> Talk:
        clock = Block(f"Now: {time:%H:%M:%S}", marked=True)
        return Talk([Block(long), clock, Block(RULES)], [[Block(asked)]])

    log = requests("anthropic", three)
    found = advised(log, ANTHROPIC)
    assert found.as_sent.served == 0
    (one,) = found.suggestions
    assert one.gain
    rewritten = [(time, apply(one.rules, body)) for time, body in log]
    again = advised(rewritten, ANTHROPIC)
    assert again.as_sent == one.gain.most.after.total
    assert again.as_sent.served > 1024 * (N - 1)
    assert ["cache_control" in block for block in rewritten[0][1]["system"]] == [True, False]


@pytest.mark.parametrize("form", ["anthropic", "gemini", "bedrock", "chat, blocks"])
def test_an_id_in_a_tool_is_dropped_and_what_belongs_to_a_user_goes_behind_the_system(form: str) -> None:
    def with_id(_: datetime, asked: str, chance: random.Random) -> Talk:
        told = f"Searches the shelves. Trace {chance.getrandbits(64):016x}. {CAREFUL}"
        return Talk([Block(RULES)], [[Block(asked)]], [("search", told, "What to look for.")])

    def with_name(_: datetime, asked: str, chance: random.Random) -> Talk:
        name = chance.choice(("Aino", "Bob", "Chiara", "Dmitri", "Eeva", "Fay"))
        told = f"Searches the shelves. The customer is called {name} today. {CAREFUL}"
        return Talk([Block(RULES)], [[Block(asked)]], [("search", told, "What to look for.")])

    (one,) = advised(requests(form, with_id)).suggestions
    assert (one.slot.cause, [rule.action for rule in one.rules]) == (Cause.NONCE, [Action.DROP])
    log = requests(form, with_name, 200)
    found = advised(log)
    (one,) = found.suggestions
    (rule,) = one.rules
    assert (rule.action, rule.role, rule.within) == (Action.MOVE, "tools", True)
    for _, body in log[:5]:
        before, after = (prompts([(0.0, each)])[0].parts for each in (body, apply([rule], body)))
        assert [part.text for part in after if part.role == "user"] == [
            part.text for part in before if part.role == "user"
        ]
        said = "\n".join(part.text for part in after if part.role == "system")
        assert said.startswith(RULES)
        assert "search: The customer is called" in said


def test_a_profile_of_a_block_of_its_own_goes_behind_the_block_that_all_share() -> None:
    def profiled(_: datetime, asked: str, chance: random.Random) -> Talk:
        name = chance.choice(("Aino", "Bob", "Chiara", "Dmitri", "Eeva", "Fay"))
        return Talk([Block(f"The customer is called {name}."), Block(RULES, marked=True)], [[Block(asked)]])

    log = requests("anthropic", profiled, 200)
    (one,) = advised(log).suggestions
    (rule,) = one.rules
    assert rule.within
    body = log[0][1]
    first, second = body["system"]
    assert apply([rule], body) == {**body, "system": [second, first]}


def test_of_numbers_alone_nothing_is_cut_out_of_tools() -> None:
    def versioned(time: datetime, asked: str, _: random.Random) -> Talk:
        told = f"Searches the shelves. {time:%Y-%m-%d %H:%M:%S}. {CAREFUL}"
        return Talk([Block(RULES)], [[Block(asked)]], [("search", told, "What to look for.")])

    (one,) = advised(requests("anthropic", versioned)).suggestions
    assert (one.slot.cause, one.rules) == (Cause.CLOCK, ())


def test_a_pattern_that_was_learned_from_json_fits_what_it_says() -> None:
    def quoted(time: datetime, asked: str, _: random.Random) -> Talk:
        told = f'Searches the shelves. The word "now" is {time:%Y-%m-%d %H:%M:%S}. {CAREFUL}'
        return Talk([Block(RULES)], [[Block(asked)]], [("search", told, "What to look for.")])

    (one,) = advised(requests("anthropic", quoted)).suggestions
    assert one.gain
    assert one.gain.most.saved > 0
