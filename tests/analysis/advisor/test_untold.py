"""What no rule can write is told all the same, never as more than is computed; what cannot be told is not decided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analysis.advisor import suggest
from analysis.advisor.advice import Advice, advise
from analysis.advisor.evidence import evidence
from analysis.advisor.learning.cause import Cause
from analysis.advisor.report import report, told_apart
from analysis.advisor.rewriting.rules import Action, Rule
from analysis.prefix_replay.rules import BlockRule
from cachemodel.prompts.model import Prompt
from cachemodel.prompts.read import read
from hitmap.prompt_tokens import PICTURE_TOKENS, body_tokens
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import after_first_line, at_top, clock, log

RULES = " ".join(f"Rule {number}: answer in one sentence and name the shelf." for number in range(60))
INERT = (Rule(Action.MOVE, "system", "no prompt has this"),)


def advised(prompts: list[Prompt], *, block_size: int = 16, **more: Any) -> Advice:
    tokens = body_tokens("approximate")
    return advise(
        prompts,
        tokens,
        BlockRule(block_size=block_size),
        cache_name="c",
        tokens_by="t",
        picture_tokens=tokens.picture_tokens,
        **more,
    )


def prompts(bodies: list[dict[str, Any]]) -> list[Prompt]:
    told = [read({"id": f"r{at}", "time": 1000.0 + at, "body": body}, "f") for at, body in enumerate(bodies)]
    return [one for each in told for one in each if isinstance(one, Prompt)]


@pytest.fixture
def inert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that find nothing of what they are to move."""
    monkeypatch.setattr(suggest, "rules_of", lambda slot: INERT)


@pytest.mark.usefixtures("inert")
def test_a_fault_that_its_rules_do_not_reach_is_told_without_them() -> None:
    found = advised(log([at_top(clock("Now: %H:%M:%S"))]))
    (one,) = found.suggestions
    assert (one.slot.cause, one.gain, one.rules, one.diff) == (Cause.CLOCK, None, (), "")
    assert 0 < one.at_most <= found.as_sent.computed
    assert one.share == one.at_most / found.as_sent.computed
    assert found.rules == ()
    assert "keeps up to" in report(found).answer


@pytest.mark.usefixtures("inert")
def test_faults_that_share_a_rule_that_is_no_good_are_told_each() -> None:
    """The rule belongs to the first of them, and mends the second no more than the first."""
    two = [
        at_top(clock("Now: %H:%M:%S")),
        after_first_line(lambda made: f"Trace {made.random.getrandbits(64):016x}"),
    ]
    found = advised(log(two))
    assert {one.slot.cause for one in found.suggestions} == {Cause.CLOCK, Cause.NONCE}
    assert all((one.rules, one.gain, one.also) == ((), None, ()) for one in found.suggestions)


@pytest.mark.usefixtures("inert")
def test_a_clean_log_stays_silent_without_rules_that_reach() -> None:
    assert advised(log([], n=200, tools=True)).suggestions == ()


def test_a_rewrite_that_costs_more_than_it_saves_is_no_suggestion() -> None:
    """A date that stands for a hundred requests costs less at the top than at each one's end."""
    days = [
        {
            "messages": [
                {"role": "system", "content": f"Today: 2026-11-{1 + at // 100:02}\n{RULES}"},
                {
                    "role": "user",
                    "content": f"Where is book {at * 7919 % 100_000}?",
                },
            ]
        }
        for at in range(300)
    ]
    assert advised(prompts(days), block_size=1).suggestions == ()


@pytest.mark.parametrize("made", [planted.tools_shuffled, at_top(clock("Now: %H:%M:%S"))])
@pytest.mark.usefixtures("inert")
def test_no_slot_keeps_more_than_is_computed(made: planted.Change) -> None:
    """Each request is sent four times: what was found again, no slot has kept from the cache."""
    once = log([made], n=60, tools=True)
    twice = [
        Prompt(
            request_id=f"{one.request_id}{again}",
            parts=one.parts,
            time=one.time,
            body=one.body,
        )
        for one in once
        for again in range(4)
    ]
    found = advised(twice)
    assert found.suggestions
    for one in found.suggestions:
        assert one.at_most <= found.as_sent.computed
        assert one.share <= 1


def image(data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def test_an_image_is_found_again_where_it_is_the_same_one() -> None:
    tokens = body_tokens("approximate")

    def of(data: str) -> list[int]:
        content = [{"type": "text", "text": "Look:"}, image(data), {"type": "text", "text": RULES}]
        return tokens({"messages": [{"role": "user", "content": content}]}).tolist()

    plain = tokens({"messages": [{"role": "user", "content": f"Look:\n{RULES}"}]})
    first, again, other = of("aaaa"), of("aaaa"), of("bbbb")
    assert first == again
    assert len(first) == len(other)
    assert len(first) - len(plain) == pytest.approx(PICTURE_TOKENS, abs=2)
    differ = np.flatnonzero(np.array(first) != np.array(other))
    assert len(differ) == PICTURE_TOKENS
    assert differ[0] < len(tokens({"messages": [{"role": "user", "content": "Look:"}]}))
    assert tokens.notes() == [
        f"An image, a recording or a file counts as {PICTURE_TOKENS:,} tokens, whatever its size: its server alone"
        " knows how many it is."
    ]
    assert body_tokens("approximate").notes() == []


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "{}"}},
        {"type": "input_image", "image_url": "data:image/png;base64,{}"},
        {"type": "tool_result", "content": [{"type": "image", "source": {"type": "base64", "data": "{}"}}]},
        {"inlineData": {"mimeType": "image/png", "data": "{}"}},
        {"image": {"format": "png", "source": {"bytes": "{}"}}},
        {"type": "input_audio", "input_audio": {"data": "{}", "format": "wav"}},
    ],
)
def test_images_of_every_api_have_tokens_of_their_own(block: dict[str, Any]) -> None:
    tokens = body_tokens("approximate")

    def of(data: str) -> list[int]:
        return tokens(
            {"messages": [{"role": "user", "content": [_with(block, data), {"type": "text", "text": "Hi"}]}]}
        ).tolist()

    assert of("aaaa") == of("aaaa") != of("bbbb")
    assert len(of("aaaa")) > PICTURE_TOKENS


