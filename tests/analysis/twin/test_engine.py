"""The reference engine itself, scheduler, cache and model, in CPU time: what it computes takes what it takes, whoever
else uses the machine, and what it waits for takes no time at all."""

from __future__ import annotations

import time

import numpy as np
import pytest

from analysis.attribution.model import Side
from analysis.twin.fidelity import fidelity, misfit
from analysis.twin.fit import fit
from analysis.twin.model import Told, Workload
from tests.analysis.twin.plain import LAYERS, side_of

torch = pytest.importorskip("torch")

from engine.cache.kv_cache import KVCache  # noqa: E402
from engine.config import EngineConfig  # noqa: E402
from engine.core import scheduler, stepper  # noqa: E402
from engine.core.runner import Runner  # noqa: E402
from engine.core.sequence import Sequence  # noqa: E402
from engine.faults import Faults  # noqa: E402
from engine.model.load import load  # noqa: E402
from engine.model.sampling import Sampler  # noqa: E402
from engine.observer import Silent  # noqa: E402
from engine.request import Request, Sampling  # noqa: E402
from engine.timeline import Timeline  # noqa: E402

CONFIG = EngineConfig(threads=1, max_num_seqs=8, max_num_batched_tokens=256, device_blocks=512, host_blocks=0)
TOLD = Told(max_num_seqs=8, max_num_batched_tokens=256, kv_tokens=512 * 16)
N, RATE, TEMPLATES = 120, 5.0, 4


class Clock:
    """Nanoseconds of CPU that this thread has used, and of waits that were skipped."""

    def __init__(self) -> None:
        self._skipped = -time.thread_time_ns()

    def now_ns(self) -> int:
        return self._skipped + time.thread_time_ns()

    def skip_to(self, then_ns: int) -> None:
        self._skipped += max(0, then_ns - self.now_ns())


def requests(vocabulary: int) -> list[Request]:
    """Poisson arrivals of prompts that begin with one of a few templates."""
    rng = np.random.default_rng(5)
    templates = [rng.integers(5, vocabulary, 96).tolist() for _ in range(TEMPLATES)]
    arrival_ns = (np.cumsum(rng.exponential(1 / RATE, N)) * 1e9).astype(np.int64).tolist()
    return [
        Request(
            request_id=str(number),
            prompt=templates[rng.integers(TEMPLATES)]
            + rng.integers(5, vocabulary, rng.integers(10, 200)).tolist(),
            sampling=Sampling(max_tokens=int(rng.integers(2, 24)), ignore_eos=True),
            timeline=Timeline("queue", at),
        )
        for number, at in enumerate(arrival_ns)
    ]


def serve(clock: Clock) -> list[Request]:
    loaded = load(CONFIG)
    cache, faults, ended = KVCache(loaded.config, CONFIG), Faults(), []
    core = stepper.Stepper(
        CONFIG, Runner(loaded.model, Sampler(), cache, faults), cache, (), Silent(), faults, ended.append
    )
    sent = requests(loaded.config.vocab_size)
    coming = [Sequence(request, lambda output: None, number) for number, request in enumerate(sent)][::-1]
    while len(ended) < N:
        while coming and coming[-1].request.timeline.start_ns <= clock.now_ns():
            core.add(coming.pop())
        if core.step() is None and coming:
            clock.skip_to(coming[-1].request.timeline.start_ns)
    cache.close()
    return sent


def told(sent: list[Request]) -> Side:
    spent = [request.timeline.layer_ns() for request in sent]
    layers = {layer: np.array([one.get(layer, 0) / 1e6 for one in spent]) for layer in LAYERS}
    prefix = np.array([one.get("prefix", 0) / 1e6 for one in spent])
    nothing = np.zeros(len(sent))
    work = Workload(
        arrival=np.array([request.timeline.start_ns / 1e9 for request in sent]),
        prompt=np.array([float(len(request.prompt)) for request in sent]),
        completion=np.array([float(len(request.output)) for request in sent]),
        host=nothing,
        remote=nothing,
        computed=np.array([float(request.sources.computed) for request in sent]),
        before=prefix,
        after=nothing,
    )
    return side_of(work, prefix, layers, "engine")


@pytest.mark.slow
def test_the_engine_is_reproduced(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    for module in (scheduler, stepper):
        monkeypatch.setattr(module, "now_ns", clock.now_ns)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        sent = serve(clock)
    finally:
        torch.set_num_threads(threads)
    side = told(sent)
    assert 0.3 < side.tokens[0].sum() / side.prompt.sum() < 0.7, "some is found in the cache"
    found = fit(side, TOLD)
    rows = fidelity(side, found)
    assert misfit(rows) == "", (found.law, rows)
    assert found.law.step > 0
