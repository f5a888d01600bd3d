"""Gains of many sets of rules at once are those of each set by itself, and nothing is worked out twice."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analysis.advisor.pricing.gains import Change, Replayed, gains
from analysis.advisor.pricing.gains_rewritten import Rewritten
from analysis.advisor.rewriting.rules import Action, Rule, apply
from analysis.prefix_replay.rules import BlockRule
from cachemodel.prompts.model import Prompt

Body = Mapping[str, Any]

CLOCK, TICKET = r"^Now: \d+$", r"^Ticket \w+$"
RULES = (
    Rule(Action.MOVE, "system", CLOCK),
    Rule(Action.MOVE, "user", TICKET),
    Rule(Action.DROP, "system", TICKET),
    Rule(Action.DROP, "prompt", CLOCK),
    Rule(Action.SORT_ITEMS, "system", items=("never shout", "always smile", "be kind to all")),
    Rule(Action.ONE_FORM, "user"),
    Rule(Action.SORT_TOOLS, "tools"),
    Rule(Action.SORT_KEYS, "assistant"),
    Rule(Action.SORT_KEYS, "system"),
    Rule(Action.MOVE_MESSAGE, "system", CLOCK),
)
# What requests are made of is made once, as a reader of logs shares it.
TEXTS = (
    "Now: 1\nbe kind to all\nnever shout\nalways smile",
    "Now: 2\nTicket x9\nalways smile\nbe kind to all",
    "be kind to all",
    "Now: 3",
    'a  b\n{"b": 1, "a": 2}',
    "Ticket y7\nhello",
)
CALL = {"function": {"name": "f", "arguments": '{"b": 1, "a": 2}'}}
CALLS = {"role": "assistant", "tool_calls": [CALL]}
MESSAGES = (
    CALLS,
    *(
        {"role": role, "content": content}
        for role in ("system", "developer", "user", "assistant")
        for text in TEXTS
        for content in (
            text,
            [{"type": "text", "text": text}],
            [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}],
        )
    ),
)
TOOLS = ([{"name": "b"}, {"name": "a"}], [{"name": "a"}, {"name": "b"}], None)
messages = st.lists(st.sampled_from(MESSAGES), max_size=4)
bodies = st.one_of(
    st.builds(
        lambda said, system, tools, seed: {
            "messages": said,
            "system": system,
            "tools": tools,
            "seed": seed,
        },
        messages,
        st.sampled_from((*TEXTS, None)),
        st.sampled_from(TOOLS),
        st.integers(0, 3),
    ),
    st.builds(lambda said: {"messages": said}, messages),
    st.builds(lambda said, text: {"input": said, "instructions": text}, messages, st.sampled_from(TEXTS)),
    st.builds(lambda said: {"messages": [], "input": said}, messages),
    st.builds(lambda said: {"messages": None, "input": said}, messages),
    st.builds(lambda text: {"input": text}, st.sampled_from(TEXTS)),
    st.builds(lambda text: {"prompt": text}, st.sampled_from(TEXTS)),
)
sets = st.lists(st.lists(st.sampled_from(RULES), max_size=4, unique=True).map(tuple), min_size=1, max_size=6)


def tokenize(body: Body) -> np.ndarray:
    """A token a word of what it says, as JSON."""
    said = json.dumps(
        [body.get(name) for name in ("tools", "system", "instructions", "prompt", "messages", "input")]
    )
    return np.array([zlib.crc32(word.encode()) for word in said.split()], np.uint32)


LONE = {"role": "system", "content": "Now: 3"}


@settings(max_examples=300)
@given(st.lists(bodies, max_size=8), sets, sets)
@example([{"messages": [CALLS, LONE]}, {"messages": [LONE]}], [()], [(RULES[0],)])
@example(
    [{"system": TEXTS[2], "messages": [LONE]}, {"system": TEXTS[2], "messages": [LONE, CALLS]}],
    [()],
    [(RULES[0],)],
)
def test_sets_together_are_each_set_alone(
    sent: list[Body], first: list[tuple[Rule, ...]], then: list[tuple[Rule, ...]]
) -> None:
    asked = Counter[str]()

    def counted(body: Body) -> np.ndarray:
        asked[json.dumps(body)] += 1
        return tokenize(body)

    rewritten = Rewritten(sent, [tokenize(body) for body in sent], counted)
    for some in (first, then):
        told = rewritten.by(some)
        for rules in some:
            assert [one.tolist() for one in told[rules]] == [
                tokenize(apply(rules, body)).tolist() for body in sent
            ]
    before = asked.copy()
    rewritten.by([*first, *then])
    assert asked == before, "what was asked for is known"


@given(st.lists(bodies, min_size=1, max_size=8), st.lists(st.sampled_from(RULES), max_size=4, unique=True))
def test_gains_are_differences_of_replays(sent: list[Body], rules: list[Rule]) -> None:
    prompts = [Prompt(request_id=str(at), parts=(), body=body) for at, body in enumerate(sent)]
    replayed = Replayed(prompts, tokenize, BlockRule(block_size=2))
    own = [(rule,) if at % 3 else () for at, rule in enumerate(rules, 1)]

    def computed(rules: list[Rule]) -> int:
        written = [Prompt(request_id="", parts=(), body=apply(rules, body)) for body in sent]
        return Replayed(written, tokenize, BlockRule(block_size=2)).as_sent.computed

    def saved(before: list[Rule], after: list[Rule]) -> int:
        return computed(before) - computed(after)

    every = [rule for one in own for rule in one]
    so_far = list[Rule]()
    for mine, gain in zip(own, gains(replayed, own), strict=True):
        if not mine:
            assert gain is None
            continue
        assert gain is not None
        others = [rule for rule in every if rule not in mine]
        assert gain.alone.saved == saved([], list(mine))
        assert gain.next.saved == saved(so_far, [*so_far, *mine])
        assert gain.last.saved == saved(others, every)
        assert isinstance(gain.most, Change)
        so_far += mine
