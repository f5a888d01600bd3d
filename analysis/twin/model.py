"""What a twin is made of: the law of a step, the limits of its scheduler, the requests it is given and what comes out.

Times are milliseconds, points in time seconds, counts tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from analysis.quantiles import Floats
from cachemodel.errors import UserError


class NoTwin(UserError):
    """A side that no twin can be fitted to, and why, in a sentence that says what would help."""


@dataclass(frozen=True, slots=True)
class Law:
    """How long a pass over the device takes: step + prefill * (prompt tokens computed in it) + attention * (the same,
    each times the thousands of tokens before it) + decode * (sequences that decode) + context * (thousands of tokens
    these attend to). host, remote: per token loaded; host_fixed, remote_fixed: per load."""

    step: float
    prefill: float
    attention: float
    decode: float
    context: float
    host: float = 0.0
    host_fixed: float = 0.0
    remote: float = 0.0
    remote_fixed: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the scheduler, in vLLM's words. kv_tokens: what the device's pool holds, None where it never was the limit.
    shared: of the prompt tokens found on the device, the share that other running requests hold as well and that take
    no room of their own, 0 to 1."""

    max_num_seqs: int
    max_num_batched_tokens: int
    kv_tokens: int | None = None
    shared: float = 0.0


@dataclass(frozen=True)
class Workload:
    """n requests of one server: arrival in seconds, prompt and completion tokens, and of the prompt
    those loaded from host and remote and those computed (the rest is on the device). before: ms between arrival and
    queue (tokenising, a response cache); after: ms behind the last token; both as they really were.
    hidden_wait: the server looks for new requests between two passes only, and tells the wait for that as part of what
    comes before the queue (vLLM); then `before` is without it and Replay.before has it."""

    arrival: Floats
    prompt: Floats
    completion: Floats
    host: Floats
    remote: Floats
    computed: Floats
    before: Floats
    after: Floats
    hidden_wait: bool = False


@dataclass(frozen=True)
class Replay:
    """What the twin says of n requests, ms: before + queue + host + remote + prefill + decode + the workload's `after`
    is e2e. ttft: to the first token, `before` included. preemptions: how often (n,)."""

    queue: Floats
    host: Floats
    remote: Floats
    prefill: Floats
    decode: Floats
    ttft: Floats
    e2e: Floats
    preemptions: Floats
    before: Floats


_Columns = TypeVar("_Columns", Workload, Replay)


def part(columns: _Columns, rows: slice | NDArray[np.int64]) -> _Columns:
    """Some of the requests."""
    cut = {name: value[rows] for name, value in vars(columns).items() if isinstance(value, np.ndarray)}
    return replace(columns, **cut)  # type: ignore[arg-type]


def together(first: Workload, second: Workload) -> Workload:
    """The requests of both in one server, those of the first one first."""
    both = {
        name: np.concatenate([value, getattr(second, name)])
        for name, value in vars(first).items()
        if isinstance(value, np.ndarray)
    }
    return replace(first, **both)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a server beside its requests, None where it is not. requests: how many its own counters say
    ended in the window. hidden_wait: as in Workload (true of vLLM)."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_tokens: int | None = None
    requests: int | None = None
    hidden_wait: bool = False


@dataclass(frozen=True)
class Fit:
    """The twin of one side. covariance: (9, 9) of the law's numbers in their order, as parts of them, 0 for
    those that are 0. quiet: what comes before the queue on an idle server: ms and ms a prompt token.
    n: requests it was fitted to. notes: what to know of it, one sentence each."""

    law: Law
    covariance: Floats
    limits: Limits
    hidden_wait: bool
    quiet: tuple[float, float]
    n: int
    notes: tuple[str, ...] = ()
