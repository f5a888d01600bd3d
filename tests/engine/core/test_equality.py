"""Whatever the core does with a request, its greedy tokens are those of plain recomputation; its accounts add up."""

from __future__ import annotations

import os
from collections.abc import Sequence as Tokens
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachemodel.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from cachemodel.layers import Tier
from engine.cache.block import TIERS
from engine.request import FinishReason, Request
from tests.engine.core.tiny import EOS, VOCABULARY, ByHand, plain

SHARED = [[(7 * i * i + 3 * i + head) % VOCABULARY for i in range(40)] for head in range(2)]
"""Beginnings that prompts have in common."""

LOST_DISK = "the disk's file is empty"
MEDIA = {Tier.DEVICE: "GPU", Tier.HOST: "CPU", Tier.REMOTE: "DISK"}


class Arrival(NamedTuple):
    """A request of a mix. after: steps to wait before it; cancel: steps to give it, None to let it end.

    fault: on from its arrival to the next one's; it may be the disk that loses what it has.
    """

    prompt: list[int]
    max_tokens: int
    salt: str
    after: int
    cancel: int | None
    ignore_eos: bool
    fault: str
    reads_off: bool
    reports_reuse: bool


@st.composite
def prompts(draw: st.DrawFn) -> list[int]:
    shared = draw(st.sampled_from(SHARED))[: draw(st.sampled_from([0, 13, 32, 40]))]
    own = draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=0 if shared else 1, max_size=9))
    return shared + own


arrivals = st.builds(
    Arrival,
    prompts(),
    st.integers(1, 15),
    st.sampled_from(["", "", "", "tenant"]),
    st.sampled_from([0, 0, 1, 4, 12]),
    st.none() | st.none() | st.none() | st.integers(0, 6),
    st.booleans(),
    st.sampled_from(
        [
            *("", "", "", "", "evict=0.5,every_s=0.001", "evict=1", "device_blocks=16", LOST_DISK),
            *("layer=host,fail=0.5", "layer=remote,fail=1"),
        ]
    ),
    st.sampled_from([False] * 4 + [True]),
    st.booleans(),
)
pools = st.fixed_dictionaries(
    {
        "device_blocks": st.integers(16, 24),
        "host_blocks": st.sampled_from([0, 6, 6, 40]),
        "disk_blocks": st.sampled_from([0, 40]),
        "max_num_batched_tokens": st.sampled_from([5, 16, 64]),
        "max_num_seqs": st.integers(2, 5),
        "max_load_blocks": st.sampled_from([1, 3, 64]),
        "prefix_caching": st.sampled_from([True] * 7 + [False]),
        "cache_unit": st.sampled_from([0, 0, 4, 8, 20]),
        "drop_last_unit": st.booleans(),
        "cache_ttl": st.sampled_from([0.0, 0.0, 0.002]),
    }
)


@settings(max_examples=100)
@given(mix=st.lists(arrivals, min_size=1, max_size=12), pool=pools)
def test_any_mix_generates_what_plain_recomputation_does(mix: list[Arrival], pool: dict[str, Any]) -> None:
    core = ByHand(**pool)
    try:
        ended = _play(core, mix)
        scheduler = core.stepper.scheduler
        assert not scheduler.sequences
        stats = core.stepper.stats()
        assert stats.running == stats.waiting == stats.loading == 0
        assert [tier.used for tier in stats.cache.tiers.values()] == [0] * len(stats.cache.tiers)
        assert len(core.seen.started) == len(core.seen.finished) == len(mix)
        for arrival, request in ended:
            expected = plain(arrival.prompt, arrival.max_tokens, ignore_eos=arrival.ignore_eos)
            _check_tokens(core, request, expected)
            _check_accounts(request)
        assert_events_give_the_index(core)
    finally:
        core.close()


def _play(core: ByHand, mix: list[Arrival]) -> list[tuple[Arrival, Request]]:
    """Let them arrive, cancel those that are to be, and step until all have ended."""
    cancels: list[tuple[int, Any]] = []
    played, now = [], 0
    for arrival in mix:
        for _ in range(arrival.after):
            core.step()
            now += 1
            _cancel_due(core, cancels, now)
        _set_fault(core, arrival.fault)
        sequence = core.submit(
            arrival.prompt,
            arrival.max_tokens,
            salt=arrival.salt,
            ignore_eos=arrival.ignore_eos,
            reads_off=arrival.reads_off,
            reports_reuse=arrival.reports_reuse,
        )
        if arrival.cancel is not None:
            cancels.append((now + arrival.cancel, sequence))
        played.append((arrival, sequence.request))
    while cancels:
        _cancel_due(core, cancels, now)
        core.step()
        now += 1
    core.drain()
    return played


