"""Who is told what the core did. It must be quick and never raise.

All of it is called on the core's thread, but request_finished: that comes on the thread which was done with the request
last, the core's or one of the front end's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cachemodel.kv_events import Event
from engine.request import Request


@dataclass(frozen=True, slots=True)
class Step:
    """One pass over the device.

    duration_ns: of the whole step; model_ns: of the decoder in it. prefill_tokens: computed prompt tokens; decode_seqs:
    sequences that got one token each; context_tokens: KV tokens that those sequences attended to; loaded_blocks and
    loaded_bytes: by tier. running, waiting: requests after it.
    """

    start_ns: int
    duration_ns: int
    model_ns: int
    prefill_tokens: int
    decode_seqs: int
    context_tokens: int
    running: int
    waiting: int
    preemptions: int
    loaded_blocks: dict[str, int]
    loaded_bytes: dict[str, int]


class Observer(Protocol):
    """What telemetry is built from."""

    def request_started(self, request: Request) -> None:
        """It was accepted into the queue."""

    def request_finished(self, request: Request) -> None:
        """It ended, however it did; its timeline is closed by the front end when the last byte was handed over."""

    def step_done(self, step: Step) -> None:
        """A step with work in it ended."""

    def kv_events(self, events: Sequence[Event]) -> None:
        """What the step did to the cache, in order; not called for none."""


class Silent:
    """An observer for an engine without telemetry."""

    def request_started(self, request: Request) -> None:
        pass

    def request_finished(self, request: Request) -> None:
        pass

    def step_done(self, step: Step) -> None:
        pass

    def kv_events(self, events: Sequence[Event]) -> None:
        pass
