"""The replay itself, compiled: continuous batching with chunked prefill, pass by pass, and many passes at once where
nothing but the context changes between them.

A pass gives every decoding request one token and what is left of its token budget to prompts, first come first served.
Where the pool is full, who arrived last gives its KV back and queues again, in front. As vLLM's V1 scheduler
(docs.vllm.ai, "Optimization and Tuning") and engine/core/scheduler.py do it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.twin.records import (
    BEFORE,
    DECODE,
    HOST,
    PREFILL,
    QUEUE,
    REMOTE,
    Twin,
    compiled,
    enter,
    insert,
    insert_until,
    next_arrival,
    next_load,
    remove,
)


@compiled
def run(requests: Any, times: Any, rules: Any, state: Any) -> None:
    """Replay all requests, filling in what they lack and `times` (n, LAYERS). rules, state: records; state zeroed."""
    size = min(len(requests), rules.seqs) + 1
    twin = Twin(
        requests,
        times,
        rules,
        state,
        np.empty(len(requests), np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
    )
    while state.ended < len(requests):
        _pass(twin)


@compiled
def _pass(twin: Any) -> None:
    """One pass over the device, several that are alike, or the wait for something to do."""
    state = twin.state
    _arrive(twin)
    _load(twin)
    preempted = _make_room(twin)
    budget = _continue(twin, twin.rules.tokens - state.decoding)
    if preempted == 0:
        _admit(twin, budget)
    tokens, attended = _chunks(twin)
    if tokens == 0 and state.decoding == 0:
        if state.hosts == 0:
            _idle(twin)
        return
    passes = 1
    if tokens == 0 and state.hosts == 0 and preempted == 0:
        passes = _alike(twin)
    state.now += _duration(twin, passes, tokens, attended)
    state.passes += passes
    state.context += passes * state.decoding
    state.used += passes * state.decoding
    _end_decodes(twin)
    _end_chunks(twin)


# Time


@compiled
def _duration(twin: Any, passes: int, tokens: int, attended: float) -> float:
    """Of that many passes in a row, ms; each finds every decoding request a token longer."""
    rules, state = twin.rules, twin.state
    one = rules.step + rules.prefill * tokens + rules.attention * attended / 1000.0
    one += rules.decode * state.decoding + rules.context * state.context / 1000.0
    grown = rules.context * state.decoding / 1000.0
    return passes * one + grown * passes * (passes - 1) / 2.0  # type: ignore[no-any-return]


@compiled
def _alike(twin: Any) -> int:
    """How many passes are alike from here: to the first that ends a request, fills the pool or finds a newcomer."""
    requests, rules, state = twin.requests, twin.rules, twin.state
    most = int(requests[twin.decoding[state.decoding - 1]].until) - state.passes
    most = max(1, min(most, (rules.kv - state.used) // state.decoding))
    due = np.inf
    if state.held < rules.seqs or rules.hidden_wait:  # else nobody looks at who arrives
        due = next_arrival(twin)
    wait = min(due, next_load(twin)) - state.now
    if most == 1 or _duration(twin, most - 1, 0, 0.0) < wait:
        return int(most)
    one = _duration(twin, 1, 0, 0.0)
    grown = rules.context * state.decoding / 1000.0
    slope = one - grown / 2.0
    if grown > 1e-9 * one:  # passes * slope + passes ** 2 * grown / 2 = wait
        passes = int((np.sqrt(slope * slope + 2.0 * grown * wait) - slope) / grown)
    else:
        passes = int(wait / one)
    passes = max(1, min(passes, most))  # and the last rounding up:
    while passes < most and _duration(twin, passes, 0, 0.0) < wait:
        passes += 1
    return int(passes)


@compiled
def _idle(twin: Any) -> None:
    twin.state.now = max(twin.state.now, min(next_arrival(twin), next_load(twin)))


# Who takes part


@compiled
def _arrive(twin: Any) -> None:
    state = twin.state
    while next_arrival(twin) <= state.now:
        request = twin.requests[state.coming]
        request.since, request.layer = request.ready, BEFORE if twin.rules.hidden_wait else QUEUE
        enter(twin, state.coming, QUEUE)
        state.coming += 1


@compiled
def _load(twin: Any) -> None:
    """Host loads block the device, remote ones their request alone."""
    state, rules = twin.state, twin.rules
    for position in range(state.hosts):
        rank = twin.hosts[position]
        state.now += rules.host_fixed + rules.host * twin.requests[rank].host
        twin.requests[rank].host = 0
        _look(twin, rank)
    state.hosts = 0
    while next_load(twin) <= state.now:
        state.remotes -= 1
        _look(twin, twin.remotes[state.remotes])


@compiled
def _look(twin: Any, rank: int) -> None:
    """It has room: what it waits for now, a tier or its turn to compute. What was loaded once is there ever after."""
    request, state = twin.requests[rank], twin.state
    if request.host > 0:
        enter(twin, rank, HOST)
        twin.hosts[state.hosts] = rank
        state.hosts += 1
    elif request.remote > 0:
        enter(twin, rank, REMOTE)
        request.until = state.now + twin.rules.remote_fixed + twin.rules.remote * request.remote
        request.remote = 0
        state.remotes = insert_until(twin, twin.remotes, state.remotes, rank)
    else:
        enter(twin, rank, QUEUE)
        state.filling = insert(twin.filling, state.filling, rank)


@compiled
def _make_room(twin: Any) -> int:
    """Every decoding request needs room for one more token: who arrived last gives way. Returns how many did."""
    state, preempted = twin.state, 0
    while state.held > 1 and state.decoding > 0 and state.used + state.decoding > twin.rules.kv:
        state.held -= 1
        rank = twin.held[state.held]
        request = twin.requests[rank]
        if request.layer == DECODE:
            request.made = request.wanted - (int(request.until) - state.passes)
            state.context -= request.prompt + request.made
            state.decoding = remove(twin.decoding, state.decoding, rank)
        elif request.layer == REMOTE:
            state.remotes = remove(twin.remotes, state.remotes, rank)
        else:
            state.filling = remove(twin.filling, state.filling, rank)
        state.used -= _room(twin, request)
        request.preempted += 1
        enter(twin, rank, QUEUE)
        twin.back[state.back] = rank
        state.back += 1
        preempted += 1
    return preempted


@compiled
def _room(twin: Any, request: Any) -> int:
    """Tokens of the pool that it takes for itself."""
    return int(request.prompt + request.made - twin.rules.shared * (request.prompt - request.computed))


# Prompts


@compiled
def _continue(twin: Any, budget: int) -> int:
    """Chunks for the prompts under way; returns what is left of the budget."""
    for position in range(twin.state.filling):
        budget = _give(twin, twin.filling[position], budget)
    return budget


@compiled
def _give(twin: Any, rank: int, budget: int) -> int:
    """Its chunk of this pass. What waits for its first chunk queues; between two chunks it stays in prefill."""
    request = twin.requests[rank]
    request.chunk = max(0, min(budget, request.left))
    if request.chunk > 0 and request.layer == QUEUE:
        enter(twin, rank, PREFILL)
    return budget - request.chunk  # type: ignore[no-any-return]


@compiled
def _admit(twin: Any, budget: int) -> None:
    """Those who wait, while tokens, seats and room last; the first of all never waits for room."""
    state, rules = twin.state, twin.rules
    while budget > 0 and state.held < rules.seqs and (state.back > 0 or state.fresh < state.coming):
        rank = twin.back[state.back - 1] if state.back > 0 else state.fresh
        request = twin.requests[rank]
        room = _room(twin, request)
        if state.held > 0 and state.used + room > rules.kv:
            break
        if state.back > 0:
            state.back -= 1
        else:
            state.fresh += 1
        state.held = insert(twin.held, state.held, rank)
        state.used += room
        request.left, request.at = request.computed + request.made, request.prompt - request.computed
        _look(twin, rank)
        if request.layer == QUEUE:
            budget = _give(twin, rank, budget)


@compiled
def _chunks(twin: Any) -> tuple[int, float]:
    """Prompt tokens of this pass, and these each times the tokens before it."""
    tokens, attended = 0, 0.0
    for position in range(twin.state.filling):
        request = twin.requests[twin.filling[position]]
        tokens += request.chunk
        attended += request.chunk * (request.at + request.chunk / 2.0)
    return tokens, attended


# Ends


@compiled
def _end_decodes(twin: Any) -> None:
    state = twin.state
    while state.decoding > 0:
        rank = twin.decoding[state.decoding - 1]
        request = twin.requests[rank]
        if request.until > state.passes:
            break
        state.decoding -= 1
        request.made = request.wanted
        state.context -= request.prompt + request.made
        _end(twin, rank)


@compiled
def _end_chunks(twin: Any) -> None:
    """Prompts that are through have made a token; the others keep their place."""
    state, kept = twin.state, 0
    for position in range(state.filling):
        rank = twin.filling[position]
        request = twin.requests[rank]
        request.left -= request.chunk
        request.at += request.chunk
        if request.left > 0:
            twin.filling[kept] = rank
            kept += 1
            continue
        request.made += 1
        state.used += 1
        if request.first < 0:
            request.first = state.now
        if request.made >= request.wanted:
            _end(twin, rank)
            continue
        enter(twin, rank, DECODE)
        request.until = state.passes + request.wanted - request.made
        state.context += request.prompt + request.made
        state.decoding = insert_until(twin, twin.decoding, state.decoding, rank)
    state.filling = kept


@compiled
def _end(twin: Any, rank: int) -> None:
    request, state = twin.requests[rank], twin.state
    enter(twin, rank, DECODE)
    request.end = state.now
    state.used -= _room(twin, request)
    state.held = remove(twin.held, state.held, rank)
    state.ended += 1
