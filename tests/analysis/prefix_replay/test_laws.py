"""What holds of every rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.prefix_replay.identity import beginnings, blocks, kept, numbered
from analysis.prefix_replay.model import Ragged, Requests
from analysis.prefix_replay.replay import replay
from analysis.prefix_replay.rules import BlockRule, ProviderRule, RadixRule, Rule, SlotRule
from cachemodel.alignment import Alignment
from cachemodel.errors import UserError
from tests.analysis.prefix_replay.test_rules import block_rules, radix_rules, rules, slot_rules
from tests.analysis.prefix_replay.worlds import lists, ragged, requests, worlds

SOME = settings(max_examples=100)
ENDLESS: tuple[Rule, ...] = (
    BlockRule(block_size=2),
    BlockRule(block_size=2, alignment=Alignment(4, 1), planned=False, copies=False),
    RadixRule(),
    RadixRule(page_size=3),
    ProviderRule(minimum=2, granularity=2, lifetime=None),
    ProviderRule(minimum=1, explicit=True, lifetime=None),
)


@SOME
@given(worlds(), rules)
def test_no_more_is_served_than_can_be_and_than_was_held(world: Requests, rule: Rule) -> None:
    out, length = replay(world, rule), world.lengths
    assert (out.served >= 0).all()
    assert (out.held >= 0).all()
    assert (out.held <= length).all()
    if not (
        isinstance(rule, SlotRule) and rule.cache_reuse
    ):  # chunks behind the beginning are served there, too
        assert (out.served <= out.held).all()
    if isinstance(rule, BlockRule):
        assert (out.served <= [rule.law.attainable(int(one)) for one in length]).all()
        assert (out.served % rule.law.unit == 0).all()
    elif not isinstance(rule, ProviderRule):
        assert (out.served <= np.maximum(length - 1, 0)).all()
    if world.reads_off is not None:
        assert (out.served[world.reads_off] == 0).all()


@SOME
@given(worlds(), rules, st.integers(0, 2**32 - 2))
def test_what_tokens_are_called_changes_nothing(world: Requests, rule: Rule, other: int) -> None:
    names = np.array([other, other + 1], np.uint32)
    replies = world.replies
    if replies is not None:
        replies = Ragged(names[replies.values], replies.offsets)
    renamed = replace(world, tokens=names[world.tokens], replies=replies)
    was, now = replay(world, rule), replay(renamed, rule)
    assert (was.served == now.served).all()
    assert (was.held == now.held).all()


@SOME
@given(worlds(isolated=False), rules)
def test_nothing_is_shared_across_isolations(world: Requests, rule: Rule) -> None:
    own = np.arange(1, world.n + 1, dtype=np.uint64)
    out = replay(replace(world, isolation=own), rule)
    assert not out.served.any()
    assert not out.held.any()


@SOME
@given(worlds(isolated=False), rules)
def test_one_isolation_for_all_is_none(world: Requests, rule: Rule) -> None:
    out = replay(replace(world, isolation=np.full(world.n, 7, np.uint64)), rule)
    assert (out.served == replay(world, rule).served).all()


@SOME
@given(worlds(times=False), st.sampled_from(ENDLESS), st.data())
def test_a_longer_history_takes_nothing_from_a_cache_without_limits(
    world: Requests, rule: Rule, data: st.DataObject
) -> None:
    if not world.n:
        return
    gone = data.draw(st.integers(0, world.n - 1))
    keep = np.arange(world.n) != gone
    less = _some(world, keep)
    assert (replay(less, rule).held <= replay(world, rule).held[keep]).all()
    assert (replay(less, rule).served <= replay(world, rule).served[keep]).all()


@SOME
@given(worlds(times=False), block_rules() | radix_rules | slot_rules | st.sampled_from(ENDLESS))
def test_requests_sent_one_at_a_time_need_no_times(world: Requests, rule: Rule) -> None:
    sent = np.arange(world.n, dtype=np.float64) * 10
    apart = replace(world, sent=sent, first_token=sent + 1, done=sent + 2)
    was, now = replay(world, rule), replay(apart, rule)
    assert (was.served == now.served).all()
    assert (was.held == now.held).all()


def test_prompts_in_flight_are_found_as_the_rule_says() -> None:
    """Two that are alike, the second sent while the first is computed in two chunks."""

    def second(rule: Rule, sent: float) -> int:
        two = requests(
            [[*range(64)]] * 2,
            sent=np.array([0.0, sent]),
            first_token=np.array([2.0, 9.0]),
            done=np.array([4.0, 9.0]),
        )
        return int(replay(two, rule).served[1])

    def at_each(rule: Rule) -> list[int]:
        return [second(rule, at) for at in (0.0, 0.5, 1.0, 2.0)]

    # the second is begun with the last chunk of the first, which vLLM has planned by then
    assert at_each(BlockRule(chunk=32)) == [48, 48, 48, 48]
    assert at_each(BlockRule(chunk=32, planned=False)) == [32, 32, 32, 48]
    assert at_each(RadixRule(chunk=32)) == [32, 32, 32, 63]
    assert at_each(BlockRule()) == [48, 48, 48, 48]
    assert at_each(BlockRule(planned=False)) == [0, 0, 0, 48]
    assert at_each(RadixRule()) == [0, 0, 0, 63]
    assert at_each(BlockRule(planned=False, max_num_seqs=1)) == [48, 48, 48, 48]
    assert [second(SlotRule(slots=2), at) for at in (0.0, 3.9, 4.0)] == [0, 0, 63]


def test_lifetimes() -> None:
    def third(refreshed: bool, lifetime: float) -> int:
        sent = np.array([0.0, 200.0, 400.0])
        rule = ProviderRule(lifetime=lifetime, refreshed=refreshed)
        return int(replay(requests([[1] * 1300] * 3, sent=sent), rule).served[2])

    assert third(True, 300.0) == 1280  # 1,024 and two steps of 128
    assert third(False, 300.0) == 0
    assert third(False, 400.0) == 1280
    assert third(True, 199.0) == 0


def test_a_breakpoint_is_found_twenty_blocks_back() -> None:
    """The second prompt goes on: its own mark is new, the first's stands some content blocks before it."""

    def second(blocks: int) -> int:
        ends = [[2000], [2000 + 10 * at for at in range(blocks + 1)]]
        prompts = [[1] * 2000, [1] * 2000 + [2] * (10 * blocks)]
        marks = [[2000], [2000 + 10 * blocks]]
        two = requests(prompts, parts=ragged(ends), breakpoints=ragged(marks))
        return int(replay(two, ProviderRule(explicit=True)).served[1])

    assert second(20) == 2000
    assert second(21) == 0


