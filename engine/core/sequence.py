"""A request while the core has it: its tokens, its blocks, how far its KV is, and where its time went."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from engine.faults import Faults, Fired
from engine.request import FinishReason, Request, Sink

if TYPE_CHECKING:
    from engine.cache.block import Table


class State(Enum):
    """HELD: kept back by a fault of the queue. LOADING: it has blocks, whose KV comes from the host or the disk."""

    HELD = auto()
    WAITING = auto()
    LOADING = auto()
    RUNNING = auto()
    ENDED = auto()


@dataclass(slots=True, eq=False)
class Sequence:
    """One request in the scheduler.

    order: of arrival. tokens: prompt and output. hits: tokens that its lookup found, by tier, each tier's part of the
    prefix behind the one before. held: its blocks, while it has some. computed: leading tokens whose KV is there.
    furthest: leading tokens whose KV was there once: what is computed below it is computed again. decoding: it has KV
    of all but its last token, so a step gives it the next. wake_ns: a fault keeps it back until then. owed: a fault of
    the host that its load has yet to wait out. held_steps: steps since its last chunk that had no room for it. steps,
    batch: of its decode interval; sizes of their batches together.
    """

    request: Request
    sink: Sink
    order: int
    tokens: list[int] = field(init=False)
    state: State = State.WAITING
    hits: dict[str, int] = field(default_factory=dict)
    held: Table | None = None
    computed: int = 0
    furthest: int = 0
    decoding: bool = False
    wake_ns: int = 0
    owed: Fired | None = None
    held_steps: int = 0
    steps: int = 0
    batch: int = 0

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)

    @property
    def table(self) -> Table:
        """Its blocks. Raises RuntimeError where it has none: a bug."""
        if self.held is None:
            raise RuntimeError(f"{self.request.request_id} has no blocks")
        return self.held

    @property
    def uncomputed(self) -> int:
        """Tokens without KV; a step that computes them all samples the next one."""
        return len(self.tokens) - self.computed

    def ready(self) -> None:
        """What its lookup found is on the device, as far as it could be loaded."""
        ready = self.computed = self.table.ready
        sources, start = self.request.sources, 0
        for tier, hit in self.hits.items():
            end = start + hit
            setattr(sources, tier, getattr(sources, tier) + self._first_seen(start, min(end, ready)))
            start = end
        self.furthest = max(self.furthest, ready)

    def advance(self, tokens: int) -> None:
        """The device computed that many more tokens."""
        end, sources = self.computed + tokens, self.request.sources
        sources.computed += self._first_seen(self.computed, end)
        sources.recomputed += max(0, min(end, self.furthest) - self.computed)
        self.computed = end
        self.furthest = max(self.furthest, end)

    def _first_seen(self, start: int, end: int) -> int:
        """Prompt tokens of [start, end) that had no KV before: so each is counted once, where it first came from."""
        return max(0, min(end, len(self.request.prompt)) - max(start, self.furthest))

    def take(self, token: int, now_ns: int) -> None:
        """Its next token was sampled."""
        request = self.request
        self.tokens.append(token)
        request.output.append(token)
        if not request.first_token_ns:
            # The interval that led to it ends at this very moment, here or at the request's end.
            request.first_token_ns = now_ns

    def decodes(self, now_ns: int) -> None:
        """From here on a step gives it a token."""
        self.decoding, self.steps, self.batch = True, 0, 0
        self.request.timeline.enter("decode", now_ns)

    def stop_decoding(self) -> None:
        """Say on its decode interval what that was."""
        if self.decoding and self.steps:
            self.request.timeline.note(
                tokens=self.steps, steps=self.steps, mean_batch=round(self.batch / self.steps, 2)
            )
        self.decoding = False

    def end(self, reason: FinishReason, now_ns: int, error: str = "") -> None:
        """What comes now is delivery."""
        self.stop_decoding()
        self.state = State.ENDED
        self.request.finish_reason, self.request.error = reason, error
        self.request.timeline.enter("other", now_ns)

    def count(self, **amounts: int) -> None:
        """Add to figures of the open interval."""
        attributes = self.request.timeline.intervals[-1].attributes
        for name, amount in amounts.items():
            attributes[name] = int(attributes.get(name, 0)) + amount

    def mark(self, fired: Fired, waited_ns: int) -> None:
        """Name a fault on the open interval, and how long it took, microseconds."""
        if fired.mark:
            self.request.timeline.note(fault=fired.mark)
            self.count(fault_us=waited_ns // 1000)

    def suffer(self, faults: Faults, fired: Fired) -> None:
        """Take what fired in a layer on the core's thread, where everybody waits with it."""
        if fired.mark:
            self.mark(fired, round((faults.touch(fired) + faults.wait(fired.delay_s)) * 1e9))
