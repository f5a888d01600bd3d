"""Where a request's time is put, and which interval a fault is marked on."""

from __future__ import annotations

import os

import pytest

from engine.core.sequence import State
from engine.faults import Faults
from engine.request import Request
from engine.timeline import Interval
from tests.engine.core.tiny import ByHand, tokens


def layers(request: Request) -> list[str]:
    return [interval.layer for interval in request.timeline.intervals]


def only(request: Request, layer: str) -> Interval:
    (interval,) = (one for one in request.timeline.intervals if one.layer == layer)
    return interval


def push_down(core: ByHand, prompt: list[int], other: list[int]) -> None:
    """Compute a prompt, then others until its blocks have left the device."""
    for one in (prompt, other):
        core.submit(one, 1)
        core.drain()


def test_a_cold_request() -> None:
    core = ByHand()
    request = core.submit(tokens(20), 4, ignore_eos=True).request
    core.drain()
    assert layers(request) == ["frontend", "queue", "prefix", "prefill", "prefill", "decode", "other"]
    assert only(request, "prefix").attributes == {"device": 0, "host": 0, "remote": 0}
    # The first token comes out of the last chunk; three steps gave one each.
    assert only(request, "decode").attributes == {"tokens": 3, "steps": 3, "mean_batch": 1.0}
    assert only(request, "decode").start_ns == request.first_token_ns
    assert len(request.block_hashes) == 5


def test_kv_events_of_a_step_are_told_before_its_tokens_are_handed_out() -> None:
    """So that who asks another server upon the answer comes after them by their time."""
    core = ByHand()
    stored_by: list[int] = []
    sequence = core.submit(tokens(20), 1)
    sequence.sink = lambda _: stored_by.append(len(core.seen.events))
    core.drain()
    assert stored_by == [len(core.seen.events)] != [0]


def test_one_token_needs_no_decode() -> None:
    core = ByHand()
    request = core.submit(tokens(5), 1).request
    core.drain()
    assert layers(request) == ["frontend", "queue", "prefix", "prefill", "other"]
    assert only(request, "other").start_ns == request.first_token_ns


@pytest.mark.parametrize(
    ("layer", "tier"), [("host", "host_blocks"), ("remote", "disk_blocks")], ids=["host", "disk"]
)
def test_a_hit_of_a_lower_tier_is_loaded_first(layer: str, tier: str) -> None:
    core = ByHand(device_blocks=8, **{tier: 16})
    push_down(core, tokens(25), tokens(32, head=1))
    request = core.submit(tokens(25), 1).request
    core.drain()
    core.close()
    assert layers(request) == ["frontend", "queue", "prefix", layer, "prefill", "other"]
    assert only(request, layer).attributes == {"blocks": 6, "bytes": 6 * core.cache.tiers.block_bytes}
    assert getattr(request.sources, layer) == 24
    assert (request.sources.cached, request.sources.computed) == (24, 1)
    loading = [step.loaded_blocks for step in core.seen.steps if step.loaded_blocks]
    assert sum(step[layer] for step in loading) == 6


def test_loading_is_bounded_and_stops_nobody() -> None:
    core = ByHand(device_blocks=16, host_blocks=32, max_load_blocks=1)
    push_down(core, tokens(33), tokens(60, head=1))
    decoding = core.submit(tokens(3, head=2), 20, ignore_eos=True)
    core.step()
    loading = core.submit(tokens(33), 1)
    for done in range(8):
        core.step()
        assert loading.state is State.LOADING or done == 7
        assert len(decoding.request.output) == 2 + done
    core.drain()
    assert loading.request.sources.host == 32


def test_what_a_step_may_load_is_for_all_together() -> None:
    core = ByHand(device_blocks=24, host_blocks=64, max_load_blocks=3)
    for prompt in (tokens(17, head=1), tokens(17, head=2), tokens(96, head=3)):
        core.submit(prompt, 1)
        core.drain()
    done = len(core.seen.steps)
    sequences = [core.submit(tokens(17, head=head), 1) for head in (1, 2)]
    core.drain()
    assert [step.loaded_blocks.get("host", 0) for step in core.seen.steps[done:]][:3] == [3, 3, 2]
    assert [sequence.request.sources.host for sequence in sequences] == [16, 16]


def test_loaded_and_without_a_place_is_queueing_and_between_chunks_is_prefill() -> None:
    core = ByHand(device_blocks=24, host_blocks=64)
    first, second = tokens(8, head=1), tokens(8, head=2)
    for prompt in (first, second, tokens(96, head=3)):
        core.submit(prompt, 1)
        core.drain()
    long = core.submit(first + tokens(30, head=4), 1)
    short = core.submit(second + tokens(4, head=5), 1)
    third = core.submit(tokens(20, head=6), 1)
    core.drain()
    # Both hits arrive in one step, and the first request takes all of its tokens.
    assert layers(long.request)[2:] == ["prefix", "host", "prefill", "prefill", "other"]
    assert layers(short.request)[2:] == ["prefix", "host", "queue", "prefill", "prefill", "other"]
    # The third one's first chunk came while the others were loading; then it had to wait.
    chunks = [i for i in third.request.timeline.intervals if i.layer == "prefill"]
    assert [chunk.attributes["tokens"] for chunk in chunks] == [16, 4]
    assert chunks[0].attributes["held_steps"] == 2


DELAYED = ["queue", "prefix", "host", "remote", "prefill", "decode"]


