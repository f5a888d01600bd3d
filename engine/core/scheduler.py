"""Who gets the device next: continuous batching with chunked prefill, over whatever the KV cache can hold.

A step gives every decoding request one token, in order of arrival, and what is left of its token budget to prompts,
first come first served. Where the cache has no room, the request that arrived last gives its blocks back and queues
again, in front. Decisions and their times only: nothing here knows a tensor.

    held -> waiting -> (loading ->) running -> ended
               ^____________|_________|  preempted
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import Counter, deque
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from cachemodel.layers import Tier
from engine.clock import now_ns
from engine.config import EngineConfig
from engine.core.meter import Meter
from engine.core.sequence import Sequence, State
from engine.faults import Faults

if TYPE_CHECKING:
    from engine.cache.kv_cache import KVCache

_DISK_S = 0.001  # between two looks at what is being read, about as long as a read takes
_FAULT_S = 0.02  # between two looks for room where nobody runs: a fault has taken it
_order = attrgetter("order")


class Work(NamedTuple):
    """The next `tokens` of a sequence without KV. since_ns: when it got its place in the step."""

    sequence: Sequence
    tokens: int
    since_ns: int


@dataclass(slots=True)
class Plan:
    """One pass over the device. loaded_blocks, loaded_bytes: moved to it before, by tier.

    context_tokens: KV tokens that the decoding sequences attend to.
    """

    decodes: list[Work] = field(default_factory=list)
    prefills: list[Work] = field(default_factory=list)
    context_tokens: int = 0
    preemptions: int = 0
    loaded_blocks: Counter[str] = field(default_factory=Counter)
    loaded_bytes: Counter[str] = field(default_factory=Counter)

    @property
    def works(self) -> list[Work]:
        return self.decodes + self.prefills

    @property
    def prefill_tokens(self) -> int:
        return sum(work.tokens for work in self.prefills)


class Scheduler:
    """Queues and blocks of the requests in the core. Called on the core's thread.

    loading, running: in order of arrival; both count as running against max_num_seqs.
    """

    def __init__(self, config: EngineConfig, cache: KVCache, faults: Faults, meter: Meter) -> None:
        self._config, self._cache, self._faults, self._meter = config, cache, faults, meter
        self.held: list[tuple[int, int, Sequence]] = []
        self.waiting: deque[Sequence] = deque()
        self.loading: list[Sequence] = []
        self.running: list[Sequence] = []
        self._full = False  # the first in the queue found no room, and none came back since

    @property
    def sequences(self) -> list[Sequence]:
        """All of them."""
        return [*self.running, *self.loading, *self.waiting, *(sequence for *_, sequence in self.held)]

    @property
    def admitted(self) -> int:
        """How many of them hold blocks."""
        return len(self.running) + len(self.loading)

    def add(self, sequence: Sequence) -> None:
        """Queue it, now or when a fault of the queue lets it go."""
        fired = self._faults.fire("queue")
        sequence.mark(fired, int(fired.delay_s * 1e9))
        if fired.delay_s > 0:
            sequence.state, sequence.wake_ns = State.HELD, now_ns() + int(fired.delay_s * 1e9)
            heapq.heappush(self.held, (sequence.wake_ns, sequence.order, sequence))
        else:
            self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget it, wherever it is; what it computed stays cached."""
        match sequence.state:
            case State.HELD:
                self.held = [entry for entry in self.held if entry[2] is not sequence]
                heapq.heapify(self.held)
            case State.WAITING:
                self.waiting.remove(sequence)
            case State.LOADING:
                self.loading.remove(sequence)
            case State.RUNNING:
                self.running.remove(sequence)
        self._release(sequence)

    def make_room(self) -> None:
        """Blocks may have become free: the first in the queue is worth another look."""
        self._full = False

    def plan(self) -> Plan:
        """Move what has to be loaded, and decide the next step. Empty where there is nothing for the device to do."""
        plan = Plan()
        self._let_go()
        self._load(plan)
        self._plan_decodes(plan)
        budget = self._config.max_num_batched_tokens - len(plan.decodes)
        for sequence in self.running:
            if not sequence.decoding:
                budget -= self._plan_prefill(plan, sequence, budget)
        while budget > 0 and not plan.preemptions and self._may_admit() and (first := self._first()):
            admitted = self._admit(first)
            if admitted is None:
                break
            if admitted.state is State.RUNNING:
                budget -= self._plan_prefill(plan, admitted, budget)
        self._tell_prefills(plan)
        return plan

    def wait_s(self, plan: Plan) -> float | None:
        """After a step: seconds until the next can be of use, 0 for at once, None for not before something comes.

        The disk tells nobody that a block has arrived and a fault not that it is over: those two are looked for.
        """
        if plan.works or plan.loaded_blocks or plan.preemptions:
            return 0.0
        waits = [(wake_ns - now_ns()) / 1e9 for wake_ns, *_ in self.held]
        waits += [max(_DISK_S, (sequence.wake_ns - now_ns()) / 1e9) for sequence in self.loading]
        if self.waiting and not self.loading:
            waits.append(_FAULT_S)
        return max(0.0, min(waits)) if waits else None

    def _let_go(self) -> None:
        while self.held and self.held[0][0] <= now_ns():
            sequence = heapq.heappop(self.held)[2]
            sequence.state = State.WAITING
            self.waiting.append(sequence)

    # Blocks

    def _may_admit(self) -> bool:
        hopeless = self._full and self.admitted > 0
        return not hopeless and self.admitted < self._config.max_num_seqs

    def _first(self) -> Sequence | None:
        """The first in the queue, but for those too long for a pool that a fault made smaller: they let others pass."""
        room = self._cache.tiers.pool.capacity * self._config.block_size
        return next((sequence for sequence in self.waiting if len(sequence.tokens) <= room), None)

    def _admit(self, sequence: Sequence) -> Sequence | None:
        """It gets blocks for all its tokens; None where there are too few.

        A lookup that finds no room counts as waiting.
        """
        began, mark = now_ns(), self._meter.mark()
        request = sequence.request
        match = self._cache.match(sequence.tokens, request.salt, read=not request.reads_off)
        table = self._cache.open(match, len(sequence.tokens))
        if table is None:
            self._cache.drop(match)
            self._full = True
            return None
        self.waiting.remove(sequence)
        sequence.hits = {str(tier): getattr(match.tokens, tier) for tier in Tier}
        sequence.held, sequence.state = table, State.LOADING
        insort(self.loading, sequence, key=_order)
        if not request.block_hashes:
            request.block_hashes = list(match.block_hashes)
        request.timeline.enter("prefix", began, **sequence.hits)
        sequence.suffer(self._faults, self._faults.fire("prefix", request.salt))
        if request.reports_reuse:
            self._cache.report(table)
        self._meter.charge(mark, sequence)
        self._look(sequence)
        return sequence

    def _look(self, sequence: Sequence) -> None:
        """After its table changed: it is ready to compute, or waits for a tier, maybe another than before."""
        tier, timeline = sequence.table.loading, sequence.request.timeline
        if tier is None:
            sequence.ready()
            self.loading.remove(sequence)
            sequence.state = State.RUNNING
            insort(self.running, sequence, key=_order)
        elif timeline.layer != tier:
            timeline.enter(str(tier), now_ns())
            fired = self._faults.fire(tier, sequence.request.salt)
            if fired.fails:
                sequence.mark(fired, 0)
                self._cache.fail(sequence.table)
                timeline.note(lost=sequence.table.lost)
                self._look(sequence)
            elif tier is Tier.HOST:
                sequence.owed = fired
            else:  # the disk is not the device: this one waits alone
                sequence.mark(fired, int(fired.delay_s * 1e9))
                sequence.wake_ns = now_ns() + int(fired.delay_s * 1e9)

    def _load(self, plan: Plan) -> None:
        """Move blocks to the device, those of the earliest request first, no more than a step may move."""
        left = self._config.max_load_blocks
        for sequence in list(self.loading):
            if left <= 0:
                break
            if sequence.wake_ns > now_ns():
                continue
            mark = self._meter.mark()
            if sequence.owed:  # a slow host is slow when its blocks are moved, and everybody waits for that
                sequence.suffer(self._faults, sequence.owed)
                sequence.owed = None
            loaded = self._cache.load(sequence.table, left)
            blocks = sum(loaded.blocks.values())
            left -= blocks
            sequence.count(blocks=blocks, bytes=sum(loaded.nbytes.values()))
            if sequence.table.lost:
                sequence.request.timeline.note(lost=sequence.table.lost)
            plan.loaded_blocks.update({str(tier): moved for tier, moved in loaded.blocks.items()})
            plan.loaded_bytes.update({str(tier): moved for tier, moved in loaded.nbytes.items()})
            self._meter.charge(mark, sequence)
            self._look(sequence)

    def _release(self, sequence: Sequence) -> None:
        if sequence.held is not None:
            table, sequence.held = sequence.held, None
            self._full = False
            self._cache.release(table)

    def _preempt(self, plan: Plan) -> Sequence:
        """The request that arrived last gives its blocks back and queues again, before all others."""
        last = max((*self.running[-1:], *self.loading[-1:]), key=_order)
        (self.running if last.state is State.RUNNING else self.loading).remove(last)
        last.stop_decoding()
        last.state, last.computed, last.wake_ns, last.owed = State.WAITING, 0, 0, None
        last.request.preemptions += 1
        last.request.timeline.enter("queue", now_ns(), preempted=True)
        self.waiting.appendleft(last)
        self._release(last)
        plan.preemptions += 1
        return last

    # Tokens

    def _plan_decodes(self, plan: Plan) -> None:
        for sequence in list(self.running):
            if not sequence.decoding or sequence.state is not State.RUNNING:
                continue
            while not self._cache.extend(sequence.table, len(sequence.tokens)):
                if self._preempt(plan) is sequence:
                    break
            else:
                plan.decodes.append(Work(sequence, 1, 0))
                plan.context_tokens += len(sequence.tokens)

    def _plan_prefill(self, plan: Plan, sequence: Sequence, budget: int) -> int:
        """Its next chunk; returns the tokens of it, 0 where the step is full.

        What waits for its first chunk is queueing; between two chunks it stays in prefill.
        """
        tokens = min(budget, sequence.uncomputed)
        timeline = sequence.request.timeline
        if tokens > 0:
            plan.prefills.append(Work(sequence, tokens, now_ns()))
        elif timeline.layer == "prefill":
            sequence.held_steps += 1
            timeline.note(held_steps=sequence.held_steps)
        elif timeline.layer != "queue":
            timeline.enter("queue", now_ns())
        return tokens

    def _tell_prefills(self, plan: Plan) -> None:
        step_tokens = len(plan.decodes) + plan.prefill_tokens
        for sequence, tokens, since_ns in plan.prefills:
            sequence.held_steps = 0
            sequence.request.timeline.enter(
                "prefill",
                since_ns,
                tokens=tokens,
                start=sequence.computed,
                step_tokens=step_tokens,
                decode_seqs=len(plan.decodes),
                context_tokens=plan.context_tokens,
            )
