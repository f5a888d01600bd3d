"""Who gets the device: order, budget, chunks, room; by steps, never by time."""

from __future__ import annotations

import time

import pytest

from cachemodel.kv_events import BlockRemoved, BlockStored
from cachemodel.layers import Tier
from engine.core.sequence import State
from engine.faults import Faults
from engine.request import FinishReason
from tests.engine.core.tiny import ByHand, plain, tokens


@pytest.fixture
def core() -> ByHand:
    return ByHand(device_blocks=64)


def test_a_long_prompt_goes_in_chunks_of_what_a_step_may_compute(core: ByHand) -> None:
    sequence = core.submit(tokens(40), 1)
    core.drain()
    chunks = [i.attributes for i in sequence.request.timeline.intervals if i.layer == "prefill"]
    assert [(chunk["start"], chunk["tokens"]) for chunk in chunks] == [(0, 16), (16, 16), (32, 8)]
    assert [step.prefill_tokens for step in core.seen.steps] == [16, 16, 8]


def test_a_prompt_shares_its_steps_with_those_who_decode(core: ByHand) -> None:
    first = core.submit(tokens(4), 8, ignore_eos=True)
    core.step()
    long = core.submit(tokens(45, head=1), 1)
    core.drain()
    # One token of every step is the decode's, the rest the prompt's: 15 + 15 + 15.
    assert [(s.decode_seqs, s.prefill_tokens) for s in core.seen.steps[:4]] == [
        (0, 4),
        (1, 15),
        (1, 15),
        (1, 15),
    ]
    chunk = next(i for i in long.request.timeline.intervals if i.layer == "prefill")
    assert chunk.attributes == {
        "tokens": 15,
        "start": 0,
        "step_tokens": 16,
        "decode_seqs": 1,
        "context_tokens": 5,
    }
    assert len(first.request.output) == 8


def test_prompts_are_served_in_order_of_arrival(core: ByHand) -> None:
    sequences = [core.submit(tokens(10, head=i), 1) for i in range(4)]
    core.drain()
    ends = [sequence.request.first_token_ns for sequence in sequences]
    assert ends == sorted(ends)
    # 16 tokens a step: the second prompt is cut where the first left room, and so on.
    assert [step.prefill_tokens for step in core.seen.steps] == [16, 16, 8]
    assert [
        i.attributes["tokens"] for i in sequences[1].request.timeline.intervals if i.layer == "prefill"
    ] == [
        6,
        4,
    ]


def test_a_long_prefill_delays_the_first_token_of_those_behind_it(core: ByHand) -> None:
    core.submit(tokens(160), 1)
    behind = core.submit(tokens(4, head=1), 1)
    steps = 0
    while not behind.request.output:
        core.step()
        steps += 1
    assert steps == 11  # ten steps belong to the long prompt
    core.drain()


def test_no_more_run_at_once_than_allowed() -> None:
    core = ByHand(device_blocks=64, max_num_seqs=2, max_num_batched_tokens=64)
    sequences = [core.submit(tokens(4, head=i), 3, ignore_eos=True) for i in range(5)]
    seen = []
    while core.stepper.scheduler.sequences:
        core.step()
        seen.append(core.stepper.stats().running)
    assert max(seen) == 2
    assert [len(sequence.request.output) for sequence in sequences] == [3] * 5


def test_what_ended_makes_room_for_the_next() -> None:
    core = ByHand(device_blocks=4)  # 16 tokens: one request at a time
    sequences = [core.submit(tokens(12, head=i), 4, ignore_eos=True) for i in range(3)]
    core.step()
    assert [sequence.state for sequence in sequences] == [State.RUNNING, State.WAITING, State.WAITING]
    core.drain()
    assert [sequence.request.preemptions for sequence in sequences] == [0, 0, 0]


