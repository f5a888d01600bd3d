"""The engine with its thread: what callers on other threads may rely on."""

from __future__ import annotations

import gc
import queue
import random
import threading
import time

import pytest

from cachemodel.errors import UserError
from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import EngineFailed, Overloaded, RequestError
from engine.model.load import load
from engine.request import FinishReason, Output, Request
from tests.engine.core.conftest import Make, seen, serve, until
from tests.engine.core.tiny import EOS, VOCABULARY, loaded, next_token, plain, request, settings, tokens


def test_a_request_from_submission_to_delivery(make: Make) -> None:
    engine = make()
    asked = request(tokens(9), 5, ignore_eos=True)
    outputs = serve(engine, asked)
    assert [token for output in outputs for token in output.token_ids] == plain(tokens(9), 5, ignore_eos=True)
    assert [output.finish_reason for output in outputs] == [None] * 4 + [FinishReason.LENGTH]
    assert seen(engine).started == seen(engine).finished == [asked]
    assert asked.timeline.layer == "other"
    assert sum(asked.timeline.layer_ns().values()) == asked.timeline.end_ns - asked.timeline.start_ns


def test_the_end_is_told_once_however_often_it_is_said(make: Make) -> None:
    engine = make()
    asked = request(tokens(9), 2)
    serve(engine, asked)
    engine.finished(asked)
    engine.abort(asked.request_id)
    serve(engine, request(tokens(3), 1))
    assert seen(engine).finished[0] is asked
    assert len(seen(engine).finished) == 2


def test_who_goes_away_early_is_aborted_and_told_once(make: Make) -> None:
    engine = make()
    asked = request(tokens(9), 100, ignore_eos=True)
    outputs: list[Output] = []
    engine.submit(asked, outputs.append)
    until(lambda: len(outputs) > 2)
    engine.finished(asked)
    until(lambda: len(seen(engine).finished) == 1)
    assert outputs[-1].finish_reason is asked.finish_reason is FinishReason.ABORT
    assert asked.timeline.end_ns > 0
    assert engine.stats().running == 0


def test_an_aborted_request_ends_and_its_caller_is_told(make: Make) -> None:
    engine = make()
    asked = request(tokens(9), 100, ignore_eos=True)
    outputs: list[Output] = []
    engine.submit(asked, outputs.append)
    until(lambda: len(outputs) > 2)
    engine.abort(asked.request_id)
    until(lambda: outputs[-1].finish_reason is not None)
    assert outputs[-1].finish_reason is FinishReason.ABORT


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "says"),
    [
        ([], 4, "the prompt is empty; it needs at least one token"),
        ([1], 0, "max_tokens must be at least 1, not 0"),
        ([1] * 250, 7, "this model's context is 256 tokens, but 257 were asked for: 250 of the prompt and 7"),
        ([1] * 125, 5, "need 33 KV blocks of 4 tokens, the device has 32"),
        ([1, VOCABULARY], 1, f"token id {VOCABULARY} is not in the vocabulary of {VOCABULARY} tokens"),
        ([-1], 1, "token id -1 is not in the vocabulary"),
    ],
)
def test_what_can_never_be_served_is_refused(
    make: Make, prompt: list[int], max_tokens: int, says: str
) -> None:
    engine = make()
    with pytest.raises(RequestError, match=says):
        engine.submit(request(prompt, max_tokens), lambda output: None)
    # The longest that fits is served: 32 blocks hold the KV of 128 tokens, and the last token needs none.
    assert serve(engine, request([1] * 125, 4, ignore_eos=True))[-1].finish_reason is FinishReason.LENGTH
    assert len(seen(engine).started) == 1


def test_a_fault_of_the_pool_refuses_what_cannot_fit_now(make: Make) -> None:
    engine = make()
    engine.faults.add("device_blocks=4")
    with pytest.raises(RequestError, match="the device has 4"):
        engine.submit(request(tokens(20)), lambda output: None)


