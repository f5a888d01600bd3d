"""What a request asks of a cache, and when: look its prompt up, take room, make known what is computed, let go.

The law, where it is told when a request was sent, had its first token and was done: first come, first served, so that
it is begun, which is when it is looked up, when it is sent or else with the last chunk of those ahead of it. Its prompt
is computed in chunks that are spread evenly from there to the first token, what it generates evenly from there until it
is done. A server that makes blocks known when it plans a chunk (`planned`) does so at the chunk's beginning, others at
its end. Where times are missing, all of it happens at once, at the time of the request before it: one follows the
other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.prefix_replay.identity import runs
from analysis.prefix_replay.model import Floats, Ints, Requests

LOOK, COMPUTE, GROW, LEAVE = range(4)


@dataclass(frozen=True)
class Timeline:
    """m things that happen, in order. kind: LOOK, COMPUTE, GROW or LEAVE. row: whose. room, known: how many tokens of
    it have room, and how many can be found by others, from then on; with COMPUTE behind those served to it, and no
    more than its prompt."""

    kind: Ints
    row: Ints
    room: Ints
    known: Ints


def times(requests: Requests) -> tuple[Floats, Floats, Floats]:
    """(sent, first token, done) of each, each at least the one before it; those not known as stated above."""
    nothing = np.full(requests.n, np.nan)
    sent = nothing if requests.sent is None else requests.sent
    first = nothing if requests.first_token is None else requests.first_token
    done = nothing if requests.done is None else requests.done
    told = ~np.isnan(sent)
    if not told.any():
        return (np.zeros(requests.n),) * 3
    last = np.maximum.accumulate(np.where(told, np.arange(requests.n), -1))
    sent = sent[np.where(last >= 0, last, np.argmax(told))]
    first = np.where(told & ~np.isnan(first), np.fmax(first, sent), sent)
    done = np.where(told & ~np.isnan(done), np.fmax(done, first), first)
    return sent, first, done


def timeline(requests: Requests, kept: Ints, chunk: int | None, step: int, *, planned: bool) -> Timeline:
    """kept: (n,) tokens that are kept of each in the end, its prompt and what it generated. chunk: tokens of a prompt
    computed together, None for all. step: tokens generated until it takes room and makes known again."""
    sent, first, done = times(requests)
    prompt = requests.lengths
    chunks = np.maximum(1, -(-prompt // chunk)) if chunk else np.ones(requests.n, np.int64)
    sent = _begun(sent, first, chunks)
    more = -(-kept // step) - -(-prompt // step)  # whole steps that are begun while it generates
    counts = 1 + chunks + (0 if planned else 1) + more + 1
    begins = np.cumsum(counts) - counts
    out = Timeline(*(np.zeros(int(counts.sum()), np.int64) for _ in range(4)))
    when = np.empty(len(out.row))
    out.row[:] = np.repeat(np.arange(requests.n), counts)

    out.kind[:] = GROW
    out.kind[begins], when[begins] = LOOK, sent
    owner, at = np.repeat(np.arange(requests.n), chunks), runs(np.zeros_like(chunks), chunks)
    place = begins[owner] + 1 + at
    size = chunk or int(prompt.max(initial=0))
    out.kind[place], out.room[place] = COMPUTE, (at + 1) * size
    out.known[place] = (at + 1 if planned else at) * size
    when[place] = sent[owner] + (first - sent)[owner] * (at / chunks[owner])
    if not planned:
        place = begins + 1 + chunks
        out.room[place] = out.known[place] = prompt
        when[place] = first

    owner, at = np.repeat(np.arange(requests.n), more), runs(np.zeros_like(more), more)
    place = (begins + counts - 1 - more)[owner] + at
    full = (-(-prompt // step)[owner] + at) * step
    out.room[place], out.known[place] = np.minimum(full + step, kept[owner]), full
    share = (full - prompt[owner]) / np.maximum(1, (kept - prompt)[owner])
    when[place] = first[owner] + (done - first)[owner] * share

    last = begins + counts - 1
    out.kind[last], out.room[last], out.known[last], when[last] = LEAVE, kept, kept, done
    order = np.argsort(when, kind="stable")
    return Timeline(out.kind[order], out.row[order], out.room[order], out.known[order])


def _begun(sent: Floats, first: Floats, chunks: Ints) -> Floats:
    """When each was begun: no earlier than the last chunk of all those ahead of it."""
    begun, ahead = sent.tolist(), -np.inf
    for row, (end, count) in enumerate(zip(first.tolist(), chunks.tolist(), strict=True)):
        begun[row] = min(max(begun[row], ahead), end)
        ahead = max(ahead, end - (end - begun[row]) / count)
    return np.array(begun, np.float64)
