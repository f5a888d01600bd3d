"""A log of 5,000 realistic requests draws no advice, by the rules of any cache; one fault in one of its services draws
that advice alone, at its place."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from analysis.advisor.advice import MIN_SHARE, Advice, advise
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.learn import learn
from analysis.advisor.learning.messages.threads import threads
from analysis.advisor.learning.remedy import rules_of
from analysis.advisor.rewriting.rules import Body, apply
from analysis.prefix_replay.rules import ANTHROPIC, BlockRule, ProviderRule, RadixRule, Rule, SlotRule
from cachemodel.prompts.model import Prompt
from hitmap.prompt_tokens import body_tokens
from tests.analysis.advisor import planted, realistic
from tests.analysis.advisor.planted import Change, Log, after_first_line, at_top, clock, sometimes
from tests.analysis.advisor.prose import sentence

SYSTEM, FIRST = "messages[0].content", "messages[1].content"
VLLM = BlockRule(block_size=16)
CACHES: Mapping[str, tuple[Rule, int]] = {
    "vllm": (VLLM, 5000),
    "vllm, blocks of 128": (BlockRule(block_size=128), 5000),
    "sglang": (RadixRule(page_size=1), 5000),
    "openai": (ProviderRule(), 5000),
    "anthropic": (ANTHROPIC, 5000),
    "llama.cpp": (SlotRule(), 500),  # its replay compares each prompt with all that were put aside
}


class Tokens:
    """Those of `hitmap advise`; of a body that was asked for before without counting again."""

    def __init__(self) -> None:
        self._tokens, self._known = body_tokens("approximate"), dict[int, tuple[Body, NDArray[np.uint32]]]()

    def __call__(self, body: Body) -> NDArray[np.uint32]:
        if id(body) not in self._known:
            self._known[id(body)] = body, self._tokens(body)  # held, so that its id stays its own
        return self._known[id(body)][1]


def advised(
    prompts: Sequence[Prompt], rule: Rule = VLLM, tokens: Tokens | None = None, min_share: float = MIN_SHARE
) -> Advice:
    return advise(prompts, tokens or Tokens(), rule, cache_name="c", tokens_by="t", min_share=min_share)


def told(found: Advice) -> list[tuple[Cause, str, str, float]]:
    """Of each suggestion what a failed test has to say."""
    return [(one.slot.cause, one.slot.path, one.slot.example, one.share) for one in found.suggestions]


@pytest.fixture(scope="module")
def clean() -> list[Prompt]:
    return realistic.log()


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens()


def test_the_log_is_of_the_promised_size(clean: list[Prompt]) -> None:
    assert len(clean) == 5000
    assert len({one.request_id for one in clean}) == 5000
    assert len({one.session.rpartition("-")[0] for one in clean}) == len(realistic.SERVICES)


@pytest.mark.parametrize("name", CACHES)
def test_a_clean_log_is_told_nothing(name: str, clean: list[Prompt], tokens: Tokens) -> None:
    rule, most = CACHES[name]
    found = advised(clean[:most], rule, tokens)
    assert told(found) == []
    assert found.beside == ()
    assert found.as_sent.prompt > 500_000


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", sorted(realistic.SERVICES.keys() - {"tools of their own"}))
def test_each_service_alone_is_told_nothing(name: str, seed: int) -> None:
    """Of tools that some departments have and others have not it is true, in a log of its own, that they would be found
    again more often if all had all."""
    assert told(advised(realistic.log([name], seed=seed))) == []


# One fault.

OTHERS = ("chat, English", "tenants of a platform", "deploy", "long tail")
PART, AGENT_PART = (
    0.5,
    0.1,
)  # of the requests of each service, and of the one whose prompts are by far the longest


def name_of(made: Log) -> str:
    """Always the same of a user."""
    chance = random.Random(made.last.user)
    first, last = chance.choice(("Aino", "Björn", "Chiara")), chance.choice(("Berg", "Salo", "Rossi"))
    return f"The customer is called {first} {last}."


def note_of(made: Log) -> str:
    """Always the same of a session."""
    return f"Session {planted.hash_of(made.last.session)} began today."


def line_ends(made: Log, _: int) -> None:
    """Some clients write CRLF."""
    if made.last.user.endswith(("1", "4", "7")):
        made.system = made.system.replace("\n", "\r\n")


def documents_first(made: Log, _: int) -> None:
    """What was found stands before the instructions."""
    head, asked = made.last.messages
    found, question = str(asked["content"]).split("\n\nQuestion: ")
    made.last.messages = [{"role": "user", "content": one} for one in (found, head["content"], question)]


def image_first(made: Log, _: int) -> None:
    made.last.messages[1]["content"].reverse()


def tool_set_grows(made: Log, _: int) -> None:
    """Tools are loaded when they are first needed, anew in each conversation."""
    made.last.tools = made.last.tools[: 2 + len(made.last.messages) // 10]


def looked_up(made: Log, _: int) -> None:
    """What is remembered stands at the head of the instructions, other things for each question."""
    facts = [sentence(random.Random(number)) for number in range(12)]
    made.system = "Known:\n" + "\n".join(made.random.sample(facts, 5)) + "\n" + made.system


FAULTS: Mapping[str, tuple[str, Change, Cause, str]] = {
    "time": ("rag", at_top(clock("Now: %Y-%m-%dT%H:%M:%SZ")), Cause.CLOCK, SYSTEM),
    "time, in 6 %": ("classification", sometimes(at_top(clock("It is %H:%M:%S")), 0.06), Cause.CLOCK, SYSTEM),
    "date in words": ("agent", after_first_line(clock("Today is %A, %d %B, %I:%M %p")), Cause.CLOCK, SYSTEM),
    "time in Finnish": ("chat, Finnish", at_top(clock("Kello on %d.%m.%Y klo %H.%M")), Cause.CLOCK, SYSTEM),
    "time in Japanese": (
        "chat, Japanese",
        at_top(clock("現在は%m月%d日%H時%M分です。")),
        Cause.CLOCK,
        SYSTEM,
    ),
    "seconds since 1970": ("extraction", at_top(planted.epoch), Cause.CLOCK, SYSTEM),
    "id": ("tools of their own", at_top(planted.request_id), Cause.NONCE, SYSTEM),
    "id, in 6 %": ("agent", sometimes(at_top(planted.request_id), 0.06), Cause.NONCE, SYSTEM),
    "odd id": ("classification", after_first_line(planted.odd_id), Cause.NONCE, SYSTEM),
    "counter": ("rag", at_top(planted.counter), Cause.COUNTER, SYSTEM),
    "reading": ("images", after_first_line(planted.reading), Cause.MEASUREMENT, SYSTEM),
    "user's name": ("classification", at_top(name_of), Cause.USER_VALUE, SYSTEM),
    "session": ("chat, Finnish", at_top(note_of), Cause.SESSION_VALUE, SYSTEM),
    "looked up": ("classification", looked_up, Cause.MEMORY, SYSTEM),
    "memories by likeness": ("extraction", planted.facts_by_likeness, Cause.ITEM_ORDER, SYSTEM),
    "line ends": ("classification", line_ends, Cause.WHITESPACE, SYSTEM),
    "tool order": ("agent", planted.tools_shuffled, Cause.TOOL_ORDER, "tools"),
    "keys": ("tools of their own", planted.keys_shuffled, Cause.KEY_ORDER, "tools"),
    "tool set": ("agent", tool_set_grows, Cause.TOOL_SET, "tools"),
    "window": ("chat, Finnish", planted.window, Cause.SLIDING_WINDOW, FIRST),
    "time told anew": ("chat, Japanese", planted.retold, Cause.CLOCK, FIRST),
    "thoughts dropped": ("chat, Finnish", planted.thoughts_dropped, Cause.REASONING_STRIPPED, "messages["),
    "documents first": ("rag", documents_first, Cause.SHARED_BEHIND, FIRST),
    "image first": ("images", image_first, Cause.IMAGE_FIRST, "messages[1]"),
}


def faulty(*names: str) -> list[Prompt]:
    """The services that these faults are in."""
    told = list[Prompt]()
    for service, change, _, _ in (FAULTS[name] for name in names):
        part = AGENT_PART if service == "agent" else PART
        told += realistic.log([service], {service: [change]}, part=part)
    return sorted(told, key=lambda one: one.time or 0.0)


@cache
def others() -> tuple[Prompt, ...]:
    """Services without a fault."""
    return tuple(realistic.log(OTHERS, part=PART))


@pytest.mark.parametrize("name", FAULTS)
def test_one_fault_is_named_at_its_place_and_nothing_else(name: str) -> None:
    _, _, cause, path = FAULTS[name]
    own = faulty(name)
    found = advised(sorted([*others(), *own], key=lambda one: one.time or 0.0))
    (one,) = found.suggestions or [None]
    assert one, "nothing is said"
    assert (one.slot.cause, one.slot.path[: len(path)]) == (cause, path)
    assert any(prompt.request_id == one.slot.example for prompt in own)


PAIRS = (
    ("time", "tool set"),
    ("odd id", "window"),
    ("line ends", "image first"),
    ("looked up", "keys"),
    ("documents first", "time in Finnish"),
    ("session", "memories by likeness"),
)


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_two_faults_in_two_services_are_named_each_at_its_place(pair: tuple[str, str]) -> None:
    own = faulty(*pair)
    # line ends of two kinds are kept in two copies: what one of them costs is 0.8 % here
    found = advised(sorted([*others(), *own], key=lambda one: one.time or 0.0), min_share=0.007)
    assert sorted(one.slot.cause for one in found.suggestions) == sorted(FAULTS[name][2] for name in pair)
    assert {one.slot.example for one in found.suggestions} <= {prompt.request_id for prompt in own}


# What the log taught, each by itself.


def test_a_question_behind_examples_that_all_share_is_no_history() -> None:
    """Turns that every request begins with make no conversation of the requests."""
    prompts = realistic.log(["extraction"])
    assert not any(one.cause is Cause.HISTORY_REWRITTEN for one in learn(prompts))


def test_instructions_between_documents_and_question_make_no_conversation_of_all() -> None:
    followed = threads(list(enumerate(faulty("documents first"))))
    assert all(thread.earlier is None for thread in followed.values())


def test_senders_that_keep_their_own_tools_find_them_again() -> None:
    """Six departments: as many lists are computed once each, however often one follows the other."""
    (slot,) = (one for one in learn(realistic.log(["tools of their own"])) if one.cause is Cause.TOOL_SET)
    assert slot.requests == 5


@pytest.mark.parametrize("seed", range(5))
def test_what_was_deployed_is_no_variant(seed: int) -> None:
    """Each text gives way to the next one once. Two that take turns are variants."""
    deployed = realistic.log(["deploy"], seed=seed)
    assert learn(deployed) == []
    texts = sorted({one.parts[0].text for one in deployed})

    def turns(made: Log, index: int) -> None:
        made.system = texts[index % 2]

    slots = learn(realistic.log(["deploy"], {"deploy": [turns]}, seed=seed))
    causes = {one.cause for one in slots}
    assert (
        Cause.VARIANT in causes <= {Cause.VARIANT, Cause.MEASUREMENT}
    )  # where they differ in a number alone
    assert {one.anew for one in slots} == {1}


@pytest.mark.parametrize("name", ["time", "id, in 6 %", "odd id", "line ends", "session", "user's name"])
def test_a_rule_finds_the_slot_and_nothing_else(name: str) -> None:
    """In requests of its service and of all others: what it takes away is what was planted."""
    own, cause = faulty(name), FAULTS[name][2]
    (slot,) = (one for one in learn(own) if one.cause is cause)
    rules = rules_of(slot)
    assert rules
    mended = [apply(rules, one.body or {}) for one in own]
    # what lasts for a session or a user stays with the system, in a paragraph of its own at its end
    assert len({str(body["messages"][0]["content"]).partition("\n\n")[0] for body in mended}) == 1
    assert all(apply(rules, one.body or {}) is one.body for one in others())


def test_of_several_lines_no_rule_takes_one() -> None:
    (slot,) = learn(faulty("looked up"))
    assert slot.cause is Cause.MEMORY
    assert rules_of(slot) == ()


def test_variants_are_known_by_what_they_say() -> None:
    """A line that one of three teams wrote: only these three are moved, not any line of that form."""
    tones = ("Be brief and dry.", "Be warm, as a host is.", "Never use more than ten words.")

    def tone(made: Log) -> str:
        return tones[made.last.index % 3]

    toned = realistic.log(["classification"], {"classification": [after_first_line(tone)]}, part=PART)
    (slot,) = (one for one in learn(toned) if one.cause is Cause.VARIANT)
    (rule,) = rules_of(slot)
    head = "You are the assistant of Rosuka.\n{}\n- The rest."
    bodies = [
        {"messages": [{"role": "system", "content": head.format(one)}]} for one in (*tones, "Be a good host.")
    ]
    told = [apply([rule], body) for body in bodies]
    assert [after is before for after, before in zip(told, bodies, strict=True)] == [
        False,
        False,
        False,
        True,
    ]