def test_only_beginnings_that_are_equal_have_equal_numbers() -> None:
    rng = np.random.default_rng(3)
    prompts = [rng.integers(0, 3, rng.integers(0, 30)).tolist() for _ in range(300)]
    isolation = rng.integers(0, 2, 300).astype(np.uint64)
    numbers = blocks(ragged(prompts, np.uint32), isolation, 4)
    seen: dict[tuple[int, ...], int] = {}
    for row, (prompt, mine) in enumerate(zip(prompts, lists(numbers, 300), strict=True)):
        assert len(mine) == len(prompt) // 4
        for at, number in enumerate(mine):
            assert seen.setdefault((int(isolation[row]), *prompt[: 4 * at + 4]), number) == number
    assert sorted(seen.values()) == list(range(len(seen)))


def splitmix64(value: int) -> int:
    """With numbers of any size, in the words of its authors."""
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31


@SOME
@given(
    st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=9), max_size=6),
    st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6),
    st.data(),
)
def test_a_hash_is_the_sum_of_a_number_for_each_token(
    prompts: list[list[int]], isolation: list[int], data: st.DataObject
) -> None:
    ends = [sorted(data.draw(st.lists(st.integers(0, len(prompt)), max_size=3))) for prompt in prompts]
    told = beginnings(
        ragged(prompts, np.uint32), np.array(isolation[: len(prompts)], np.uint64), ragged(ends)
    )
    for prompt, own, mine, hashes in zip(prompts, isolation, ends, lists(told, len(prompts)), strict=False):
        for end, number in zip(mine, hashes, strict=True):
            tokens = sum(splitmix64(at << 32 | token) for at, token in enumerate(prompt[:end]))
            assert number == (tokens + (splitmix64(own) if own else 0)) % 2**64


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 40), max_size=60))
def test_numbers_are_equal_where_hashes_are(hashes: list[int]) -> None:
    told = numbered(ragged([hashes], np.uint64)).values.tolist()
    first = list(dict.fromkeys(max(one, 1) for one in hashes))  # a table has no place for 0
    assert told == [first.index(max(one, 1)) for one in hashes]


@SOME
@given(worlds(times=False), block_rules())
def test_a_pool_without_limit_is_one_with_room_for_all(world: Requests, rule: BlockRule) -> None:
    endless = replay(world, replace(rule, capacity=None))
    room = replay(world, replace(rule, capacity=1 + int(kept(world).lengths.sum())))
    assert (endless.served == room.served).all()
    assert (endless.held == room.held).all()


def test_the_last_token_of_an_answer_is_not_kept() -> None:
    two = requests([[1, 2], [3], [4]], replies=ragged([[5, 6], [], [7]], np.uint32))
    assert lists(kept(two), 3) == [[1, 2, 5], [3], [4]]


def test_bad_input_says_what_to_do() -> None:
    with pytest.raises(UserError, match="sort the requests"):
        requests([[1], [2]], sent=np.array([2.0, 1.0]))
    with pytest.raises(UserError, match="one value a prompt"):
        requests([[1], [2]], done=np.array([2.0]))
    with pytest.raises(UserError, match="do not cut"):
        Requests(np.zeros(3, np.uint32), np.array([0, 2]))
    with pytest.raises(UserError, match="whole blocks"):
        BlockRule(block_size=16, alignment=Alignment(24))
    with pytest.raises(UserError, match="above 0"):
        RadixRule(page_size=0)
    with pytest.raises(UserError, match="between 0 and 1"):
        SlotRule(similarity=2.0)


def _some(world: Requests, keep: np.ndarray) -> Requests:
    rows = np.flatnonzero(keep)

    def some(values: Ragged | None) -> Ragged | None:
        if values is None:
            return None
        every = lists(values, world.n)
        return ragged([every[row] for row in rows], values.values.dtype.type)

    prompts = some(Ragged(world.tokens, world.offsets))
    assert prompts is not None
    return replace(
        world,
        tokens=prompts.values,
        offsets=prompts.offsets,
        isolation=None if world.isolation is None else world.isolation[keep],
        reads_off=None if world.reads_off is None else world.reads_off[keep],
        breakpoints=some(world.breakpoints),
        parts=some(world.parts),
        replies=some(world.replies),
    )