def test_more_than_may_wait_are_refused(make: Make) -> None:
    engine = make(started=False, max_waiting=3)
    outputs: list[Output] = []
    for _ in range(3):
        engine.submit(request(tokens(3), 1), outputs.append)
    with pytest.raises(Overloaded) as refused:
        engine.submit(request(tokens(3), 1), outputs.append)
    assert (refused.value.status, refused.value.retry_after_s) == (503, 1.0)
    engine.start()
    until(lambda: len(outputs) == 3)
    serve(engine, request(tokens(3), 1))


def test_an_id_names_one_request_at_a_time(make: Make) -> None:
    engine = make()
    asked, twin = request(tokens(3), 1), request(tokens(3), 1)
    twin.request_id = asked.request_id
    outputs: list[Output] = []
    engine.submit(asked, outputs.append)
    with pytest.raises(RequestError, match="is in use"):
        engine.submit(twin, outputs.append)
    engine.finished(twin)  # it never was there
    until(lambda: bool(outputs))
    engine.finished(asked)
    serve(engine, twin)


def test_stopping_ends_all_and_takes_nothing_more(make: Make) -> None:
    engine = make(max_num_seqs=2)
    outputs: list[Output] = []
    for i in range(5):
        engine.submit(request(tokens(5, head=i), 100, ignore_eos=True), outputs.append)
    until(lambda: bool(outputs))
    engine.stop()
    engine.stop()
    ends = [output.finish_reason for output in outputs if output.finish_reason]
    assert ends == [FinishReason.ABORT] * 5
    assert not engine._thread.is_alive()
    with pytest.raises(EngineFailed):
        engine.submit(request(tokens(3)), outputs.append)
    with pytest.raises(EngineFailed):
        engine.reset_prefix_cache()


def test_an_engine_that_never_started_can_be_stopped(make: Make) -> None:
    engine = make(started=False)
    outputs: list[Output] = []
    engine.submit(request(tokens(5)), outputs.append)
    engine.stop()
    assert [output.finish_reason for output in outputs] == [FinishReason.ABORT]


def test_a_reset_forgets_the_prefixes(make: Make) -> None:
    engine = make()
    hit, missed = request(tokens(13), 1), request(tokens(13), 1)
    serve(engine, request(tokens(13), 1))
    serve(engine, hit)
    engine.reset_prefix_cache()
    serve(engine, missed)
    assert (hit.sources.device, missed.sources.device) == (12, 0)


def test_a_core_with_nothing_but_a_load_does_not_sleep_through_it(make: Make) -> None:
    engine = make(device_blocks=8, disk_blocks=16)
    serve(engine, request(tokens(25), 1))
    serve(engine, request(tokens(31, head=1), 1))
    asked = request(tokens(25), 1)
    serve(engine, asked)
    assert asked.sources.remote == 24


