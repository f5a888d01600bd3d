"""What the compiled replay keeps of requests, and the least that is done with it.

kernel.py is compiled with these in it, and numba looks only at the file that it compiles: after a change here,
touch that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

BEFORE, QUEUE, HOST, REMOTE, PREFILL, DECODE = range(6)
LAYERS = 6
NEVER = 1 << 60

# One a request, in order of arrival at the queue, so that its number is its rank too. ready: ms. left: tokens to
# compute before the next one comes; at: tokens that have KV; made: tokens generated; chunk: what this pass computes.
# until: when its load is there (ms), or the number of the pass that ends it. since: when its layer began, ms.
REQUEST = np.dtype(
    [
        *((name, np.int64) for name in ("prompt", "wanted", "host", "remote", "computed")),
        *((name, np.int64) for name in ("left", "at", "made", "chunk", "layer", "preempted")),
        *((name, np.float64) for name in ("ready", "since", "until", "first", "end")),
    ]
)
# coming: the first request that is not there yet; fresh: the first that was never admitted; from back on: how long the
# lists are; used: tokens in the pool; context: tokens that the decoding requests attend to.
STATE = np.dtype(
    [
        ("now", np.float64),
        *((name, np.int64) for name in ("passes", "ended", "coming", "fresh", "used", "context")),
        *((name, np.int64) for name in ("back", "held", "filling", "hosts", "remotes", "decoding")),
    ]
)
# Law and limits as in model.py; kv: tokens, NEVER for no limit.
RULES = np.dtype(
    [
        *((name, np.float64) for name in ("step", "prefill", "attention", "decode", "context")),
        *((name, np.float64) for name in ("host", "host_fixed", "remote", "remote_fixed", "shared")),
        *((name, np.int64) for name in ("seqs", "tokens", "kv", "hidden_wait")),
    ]
)


def compiled(function: Callable[..., Any]) -> Any:
    """Compiled on first use and kept on disk; where there is no place to keep it, compiled in every process anew."""
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return njit(nogil=True)(function)


class Twin(NamedTuple):
    """All there is. times: ms (n, LAYERS). The rest are lists of ranks: held, filling and hosts ascending; remotes and
    decoding with the one whose `until` comes first at their end; back with the one preempted last at its end."""

    requests: Any
    times: Any
    rules: Any
    state: Any
    back: Any
    held: Any
    filling: Any
    hosts: Any
    remotes: Any
    decoding: Any


@compiled
def next_arrival(twin: Any) -> float:
    coming = twin.state.coming
    if coming == len(twin.requests):
        return np.inf
    return twin.requests[coming].ready  # type: ignore[no-any-return]


@compiled
def next_load(twin: Any) -> float:
    remotes = twin.state.remotes
    if remotes == 0:
        return np.inf
    return twin.requests[twin.remotes[remotes - 1]].until  # type: ignore[no-any-return]


@compiled
def enter(twin: Any, rank: int, layer: int) -> None:
    """Its next layer begins now."""
    request, now = twin.requests[rank], twin.state.now
    twin.times[rank, request.layer] += now - request.since
    request.since, request.layer = now, layer


@compiled
def insert(ranks: Any, length: int, rank: int) -> int:
    """Into an ascending list; returns its new length."""
    position = length
    while position > 0 and ranks[position - 1] > rank:
        ranks[position] = ranks[position - 1]
        position -= 1
    ranks[position] = rank
    return length + 1


@compiled
def insert_until(twin: Any, ranks: Any, length: int, rank: int) -> int:
    """Into a list whose end is due first."""
    position, until = length, twin.requests[rank].until
    while position > 0 and twin.requests[ranks[position - 1]].until < until:
        ranks[position] = ranks[position - 1]
        position -= 1
    ranks[position] = rank
    return length + 1


@compiled
def remove(ranks: Any, length: int, rank: int) -> int:
    position = length - 1
    while ranks[position] != rank:
        position -= 1
    for later in range(position, length - 1):
        ranks[later] = ranks[later + 1]
    return length - 1
