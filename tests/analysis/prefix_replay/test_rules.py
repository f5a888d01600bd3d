"""Each rule against itself written plainly, in small random worlds."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analysis.prefix_replay.model import Requests
from analysis.prefix_replay.replay import replay
from analysis.prefix_replay.rules import BlockRule, ProviderRule, RadixRule, Rule, SlotRule
from cachemodel.alignment import Alignment
from tests.analysis.prefix_replay import slow
from tests.analysis.prefix_replay.worlds import requests, worlds

MANY = settings(max_examples=200)
_SOME = st.none() | st.integers(1, 6)


@st.composite
def block_rules(draw: st.DrawFn) -> BlockRule:
    size = draw(st.integers(1, 4))
    law = Alignment(size * draw(st.integers(1, 2)), draw(st.integers(0, 1)), draw(st.integers(0, 1)))
    return BlockRule(
        block_size=size,
        alignment=draw(st.none() | st.just(law)),
        capacity=draw(st.none() | st.integers(1, 12)),
        chunk=draw(_SOME),
        max_num_seqs=draw(st.none() | st.integers(1, 3)),
        planned=draw(st.booleans()),
        copies=draw(st.booleans()),
        unknown_first=draw(st.booleans()),
    )


radix_rules = st.builds(
    RadixRule,
    page_size=st.integers(1, 3),
    capacity=st.none() | st.integers(1, 40),
    chunk=_SOME,
    max_running_requests=st.none() | st.integers(1, 3),
)
slot_rules = st.builds(
    SlotRule,
    slots=st.integers(1, 3),
    similarity=st.sampled_from([0.0, 0.1, 0.5]),
    cache_reuse=st.integers(0, 3),
    host_tokens=st.none() | st.integers(0, 40),
    saves_idle=st.booleans(),
)
provider_rules = st.builds(
    ProviderRule,
    minimum=st.integers(0, 6),
    granularity=st.integers(1, 3),
    explicit=st.booleans(),
    breakpoints=st.integers(1, 3),
    look_back=st.integers(0, 3),
    lifetime=st.none() | st.integers(1, 8).map(float),
    refreshed=st.booleans(),
)
rules: st.SearchStrategy[Rule] = block_rules() | radix_rules | slot_rules | provider_rules


def both(world: Requests, rule: Rule) -> tuple[list[int], list[int]]:
    out = replay(world, rule)
    return out.served.tolist(), out.held.tolist()


@MANY
@given(worlds(), block_rules())
def test_blocks(world: Requests, rule: BlockRule) -> None:
    assert both(world, rule) == slow.Blocks(world, rule).run()


def waits_for_room() -> Requests:
    """One that does not fit waits twice, and what it would hold must not count as used for that."""
    lengths = (0, 3, 6, 15, 0, 4, 15, 15, 1, 1, 2)
    ones = {1, 25, 29, 31}
    tokens = [int(at in ones) for at in range(sum(lengths))]
    ends = np.cumsum(lengths)
    prompts = [tokens[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    zero, done = np.zeros(len(lengths)), np.zeros(len(lengths))
    done[6] = 0.5
    return requests(prompts, sent=zero, first_token=zero, done=done)


@MANY
@given(worlds(), radix_rules)
@example(waits_for_room(), RadixRule(page_size=2, capacity=24))
def test_radix(world: Requests, rule: RadixRule) -> None:
    assert both(world, rule) == slow.Radix(world, rule).run()


@MANY
@given(worlds(), slot_rules)
def test_slots(world: Requests, rule: SlotRule) -> None:
    assert both(world, rule) == slow.slots(world, rule)


@MANY
@given(worlds(), provider_rules)
def test_provider(world: Requests, rule: ProviderRule) -> None:
    assert both(world, rule) == slow.provider(world, rule)
