"""The engine: one device, the one thread that drives it, and the door to both.

Requests come in on any thread and end in three steps: the core is done with one (its last output went to its sink), the
front end has handed over the last byte (`finished`), and its timeline is closed and the observer told, once.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from cachemodel.errors import UserError
from engine.cache.kv_cache import KVCache
from engine.clock import now_ns
from engine.config import EngineConfig
from engine.core.meter import Meter, cpu_counters
from engine.core.runner import Runner
from engine.core.sequence import Sequence
from engine.core.stepper import Stats, Stepper, tell
from engine.errors import EngineFailed, Overloaded, RequestError
from engine.faults import Faults
from engine.model.load import Loaded, load
from engine.model.sampling import Sampler
from engine.observer import Observer, Silent
from engine.request import FinishReason, Request, Sink

_log = logging.getLogger(__name__)
_COUNTED_S = 0.05  # between two counts while the core is busy


@dataclass(slots=True, eq=False)
class _Open:
    """A request that is not over for both sides yet."""

    sequence: Sequence
    computed: bool = False  # the core is done with it
    delivered: bool = False  # the front end is


class Engine:
    """A model that serves requests. All methods but start() and stop() are for any thread.

    loaded: what `load(config)` gives, for those who have it already. Raises UserError for settings that cannot work.
    """

    def __init__(
        self,
        config: EngineConfig,
        observer: Observer | None = None,
        faults: Faults | None = None,
        *,
        loaded: Loaded | None = None,
    ) -> None:
        _check(config)
        self.config, self.observer, self.faults = config, observer or Silent(), faults or Faults()
        self._orders = itertools.count()
        self._open: dict[str, _Open] = {}
        self._in_core = 0
        self._inbox: list[Callable[[], None]] = []
        self._wake = threading.Condition()
        self._stopping = False
        if config.threads:
            torch.set_num_threads(config.threads)
        loaded = loaded or load(config)
        self.model_config, self.tokenizer = loaded.config, loaded.tokenizer
        self._cache = KVCache(loaded.config, config)
        runner = Runner(loaded.model, Sampler(), self._cache, self.faults, Meter(cpu_counters))
        self._stepper = Stepper(
            config,
            runner,
            self._cache,
            loaded.config.eos_token_ids,
            self.observer,
            self.faults,
            self._computed,
        )
        self._count()
        self._thread = threading.Thread(target=self._run, name="engine-core", daemon=True)

    def start(self) -> None:
        """Start the core's thread."""
        self._thread.start()

    def stop(self) -> None:
        """End all requests as aborted and the thread; give the cache back. Can be called again."""
        with self._wake:
            first, self._stopping = not self._stopping, True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        elif first:
            self._end()

    def submit(self, request: Request, sink: Sink) -> None:
        """Queue a request; its outputs go to `sink`, the last with a finish reason.

        Raises RequestError where it can never be served, Overloaded where too many wait, EngineFailed once stopped.
        """
        self._validate(request)
        with self._wake:
            if self._stopping:
                raise EngineFailed("the engine is stopping; try again later")
            if request.request_id in self._open:
                raise RequestError(
                    f"request id {request.request_id!r} is in use; choose another", param="request_id"
                )
            if self._in_core - self._stepper.scheduler.admitted >= self.config.max_waiting:
                raise Overloaded(f"{self.config.max_waiting} requests wait already; try again later")
            sequence = Sequence(request, sink, next(self._orders))
            self._open[request.request_id] = _Open(sequence)
            self._in_core += 1
            request.timeline.enter("queue", now_ns())
            self._post(lambda: self._stepper.add(sequence))

    def abort(self, request_id: str) -> None:
        """End a request early; its sink is told. Nothing where it has ended."""
        with self._wake:
            entry = self._open.get(request_id)
            if entry is not None and not entry.computed:
                sequence = entry.sequence
                self._post(lambda: self._stepper.end(sequence, FinishReason.ABORT))

    def finished(self, request: Request) -> None:
        """The last byte of a request was handed over, or nobody wants it any more: then it is aborted as well.

        Closes its timeline and tells the observer, on this thread or on the core's, whoever is last.
        """
        with self._wake:
            entry = self._open.get(request.request_id)
            if entry is None or entry.sequence.request is not request or entry.delivered:
                return
            entry.delivered = True
            if not entry.computed:
                self._post(lambda: self._stepper.end(entry.sequence, FinishReason.ABORT))
                return
            del self._open[request.request_id]
        self._close(request)

    @property
    def alive(self) -> bool:
        """Whether the core's thread runs, and so takes requests and answers them."""
        return self._thread.is_alive()

    def reset_prefix_cache(self) -> None:
        """Forget all cached prefixes and return when that is done. Raises EngineFailed where no engine runs."""
        done = threading.Event()

        def clear() -> None:
            try:
                self._stepper.clear_cache()
            finally:
                done.set()

        with self._wake:
            if self._stopping or not self._thread.is_alive():
                raise EngineFailed("the engine is not running")
            self._post(clear)
        done.wait()

    def stats(self) -> Stats:
        """As a step left it: the last one where the core is at rest, else one of a moment ago."""
        return self._stats

    def _validate(self, request: Request) -> None:
        config, prompt, sampling = self.config, request.prompt, request.sampling
        if not prompt:
            raise RequestError("the prompt is empty; it needs at least one token", param="prompt")
        if sampling.max_tokens < 1:
            raise RequestError(
                f"max_tokens must be at least 1, not {sampling.max_tokens}", param="max_tokens"
            )
        tokens = len(prompt) + sampling.max_tokens
        if tokens > config.max_model_len:
            raise RequestError(
                f"this model's context is {config.max_model_len} tokens, but {tokens} were asked for: {len(prompt)} of "
                f"the prompt and {sampling.max_tokens} to generate; shorten the prompt or lower max_tokens",
                code="context_length_exceeded",
                param="prompt" if len(prompt) >= config.max_model_len else "max_tokens",
            )
        limit = self.faults.device_blocks()
        pool = config.device_blocks if limit is None else min(limit, config.device_blocks)
        blocks = _blocks_for(tokens, config.block_size)
        if blocks > pool:
            raise RequestError(
                f"prompt and max_tokens need {blocks} KV blocks of {config.block_size} tokens, the device has {pool}; "
                "shorten the prompt or lower max_tokens",
                code="context_length_exceeded",
                param="prompt",
            )
        vocabulary = self.model_config.vocab_size
        if min(prompt) < 0 or max(prompt) >= vocabulary:
            wrong = next(token for token in prompt if not 0 <= token < vocabulary)
            raise RequestError(
                f"token id {wrong} is not in the vocabulary of {vocabulary} tokens", param="prompt"
            )

    def _post(self, call: Callable[[], None]) -> None:
        """Let the core do something between two steps. With the lock held."""
        self._inbox.append(call)
        self._wake.notify()

    def _computed(self, sequence: Sequence) -> None:
        """The core is done with a request. On its thread."""
        request = sequence.request
        with self._wake:
            self._in_core -= 1
            entry = self._open[request.request_id]
            entry.computed = True
            if not entry.delivered:
                return
            del self._open[request.request_id]
        self._close(request)

    def _close(self, request: Request) -> None:
        request.timeline.close(now_ns())
        tell(self.observer.request_finished, request)

    def _run(self) -> None:
        wait_s: float | None = None
        try:
            while True:
                self._take_calls(wait_s)
                if self._stopping:
                    break
                wait_s = self._stepper.step()
                if wait_s != 0.0 or time.monotonic() >= self._count_at:
                    tell(self._count)
        finally:  # whatever ended it, nobody waits for a core that is gone
            with self._wake:
                self._stopping = True
            self._end()

    def _count(self) -> None:
        self._stats = self._stepper.stats()
        self._count_at = time.monotonic() + _COUNTED_S

    def _take_calls(self, wait_s: float | None) -> None:
        """Do what was posted; wait for something up to `wait_s`."""
        with self._wake:
            self._wake.wait_for(lambda: self._inbox or self._stopping, wait_s)
            calls, self._inbox = self._inbox, []
        for call in calls:
            tell(call)

    def _end(self) -> None:
        self._take_calls(0)
        self._stepper.end_all(FinishReason.ABORT)
        tell(self._count)
        self._cache.close()


