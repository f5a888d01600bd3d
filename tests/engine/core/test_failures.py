"""What fails costs the requests of its step, and nothing else."""

from __future__ import annotations

import pytest

from engine.request import FinishReason, Output
from tests.engine.core.conftest import Make, serve
from tests.engine.core.tiny import plain, request, tokens


def test_a_step_that_fails_costs_its_own_requests(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make()
    model = engine._stepper._runner._model
    with monkeypatch.context() as patch:
        patch.setattr(model, "forward", _raise)
        failed = request(tokens(9), 4)
        outputs = serve(engine, failed)
    assert outputs == [Output(failed, (), FinishReason.ERROR)]
    assert failed.error == "the engine failed: RuntimeError: CUDA out of memory"
    assert serve(engine, request(tokens(9), 1))[-1].finish_reason in (FinishReason.LENGTH, FinishReason.STOP)
    stats = engine.stats()
    assert (stats.failed_steps, stats.running, stats.waiting) == (1, 0, 0)
    assert all(tier.used == 0 for tier in stats.cache.tiers.values())


@pytest.mark.parametrize("broken", ["match", "open", "extend", "commit", "evict"])
def test_a_bug_in_the_cache_does_not_stop_the_engine(
    make: Make, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    engine = make()
    if broken == "evict":
        engine.faults.add("evict=1,every_s=0.001")
    with monkeypatch.context() as patch:
        patch.setattr(engine._cache, broken, _raise)
        assert serve(engine, request(tokens(9), 4, ignore_eos=True))[-1].finish_reason is FinishReason.ERROR
    engine.faults.clear()
    assert serve(engine, request(tokens(9), 1, ignore_eos=True))[-1].finish_reason is FinishReason.LENGTH
    engine._cache.check()


def _raise(*args: object, **kwargs: object) -> None:
    raise RuntimeError("CUDA out of memory\nand a lot more")


def test_listeners_that_raise_harm_nobody(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make()
    for name in ("request_started", "step_done", "kv_events"):
        monkeypatch.setattr(engine.observer, name, _raise)
    engine.submit(request(tokens(9), 4), _raise)
    expected = plain(tokens(9), 4)
    outputs = serve(engine, request(tokens(9), 4))
    assert [token for output in outputs for token in output.token_ids] == expected
