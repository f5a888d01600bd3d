"""One pass over the device: a plan becomes a batch, the decoder runs, the sampler chooses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import torch

from engine.core.meter import Meter
from engine.core.scheduler import Plan, Work
from engine.core.sequence import Sequence
from engine.faults import Faults, Fired
from engine.model.batch import Batch, Chunk

if TYPE_CHECKING:
    from engine.cache.kv_cache import KVCache
    from engine.model.llama import Llama
    from engine.model.sampling import Sampler


class Ran(NamedTuple):
    """tokens: the next one of each work of the plan, None where its prompt goes on. model_ns: decoder and sampler."""

    tokens: list[int | None]
    model_ns: int


class Runner:
    """The device. Called on the core's thread."""

    def __init__(
        self, model: Llama, sampler: Sampler, cache: KVCache, faults: Faults, meter: Meter | None = None
    ) -> None:
        self._model, self._sampler, self._cache, self._faults = model, sampler, cache, faults
        self.meter = meter or Meter()

    @property
    def gathered_bytes(self) -> int:
        """As the model's."""
        return self._model.gathered_bytes

    @torch.inference_mode()
    def run(self, plan: Plan) -> Ran:
        """Compute the KV of a plan's tokens and choose what follows. Raises what torch raises."""
        works = plan.works
        began, mark = time.monotonic_ns(), self.meter.mark()
        logits = self._model.forward(_batch(works, self._cache.kv.device), self._cache.kv)
        rows = [row for row, work in enumerate(works) if work.tokens == work.sequence.uncomputed]
        tokens: list[int | None] = [None] * len(works)
        if rows:
            chosen = self._choose(
                logits if len(rows) == len(works) else logits[rows], [works[row] for row in rows]
            )
            for row, token in zip(rows, chosen, strict=True):
                tokens[row] = token
        elif logits.is_cuda:
            torch.cuda.synchronize(logits.device)
        model_ns = time.monotonic_ns() - began
        self.meter.share(mark, [(work.sequence, work.tokens) for work in works])
        self._suffer(plan, model_ns)
        return Ran(tokens, model_ns)

    def _choose(self, logits: torch.Tensor, works: list[Work]) -> list[int]:
        requests = [work.sequence.request for work in works]
        return self._sampler.choose(
            logits, [request.sampling for request in requests], [request.output for request in requests]
        )

    def _suffer(self, plan: Plan, model_ns: int) -> None:
        """Wait out the faults of the pass, and those of prefill (once a chunk) and decode (once a step).

        A slowdown is one of the whole pass, since a pass is one: the largest counts.
        """
        prompt_tokens = sum(work.tokens for work in plan.prefills)
        delay_ns, slowest = int(self._faults.pass_s(prompt_tokens) * 1e9), 1.0
        struck: list[tuple[Sequence, Fired, int]] = []
        passages = [[work] for work in plan.prefills]
        if plan.decodes:
            passages.append(plan.decodes)
        for works in passages:
            first = works[0].sequence
            if works is plan.decodes:
                fired = self._faults.fire("decode")
            else:
                fired = self._faults.fire("prefill", first.request.salt)
            if not fired.mark:
                continue
            self._touch(fired, first)
            own_ns = int(fired.delay_s * 1e9)
            delay_ns, slowest = delay_ns + own_ns, max(slowest, fired.slowdown)
            struck += [(work.sequence, fired, own_ns + _extra_ns(fired, model_ns)) for work in works]
        wait_ns = delay_ns + int((slowest - 1) * model_ns)
        waited_s = self._faults.wait(wait_ns / 1e9)
        share = waited_s / (wait_ns / 1e9) if wait_ns else 0.0  # below 1 where they were cleared
        for sequence, fired, own_ns in struck:
            sequence.mark(fired, round(own_ns * share))

    def _touch(self, fired: Fired, sequence: Sequence) -> None:
        """What fired does to memory, of one request's chunk: it takes the time that it takes."""
        if fired.cold_bytes or fired.unmap_bytes:
            mark = self.meter.mark()
            taken_s = self._faults.touch(fired)
            self.meter.charge(mark, sequence)
            sequence.mark(fired, round(taken_s * 1e9))


def _extra_ns(fired: Fired, model_ns: int) -> int:
    return int((fired.slowdown - 1) * model_ns)


def _batch(works: list[Work], device: torch.device) -> Batch:
    token_ids: list[int] = []
    chunks = []
    for sequence, tokens, _ in works:
        start = sequence.computed
        token_ids.extend(sequence.tokens[start : start + tokens])
        chunks.append(Chunk(start, tokens, sequence.table.blocks))
    return Batch(torch.tensor(token_ids, dtype=torch.int64, device=device), tuple(chunks))
