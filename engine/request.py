"""A request as the engine's parts see it, and what comes back for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from engine.clock import now_ns
from engine.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. temperature 0 is greedy; top_k 0 and top_p 1 take all; seed None: any.

    ignore_eos: go on to max_tokens whatever is generated.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    ignore_eos: bool = False


class FinishReason(StrEnum):
    """STOP: end-of-sequence token or a stop string; ABORT: the caller went away; ERROR: the engine failed."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(slots=True)
class TokenSources:
    """Where a prompt's tokens came from; the four add up to the prompt once it is computed.

    recomputed: tokens computed a second time because of preemption, generated ones included; beside the four.
    """

    device: int = 0
    host: int = 0
    remote: int = 0
    computed: int = 0
    recomputed: int = 0

    @property
    def cached(self) -> int:
        return self.device + self.host + self.remote


@dataclass(slots=True, eq=False)
class Request:
    """One request from its arrival to its end; the core alone writes it once it is submitted.

    prompt: token ids. salt: isolates its cache entries. traceparent, tracestate: W3C context, empty where none came.
    output: generated ids. first_token_ns: when the first left the core. block_hashes: of the prompt's full blocks,
    64 bits, once they are known. error: why it failed, for finish_reason ERROR. preemptions: how often it lost its KV.
    stops: told every generated token on the core's thread, quick; True ends the request there as STOP. reads_off: the
    cache is not read for it, only written. reports_reuse: KV events tell of the blocks it found as if they were new.
    """

    request_id: str
    prompt: list[int]
    sampling: Sampling
    timeline: Timeline = field(default_factory=lambda: Timeline("frontend", now_ns()))
    model: str = ""
    salt: str = ""
    traceparent: str = ""
    tracestate: str = ""
    cache_key: str = ""
    reads_off: bool = False
    reports_reuse: bool = False
    stops: Callable[[int], bool] | None = None
    output: list[int] = field(default_factory=list)
    sources: TokenSources = field(default_factory=TokenSources)
    block_hashes: list[int] = field(default_factory=list)
    first_token_ns: int = 0
    preemptions: int = 0
    finish_reason: FinishReason | None = None
    error: str = ""
    prompt_text: str = ""
    output_text: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """What one step gave a request: new token ids, and at its end why it ended."""

    request: Request
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None


Sink = Callable[[Output], None]
"""Takes a request's outputs, called on the core's thread: it must return at once and never raise."""