def _with(value: Any, data: str) -> Any:
    if isinstance(value, dict):
        return {name: _with(one, data) for name, one in value.items()}
    if isinstance(value, list):
        return [_with(one, data) for one in value]
    return value.replace("{}", data) if isinstance(value, str) else value


def test_a_part_behind_an_image_stands_behind_its_tokens() -> None:
    tokens = body_tokens("approximate")
    (prompt,) = prompts(
        [{"messages": [{"role": "user", "content": [image("aaaa"), {"type": "text", "text": RULES}]}]}]
    )
    assert prompt.body
    ends = tokens.ends(prompt.body, prompt.parts)
    assert ends[0] > PICTURE_TOKENS
    assert ends[1] - ends[0] == pytest.approx(len(tokens({"prompt": RULES})), abs=2)


def test_an_image_in_front_of_shared_text_keeps_no_more_than_is_computed() -> None:
    bodies = [
        {"messages": [{"role": "user", "content": [image(f"{at:04}"), {"type": "text", "text": RULES}]}]}
        for at in range(40)
    ]
    found = advised(prompts(bodies))
    (one,) = found.suggestions
    assert one.slot.cause is Cause.IMAGE_FIRST
    assert found.as_sent.served == 0, "no two requests begin with the same image"
    text = len(body_tokens("approximate")({"prompt": RULES}))
    assert one.at_most == pytest.approx(39 * text, rel=0.05), "images are no text"


GEMINI = {
    "systemInstruction": {"parts": [{"text": RULES}]},
    "contents": [
        {"role": "user", "parts": [{"text": "Where?"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "find", "args": {"shelf": 3}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "find", "response": {"found": "yes"}}}]},
    ],
    "tools": [{"functionDeclarations": [{"name": "find"}]}],
}
BEDROCK = {
    "system": [{"text": RULES}, {"cachePoint": {"type": "default"}}],
    "messages": [
        {"role": "user", "content": [{"text": "Where?"}]},
        {
            "role": "assistant",
            "content": [{"toolUse": {"toolUseId": "1", "name": "find", "input": {"shelf": 3}}}],
        },
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "1", "content": [{"json": {"found": "yes"}}]}}],
        },
    ],
    "toolConfig": {"tools": [{"toolSpec": {"name": "find"}}]},
}


@pytest.mark.parametrize("body", [GEMINI, BEDROCK])
def test_all_that_is_read_of_a_body_has_tokens(body: dict[str, Any]) -> None:
    """Each part of it changes the tokens, from its place on."""
    tokens = body_tokens("approximate")
    whole = tokens(body)
    assert len(whole) > len(tokens({"prompt": RULES}))
    for part in prompts([body])[0].parts:
        word = next(word for word in ("Rule 59", "Where?", "shelf", "yes", "find") if word in part.text)
        other = tokens(_replaced(body, word))
        assert other.tolist() != whole.tolist(), part.path


def _replaced(value: Any, word: str) -> Any:
    if isinstance(value, dict):
        return {name.replace(word, "Xyz"): _replaced(one, word) for name, one in value.items()}
    if isinstance(value, list):
        return [_replaced(one, word) for one in value]
    return value.replace(word, "Xyz") if isinstance(value, str) else value


def test_prompts_without_tokens_decide_nothing() -> None:
    sent = log([at_top(clock("Now: %H:%M:%S"))], n=40)
    untellable = [
        Prompt(
            request_id=one.request_id,
            parts=one.parts,
            time=one.time,
            body={"unheard": "of"} if at % 3 else one.body,
        )
        for at, one in enumerate(sent)
    ]
    found = advised(untellable)
    assert found.untold == sum(at % 3 > 0 for at in range(len(sent)))
    assert found.undecided
    assert f"Not decided: the tokens of {found.untold} of 40 prompts cannot be told" in report(found).answer
    assert not advised(sent).undecided


@pytest.mark.parametrize(
    ("least", "said"), [(0.01, "more than 1%"), (0.005, "more than 0.5%"), (0.2, "more than 20%")]
)
def test_a_clean_answer_claims_what_was_looked_for(least: float, said: str) -> None:
    assert f"No slot was found that keeps {said} of that" in report(advised(log([]), min_share=least)).answer


def test_a_count_by_a_sample_says_so() -> None:
    found = advised(log([at_top(clock("Now: %H:%M:%S"))], n=600))
    (one,) = found.suggestions
    assert one.slot.compared == 240
    assert evidence(one.slot).startswith(
        f"differs in about {one.slot.requests} of 600 requests (240 were compared)"
    )
    few = advised(log([at_top(clock("Now: %H:%M:%S"))], n=100)).suggestions[0].slot
    assert few.compared is None
    assert evidence(few).startswith(f"differs in {few.requests} of 100 requests: ")


def test_keys_that_repeat_are_numbered() -> None:
    assert told_apart(["a", "b", "a", "a", "b"]) == ["a", "b", "a-2", "a-3", "b-2"]