@pytest.mark.parametrize("layer", DELAYED)
def test_a_delay_is_marked_where_it_was_put_and_nowhere_else(layer: str) -> None:
    faults = Faults()
    tier = "disk_blocks" if layer == "remote" else "host_blocks"
    core = ByHand(faults, device_blocks=8, **{tier: 16})
    push_down(core, tokens(25), tokens(32, head=1))
    spec = f"layer={layer},delay_ms=3"
    faults.add(spec)
    request = core.submit([*tokens(24), *tokens(4, head=3)], 3, ignore_eos=True).request
    core.drain()
    core.close()
    passages = 2 if layer == "decode" else 1  # two steps decoded
    interval = only(request, layer)
    assert interval.attributes["fault"] == spec
    assert interval.attributes["fault_us"] == 3000 * passages
    assert interval.end_ns - interval.start_ns >= 3_000_000 * passages
    assert [i.layer for i in request.timeline.intervals if "fault" in i.attributes] == [layer]


def test_who_has_kv_on_host_and_disk_waits_for_both_however_quick_the_disk_was() -> None:
    faults = Faults()
    core = ByHand(faults, device_blocks=8, host_blocks=3, disk_blocks=16, max_load_blocks=2)
    push_down(core, tokens(25), tokens(32, head=1))
    faults.add("layer=remote,delay_ms=3")
    request = core.submit(tokens(25), 1).request
    disk = core.cache.tiers.disk
    assert disk
    while "remote" not in layers(request) and not request.output:
        core.step()
        disk.settle()  # what was read ahead is there before the host is through
    core.drain()
    core.close()
    assert layers(request)[2:] == ["prefix", "host", "remote", "prefill", "other"]
    blocks = {layer: only(request, layer).attributes["blocks"] for layer in ("host", "remote")}
    assert blocks == {"host": request.sources.host // 4, "remote": request.sources.remote // 4}
    assert min(blocks.values()) > 0
    assert only(request, "remote").attributes["fault_us"] == 3000


@pytest.mark.parametrize("layer", ["prefill", "decode"])
def test_a_slowdown_makes_the_decoder_take_that_much_longer(layer: str) -> None:
    faults = Faults()
    core = ByHand(faults)
    faults.add(f"layer={layer},slowdown=5")
    request = core.submit(tokens(12), 4, ignore_eos=True).request
    core.drain()
    # prefill in the first step, decode in the three after it
    steps = core.seen.steps[:1] if layer == "prefill" else core.seen.steps[1:]
    waited_us = sum(4 * step.model_ns // 1000 for step in steps)
    told_us = only(request, layer).attributes["fault_us"]
    assert told_us == pytest.approx(waited_us, abs=4)
    assert all(step.duration_ns >= 5 * step.model_ns for step in steps)


def test_a_delay_of_the_device_is_felt_by_everybody() -> None:
    faults = Faults()
    core = ByHand(faults)
    decoding = core.submit(tokens(4), 3, ignore_eos=True).request
    core.step()
    faults.add("layer=prefix,delay_ms=5")
    core.submit(tokens(4, head=1), 1)
    core.drain()
    decode = only(decoding, "decode")
    assert decode.end_ns - decode.start_ns >= 5_000_000
    assert "fault" not in decode.attributes


def test_a_slow_device_takes_its_time_once_a_pass_and_for_each_token_that_it_computes() -> None:
    """Whoever is in the pass: its law is the one of the twin, step + prefill * tokens."""
    faults = Faults()
    core = ByHand(faults)
    decoding = core.submit(tokens(4), 3, ignore_eos=True).request
    core.step()
    faults.add("step_ms=4")
    faults.add("token_ms=0.5")
    core.submit(tokens(6, head=1), 1)
    core.submit(tokens(8, head=2), 1)
    waited: list[float] = []
    wait = faults.wait
    faults.wait = lambda seconds: waited.append(seconds) or wait(seconds)  # type: ignore[method-assign, func-returns-value]
    core.step()  # a decode and two prompts
    core.step()  # the last decode
    assert waited == pytest.approx([0.004 + 14 * 0.0005, 0.004])
    decode = only(decoding, "decode")
    assert decode.end_ns - decode.start_ns >= 15_000_000


@pytest.mark.parametrize("layer", ["queue", "remote"])
def test_a_delay_of_the_queue_or_the_disk_holds_one_request_alone(layer: str) -> None:
    faults = Faults()
    core = ByHand(faults, device_blocks=8, disk_blocks=16)
    push_down(core, tokens(13), tokens(32, head=1))
    fault = faults.add(f"layer={layer},delay_ms=20")
    held = core.submit(tokens(13), 1)
    core.step()
    faults.remove(fault.id)
    other = core.submit(tokens(3, head=2), 1)
    core.step()
    assert (held.request.output, len(other.request.output)) == ([], 1)
    core.drain()
    core.close()
    assert only(held.request, layer).attributes["fault_us"] == 20_000


def test_what_is_lost_on_the_way_is_computed_and_counted_so() -> None:
    core = ByHand(device_blocks=8, disk_blocks=16)
    push_down(core, tokens(25), tokens(32, head=1))
    disk = core.cache.tiers.disk
    assert disk
    disk.settle()
    os.ftruncate(disk.fileno(), 0)
    request = core.submit(tokens(25), 1).request
    core.drain()
    core.close()
    assert (request.sources.remote, request.sources.computed) == (0, 25)
    assert only(request, "remote").attributes["lost"] == 24