def _check(config: EngineConfig) -> None:
    """Raise UserError for settings that contradict each other; warn of those that do less than they say."""
    for name in (
        "block_size",
        "device_blocks",
        "max_num_seqs",
        "max_waiting",
        "max_load_blocks",
        "max_model_len",
    ):
        if getattr(config, name) < 1:
            raise UserError(f"{name} must be at least 1, not {getattr(config, name)}")
    if config.max_num_batched_tokens < config.max_num_seqs:
        raise UserError(
            f"max_num_batched_tokens ({config.max_num_batched_tokens}) must be at least max_num_seqs "
            f"({config.max_num_seqs}): every running request may need one token of a step"
        )
    if config.cache_unit % config.block_size:
        raise UserError(
            f"cache_unit is a multiple of block_size ({config.block_size}), not {config.cache_unit}"
        )
    needed = _blocks_for(config.max_model_len, config.block_size)
    if needed > config.device_blocks:
        _log.warning(
            "device_blocks is %d: requests of more than %d tokens are refused; for max_model_len (%d) it takes %d",
            config.device_blocks,
            config.device_blocks * config.block_size + 1,
            config.max_model_len,
            needed,
        )


def _blocks_for(tokens: int, block_size: int) -> int:
    """Of a request: the last token's KV is never needed."""
    return -(-(tokens - 1) // block_size)
