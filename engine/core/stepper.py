"""One step of the core: what is scheduled runs once, and everybody is told. All of it on one thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.clock import now_ns
from engine.config import EngineConfig
from engine.core.runner import Ran, Runner
from engine.core.scheduler import Plan, Scheduler
from engine.core.sequence import Sequence, State
from engine.faults import Faults
from engine.observer import Observer, Step
from engine.request import FinishReason, Output

if TYPE_CHECKING:
    from engine.cache.kv_cache import KVCache
    from engine.cache.stats import CacheStats

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stats:
    """The engine at the end of a step. loading: of the running ones, those whose KV is still on its way.

    steps, failed_steps, preemptions, gathered_bytes (as the model's): since the start. cache: as KVCache.stats().
    """

    running: int
    waiting: int
    loading: int
    steps: int
    failed_steps: int
    preemptions: int
    gathered_bytes: int
    cache: CacheStats


class Stepper:
    """The core without its thread. ended: called with each sequence once it is over.

    Nothing raises out of it: what fails costs the requests of its step.
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: Runner,
        cache: KVCache,
        eos_token_ids: Iterable[int],
        observer: Observer,
        faults: Faults,
        ended: Callable[[Sequence], None],
    ) -> None:
        self.scheduler = Scheduler(config, cache, faults, runner.meter)
        self._config, self._runner, self._cache = config, runner, cache
        self._eos = frozenset(eos_token_ids)
        self._observer, self._faults, self._ended = observer, faults, ended
        self._limit = config.device_blocks
        self._steps = self._failed_steps = self._preemptions = 0

    def add(self, sequence: Sequence) -> None:
        """Take a request that entered its queue."""
        tell(self._observer.request_started, sequence.request)
        self.scheduler.add(sequence)

    def end(self, sequence: Sequence, reason: FinishReason, error: str = "") -> None:
        """End a request, whatever it is doing; what it computed stays cached. Nothing where it is over."""
        if sequence.state is State.ENDED:
            return
        try:
            self.scheduler.remove(sequence)
        except Exception:
            _log.exception("the blocks of %s could not be given back", sequence.request.request_id)
        self._finish(sequence, reason, (), error)

    def end_all(self, reason: FinishReason) -> None:
        """End all requests."""
        for sequence in self.scheduler.sequences:
            self.end(sequence, reason)

    def clear_cache(self) -> None:
        """Forget all cached prefixes; running requests keep their blocks."""
        self._cache.clear()
        self.scheduler.make_room()
        self._tell_events()

    def step(self) -> float | None:
        """Schedule, run, hand out. Seconds until the next step can be of use, as Scheduler.wait_s."""
        began, plan = now_ns(), Plan()
        try:
            self._apply_faults()
            plan = self.scheduler.plan()
            if plan.works:
                ran = self._runner.run(plan)
                self._commit(plan)
                self._hand_out(plan, ran)
            else:
                ran = Ran([], 0)
        except Exception as error:  # whatever it is, the engine serves on
            self._fail(plan, error)
            wait_s: float | None = 0.0
        else:
            self._preemptions += plan.preemptions
            wait_s = self.scheduler.wait_s(plan)
            if plan.works or plan.loaded_blocks:
                self._tell_step(plan, ran, began)
        expires_s = self._cache.expire()
        tell(self._tell_events)
        return expires_s if wait_s is None else wait_s if expires_s is None else min(wait_s, expires_s)

    def stats(self) -> Stats:
        scheduler = self.scheduler
        return Stats(
            running=scheduler.admitted,
            waiting=len(scheduler.waiting) + len(scheduler.held),
            loading=len(scheduler.loading),
            steps=self._steps,
            failed_steps=self._failed_steps,
            preemptions=self._preemptions,
            gathered_bytes=self._runner.gathered_bytes,
            cache=self._cache.stats(),
        )

    def _apply_faults(self) -> None:
        limit = self._faults.device_blocks()
        limit = self._config.device_blocks if limit is None else min(limit, self._config.device_blocks)
        if limit != self._limit:
            self._limit = limit
            self._cache.resize(limit)
            self.scheduler.make_room()
        share = self._faults.evict_share()
        if share > 0:
            self._cache.evict(share)

    def _commit(self, plan: Plan) -> None:
        """Cache what was computed, and tell of it: as with vLLM before anybody has a token of the step, so that who
        asks another server upon the answer comes after the events by their time, too."""
        block_size = self._config.block_size
        for sequence, tokens, _ in plan.works:
            before = sequence.computed
            sequence.advance(tokens)
            if sequence.computed // block_size > before // block_size:
                self._cache.commit(sequence.table, sequence.tokens[: sequence.computed])
        tell(self._tell_events)

    def _hand_out(self, plan: Plan, ran: Ran) -> None:
        now, batch = now_ns(), len(plan.decodes)
        for (sequence, _, _), token in zip(plan.works, ran.tokens, strict=True):
            if token is None:
                continue
            if sequence.decoding:
                sequence.steps, sequence.batch = sequence.steps + 1, sequence.batch + batch
            sequence.take(token, now)
            reason = self._reason(sequence, token)
            if reason:
                self.scheduler.remove(sequence)
                self._finish(sequence, reason, (token,), now=now)
                continue
            if not sequence.decoding:
                sequence.decodes(now)
            tell(sequence.sink, Output(sequence.request, (token,)))

    def _reason(self, sequence: Sequence, token: int) -> FinishReason | None:
        sampling = sequence.request.sampling
        if token in self._eos and not sampling.ignore_eos:
            return FinishReason.STOP
        if sequence.request.stops and sequence.request.stops(token):
            return FinishReason.STOP
        if len(sequence.request.output) >= sampling.max_tokens:
            return FinishReason.LENGTH
        return None

    def _finish(
        self,
        sequence: Sequence,
        reason: FinishReason,
        token_ids: tuple[int, ...],
        error: str = "",
        now: int = 0,
    ) -> None:
        sequence.end(reason, now or now_ns(), error)
        self._ended(sequence)  # before its caller hears of it, who may use its id again at once
        tell(sequence.sink, Output(sequence.request, token_ids, reason))

    def _fail(self, plan: Plan, error: Exception) -> None:
        """End the requests of the step that failed; all that run where it failed before it was decided."""
        self._failed_steps += 1
        _log.exception("a step of the engine failed")
        scheduler = self.scheduler
        failed = [work.sequence for work in plan.works]
        failed = failed or [*scheduler.running, *scheduler.loading] or list(scheduler.waiting)[:1]
        text = f"the engine failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        for sequence in failed:
            self.end(sequence, FinishReason.ERROR, text)

    def _tell_step(self, plan: Plan, ran: Ran, began: int) -> None:
        self._steps += 1
        scheduler = self.scheduler
        step = Step(
            start_ns=began,
            duration_ns=now_ns() - began,
            model_ns=ran.model_ns,
            prefill_tokens=plan.prefill_tokens,
            decode_seqs=len(plan.decodes),
            context_tokens=plan.context_tokens,
            running=scheduler.admitted,
            waiting=len(scheduler.waiting) + len(scheduler.held),
            preemptions=plan.preemptions,
            loaded_blocks=dict(plan.loaded_blocks),
            loaded_bytes=dict(plan.loaded_bytes),
        )
        tell(self._observer.step_done, step)

    def _tell_events(self) -> None:
        events = self._cache.drain_events()
        if events:
            tell(self._observer.kv_events, events)


def tell(listener: Callable[..., None], *what: Any) -> None:
    """Call somebody who must not raise; the core goes on where they do."""
    try:
        listener(*what)
    except Exception:
        _log.exception("%r raised", listener)