def test_an_idle_core_sleeps(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make()
    steps = []
    step = engine._stepper.step

    def counted() -> float | None:
        steps.append(1)
        return step()

    monkeypatch.setattr(engine._stepper, "step", counted)
    serve(engine, request(tokens(5), 1))
    until(lambda: len(steps) == 2)  # one with work, one that finds none
    time.sleep(0.1)
    assert len(steps) == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"block_size": 0}, "block_size must be at least 1, not 0"),
        ({"max_num_seqs": 17}, r"max_num_batched_tokens \(16\) must be at least max_num_seqs \(17\)"),
    ],
)
def test_settings_that_cannot_work(changes: dict[str, int], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Engine(settings(**changes), loaded=loaded())


def test_a_pool_too_small_for_the_longest_request_is_warned_of(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    make(max_model_len=129, device_blocks=32, started=False)  # the last token needs no KV
    assert caplog.messages == []
    make(max_model_len=130, device_blocks=32, started=False)
    assert caplog.messages == [
        "device_blocks is 32: requests of more than 129 tokens are refused; for max_model_len (130) it takes 33"
    ]


def test_thousands_of_requests_leave_nothing_behind(make: Make) -> None:
    engine = make(device_blocks=24, host_blocks=8, disk_blocks=8, max_num_batched_tokens=64)
    threads, wrong, names = set(threading.enumerate()), [], set()

    def client(number: int) -> None:
        rnd = random.Random(number)
        for i in range(400):
            prompt = tokens(rnd.randrange(1, 30), head=rnd.randrange(4))
            asked = request(prompt, rnd.randrange(1, 4))
            names.add(asked.request_id)
            if i % 7 == 0:
                engine.submit(asked, lambda output: None)
                engine.finished(asked)
            elif (outputs := serve(engine, asked)) and asked.output != plain(
                prompt, asked.sampling.max_tokens
            ):
                wrong.append((prompt, outputs))

    clients = [threading.Thread(target=client, args=(number,)) for number in range(5)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    until(lambda: len(seen(engine).finished) == 2000)
    assert wrong == []
    until(lambda: engine.stats().running == engine.stats().waiting == 0)
    assert all(tier.used == 0 for tier in engine.stats().cache.tiers.values())
    assert engine._open == {}
    assert [one for one in threading.enumerate() if one not in threads] == []
    seen(engine).started.clear()
    seen(engine).finished.clear()
    gc.collect()
    assert [one for one in gc.get_objects() if type(one) is Request and one.request_id in names] == []
    engine.stop()
    engine._cache.check()


@pytest.mark.parametrize("layer", ["prefix", "host", "prefill", "decode"])
def test_a_core_that_waits_a_fault_out_goes_on_when_all_are_cleared(make: Make, layer: str) -> None:
    engine = make(device_blocks=8, host_blocks=16)
    serve(engine, request(tokens(25), 1))
    serve(engine, request(tokens(31, head=1), 1))  # what came first is on the host now
    engine.faults.add(f"layer={layer},delay_ms=600000")
    asked = request(tokens(25), 3, ignore_eos=True)
    outputs: list[Output] = []
    engine.submit(asked, outputs.append)
    time.sleep(0.05)
    engine.faults.clear()
    until(lambda: bool(outputs) and outputs[-1].finish_reason is not None)
    assert sum(int(i.attributes.get("fault_us", 0)) for i in asked.timeline.intervals) < 60_000_000


def test_the_end_of_sequence_ends_a_request(make: Make) -> None:
    engine = make()
    prompt = next(p for p in (tokens(4, head) for head in range(60)) if EOS in plain(p, 12))
    outputs = serve(engine, request(prompt, 12))
    assert outputs[-1].finish_reason is FinishReason.STOP
    assert outputs[-1].token_ids == (EOS,)


def test_the_demo_model_too_generates_what_plain_recomputation_does() -> None:
    config = EngineConfig(
        max_model_len=256,
        device_blocks=12,
        host_blocks=6,
        max_num_batched_tokens=96,
        max_num_seqs=6,
        threads=1,
    )
    demo, outputs, rnd = load(config), queue.SimpleQueue[Output](), random.Random(5)
    beginning = [rnd.randrange(demo.config.vocab_size) for _ in range(80)]
    mix = []
    for i in range(8):
        own = [rnd.randrange(demo.config.vocab_size) for _ in range(rnd.randrange(1, 40))]
        mix.append(request(beginning[: 40 * (i % 3)] + own, rnd.randrange(4, 24), ignore_eos=True))
    engine = Engine(config, loaded=demo)
    try:
        engine.start()
        for asked in mix:
            engine.submit(asked, outputs.put)
        ended = 0
        while ended < len(mix):
            ended += outputs.get(timeout=60).finish_reason is not None
    finally:
        engine.stop()
    assert sum(asked.preemptions for asked in mix) > 0
    assert sum(asked.sources.device for asked in mix) > 0
    for asked in mix:
        tokens_so_far = [*asked.prompt, *asked.output]
        for at in range(len(asked.prompt), len(tokens_so_far)):
            assert tokens_so_far[at] == next_token(demo.model, tokens_so_far[:at])