def test_the_last_to_arrive_is_preempted_and_served_before_those_who_wait() -> None:
    core = ByHand(device_blocks=6, max_num_batched_tokens=64)
    first = core.submit(tokens(11), 8, ignore_eos=True)
    second = core.submit(tokens(11, head=1), 8, ignore_eos=True)
    core.step()  # three blocks each: full
    third = core.submit(tokens(3, head=2), 1)
    core.step()
    core.step()  # the first two have 13 tokens: one more block each
    assert second.state is State.WAITING
    assert list(core.stepper.scheduler.waiting) == [second, third]
    core.drain()
    assert (first.request.preemptions, second.request.preemptions) == (0, 1)
    assert core.stepper.stats().preemptions == 1
    assert third.request.first_token_ns >= second.request.first_token_ns


def test_who_takes_the_blocks_of_another_gets_its_token_in_the_same_step() -> None:
    core = ByHand(device_blocks=6, max_num_batched_tokens=64)
    first, second = (core.submit(tokens(11, head=i), 8, ignore_eos=True) for i in range(2))
    while not second.request.preemptions:
        before = (len(first.request.output), len(second.request.output))
        core.step()
    assert (len(first.request.output), len(second.request.output)) == (before[0] + 1, before[1])
    step = core.seen.steps[-1]
    assert (step.preemptions, step.decode_seqs, step.prefill_tokens) == (1, 1, 0)
    assert first.request.output == plain(tokens(11), before[0] + 1, ignore_eos=True)
    core.drain()


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
def test_a_request_can_be_cancelled_at_any_moment(core: ByHand, steps: int) -> None:
    other = core.submit(tokens(6, head=1), 6, ignore_eos=True)
    sequence = core.submit(tokens(30), 6, ignore_eos=True)
    for _ in range(steps):
        core.step()
    core.stepper.end(sequence, FinishReason.ABORT)
    core.cache.check()
    assert core.outputs[sequence.request.request_id][-1].finish_reason is FinishReason.ABORT
    core.drain()
    assert other.request.output == plain(tokens(6, head=1), 6, ignore_eos=True)
    assert sequence.request.timeline.layer == "other"


def test_a_cancelled_one_is_told_once(core: ByHand) -> None:
    sequence = core.submit(tokens(5), 5)
    core.stepper.end(sequence, FinishReason.ABORT)
    core.stepper.end(sequence, FinishReason.STOP)
    assert [o.finish_reason for o in core.outputs[sequence.request.request_id]] == [FinishReason.ABORT]
    assert core.step() is None


def test_nothing_to_do_means_sleep_until_something_comes(core: ByHand) -> None:
    assert core.step() is None
    core.submit(tokens(5), 1)
    assert core.step() == 0.0
    assert core.step() is None


def test_a_smaller_pool_is_waited_out() -> None:
    faults = Faults()
    core = ByHand(faults, device_blocks=8)
    fault = faults.add("device_blocks=2")
    sequence = core.submit(tokens(12), 2, ignore_eos=True)
    wait_s = core.step()
    assert sequence.state is State.WAITING
    assert wait_s is not None
    assert 0 < wait_s < 1  # nobody says when a fault is over, so it is looked for
    faults.remove(fault.id)
    core.drain()
    assert sequence.request.output == plain(tokens(12), 2, ignore_eos=True)


def test_who_does_not_fit_into_a_smaller_pool_lets_others_pass() -> None:
    faults = Faults()
    core = ByHand(faults, device_blocks=12)
    fault = faults.add("device_blocks=2")
    long = core.submit(tokens(12), 2, ignore_eos=True)
    short = [core.submit(tokens(5, head=i), 2, ignore_eos=True) for i in (1, 2)]
    while core.stepper.scheduler.admitted or not short[1].request.output:
        core.step()
    assert [len(sequence.request.output) for sequence in short] == [2, 2]
    assert short[0].request.first_token_ns < short[1].request.first_token_ns
    assert list(core.stepper.scheduler.waiting) == [long]
    faults.remove(fault.id)
    behind = core.submit(tokens(5, head=3), 1)
    core.drain()
    assert long.request.first_token_ns <= behind.request.first_token_ns