def _set_fault(core: ByHand, fault: str) -> None:
    core.faults.clear()
    if fault == LOST_DISK:
        if core.cache.tiers.disk:
            os.ftruncate(core.cache.tiers.disk.fileno(), 0)
    elif fault:
        core.faults.add(fault)


def _cancel_due(core: ByHand, cancels: list[tuple[int, Any]], now: int) -> None:
    for due, sequence in list(cancels):
        if now >= due:
            core.stepper.end(sequence, FinishReason.ABORT)
            core.cache.check()
            cancels.remove((due, sequence))


def _check_tokens(core: ByHand, request: Request, expected: list[int]) -> None:
    outputs = core.outputs[request.request_id]
    assert [token for output in outputs for token in output.token_ids] == request.output
    assert [output.finish_reason for output in outputs[:-1]] == [None] * (len(outputs) - 1)
    assert outputs[-1].finish_reason is request.finish_reason
    if request.finish_reason is FinishReason.ABORT:
        assert request.output == expected[: len(request.output)]
        return
    assert request.output == expected
    stopped = expected[-1] == EOS and not request.sampling.ignore_eos
    assert request.finish_reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)


def _check_accounts(request: Request) -> None:
    sources, timeline = request.sources, request.timeline
    counted = sources.device + sources.host + sources.remote + sources.computed
    if request.finish_reason is FinishReason.ABORT:
        assert counted <= len(request.prompt)
    else:
        assert counted == len(request.prompt)
        assert sources.computed >= 1  # the whole prompt is never taken from the cache
    assert sources.recomputed == 0 or request.preemptions > 0
    assert sum(timeline.layer_ns().values()) == timeline.end_ns - timeline.start_ns
    assert [one.end_ns for one in timeline.intervals[:-1]] == [one.start_ns for one in timeline.intervals[1:]]
    if request.output:
        assert _to_first_token(request) == request.first_token_ns - timeline.start_ns


def _to_first_token(request: Request) -> int:
    """All layers of the time to first token, added up."""
    layers = {"frontend", "queue", "prefix", "host", "remote", "prefill"}
    return sum(
        interval.end_ns - interval.start_ns
        for interval in request.timeline.intervals
        if interval.layer in layers and interval.start_ns < request.first_token_ns
    )


def assert_events_give_the_index(core: ByHand) -> None:
    """Whoever followed the events knows what is cached, and where."""
    told = replayed(core.seen.events)
    held: dict[str, set[Any]] = {}
    for block in core.cache.index.blocks():
        held.setdefault(MEDIA[TIERS[block.level]], set()).add(block.hash64)
    assert {medium: hashes for medium, hashes in told.items() if hashes} == held
    cached = {MEDIA[tier]: tier_stats.cached for tier, tier_stats in core.cache.stats().tiers.items()}
    assert {medium: len(held.get(medium, ())) for medium in cached} == cached


def replayed(events: Tokens[Event]) -> dict[str, set[Any]]:
    """Hashes by medium after these events."""
    held: dict[str, set[Any]] = {}
    for event in events:
        match event:
            case BlockStored():
                held.setdefault(str(event.medium), set()).update(event.block_hashes)
            case BlockRemoved():
                held[str(event.medium)].difference_update(event.block_hashes)
            case AllBlocksCleared():
                held.clear()
            case _:
                pytest.fail(f"an event of another kind: {event}")
    return held


def test_a_preempted_request_goes_on_with_the_same_tokens() -> None:
    core = ByHand(device_blocks=12, max_num_batched_tokens=64)
    prompts = [[*SHARED[0][:11], i] for i in range(3)]
    sequences = [core.submit(prompt, 20, ignore_eos=True) for prompt in prompts]
    core.drain()
    requests = [sequence.request for sequence in sequences]
    assert [request.preemptions > 0 for request in requests] == [False, True, True]
    for prompt, request in zip(prompts, requests, strict=True):
        assert request.output == plain(prompt, 20, ignore_eos=True)
        assert request.sources.computed == 12
    layers = [(i.layer, i.attributes.get("preempted")) for i in requests[2].timeline.intervals]
    assert ("queue", True) in layers
    assert sum(request.sources.recomputed for request in requests) > 0
    core.close()


def test_seeded_samples_do_not_depend_on_the_company() -> None:
    def sampled(company: int) -> list[int]:
        core = ByHand(device_blocks=64)
        for i in range(company):
            core.submit(SHARED[1][: 5 + i], 12, temperature=1.0, ignore_eos=True)
        sequence = core.submit(SHARED[0][:9], 12, temperature=1.0, seed=11, ignore_eos=True)
        core.drain()
        core.close()
        return sequence.request.output

    alone = sampled(0)
    assert sampled(3) == sampled(6) == alone
    assert alone != plain(SHARED[0][:9], 12, ignore_eos=True)