def test_a_pool_that_grows_again_is_used_while_others_run() -> None:
    faults = Faults()
    core = ByHand(faults, device_blocks=12)
    fault = faults.add("device_blocks=4")
    first = core.submit(tokens(5), 9, ignore_eos=True)
    second = core.submit(tokens(12, head=1), 1)
    core.step()
    core.step()
    assert second.state is State.WAITING
    faults.remove(fault.id)
    core.step()
    assert len(second.request.output) == 1
    assert first.state is State.RUNNING
    core.drain()


def test_a_smaller_pool_takes_blocks_from_those_who_run() -> None:
    faults = Faults()
    core = ByHand(faults, device_blocks=12)
    sequences = [core.submit(tokens(14, head=i), 6, ignore_eos=True) for i in range(2)]
    for _ in range(3):
        core.step()
    faults.add("device_blocks=6")
    core.drain()
    assert sequences[1].request.preemptions >= 1
    for i, sequence in enumerate(sequences):
        assert sequence.request.output == plain(tokens(14, head=i), 6, ignore_eos=True)


def test_a_failed_load_is_computed_and_the_next_request_finds_it_on_the_device() -> None:
    faults = Faults()
    core = ByHand(faults, device_blocks=32, host_blocks=32)
    core.submit(tokens(17), 1)
    core.drain()
    core.cache.evict(1.0)
    faults.add("layer=host,fail=1")
    failed = core.submit(tokens(17), 1)
    core.drain()
    assert (failed.request.sources.host, failed.request.sources.computed) == (0, 17)
    (load,) = [part for part in failed.request.timeline.intervals if part.layer == "host"]
    assert load.attributes == {"fault": "layer=host,fail=1", "fault_us": 0, "lost": 16}
    assert (core.cache.stats().counts.load_failures, core.cache.stats().counts.lost) == (1, 16)
    hit = core.submit(tokens(17), 1)
    core.drain()
    assert (hit.request.sources.device, hit.request.sources.host) == (16, 0)
    assert hit.request.output == failed.request.output == plain(tokens(17), 1)


def test_a_request_that_reads_no_cache_writes_it() -> None:
    core = ByHand(device_blocks=32)
    found = []
    for reads_off in (True, True, False):
        sequence = core.submit(tokens(17), 1, reads_off=reads_off)
        core.drain()
        found.append(sequence.request.sources.device)
    assert found == [0, 0, 16]


def test_a_full_report_tells_of_what_was_found_as_well() -> None:
    core = ByHand(device_blocks=32)
    told = []
    for reports_reuse in (True, True, False):
        core.submit(tokens(17), 1, reports_reuse=reports_reuse)
        core.drain()
        told.append([event for event in core.seen.events if isinstance(event, BlockStored)])
        core.seen.events.clear()
    assert told[0] == told[1]
    assert told[2] == []


def test_an_engine_at_rest_wakes_for_what_expires() -> None:
    core = ByHand(device_blocks=32, cache_ttl=0.05)
    core.submit(tokens(17), 1)
    core.drain()
    while (wait_s := core.step()) is not None:
        assert 0 <= wait_s <= 0.0051
        time.sleep(wait_s)
    assert core.cache.stats().tiers[Tier.DEVICE].cached == 0
    assert isinstance(core.seen.events[-1], BlockRemoved)


def test_an_evict_storm_takes_the_hits() -> None:
    faults = Faults()
    core = ByHand(faults, device_blocks=32)
    core.submit(tokens(17), 1)
    core.drain()
    hit = core.submit(tokens(17), 1)
    core.drain()
    assert (hit.request.sources.device, hit.request.sources.computed) == (16, 1)
    faults.add("evict=1")
    missed = core.submit(tokens(17), 1)
    core.drain()
    assert (missed.request.sources.device, missed.request.sources.computed) == (0, 17)
