"""A pool of blocks found by the hash of their tokens and all before them (vLLM).

All blocks of the pool that no request holds stand in one queue, with those that were let go last at its end; room is
taken from its front, and what such a block held is forgotten then. A content that several blocks have is found in the
one that had it first. A request waits, and all behind it, until there is room for its whole prompt or nobody holds any.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from analysis.prefix_replay.compiled import compiled
from analysis.prefix_replay.endless import is_endless, replay_endless
from analysis.prefix_replay.identity import blocks, kept
from analysis.prefix_replay.model import Requests, Served
from analysis.prefix_replay.rules import BlockRule
from analysis.prefix_replay.timeline import COMPUTE, LEAVE, LOOK, timeline

NONE = -1


class Pool(NamedTuple):
    """(blocks,) users: requests that hold a block. content: what it is known by. copy: the next of the same content.
    before, behind: its neighbours in the queue, whose two ends are the last two entries; NONE for not in it.
    (contents,) first: the block in which a content is found. (requests,) size: blocks of each, known: those looked at
    to become known; its blocks are table[begin[row] : begin[row] + size[row]], NONE where there was no room. (1,)
    free: blocks in the queue, running: requests that hold some.
    """

    users: Any
    content: Any
    copy: Any
    before: Any
    behind: Any
    first: Any
    begin: Any
    size: Any
    known: Any
    table: Any
    free: Any
    running: Any


class Work(NamedTuple):
    """(m,) kind, row, room, known: what happens, as in Timeline. contents: blocks of all requests by number; offsets:
    of each request's among them. (requests,) prompt: its tokens. reads: whether it may read. state: WAITING, RUNNING or
    OVER. missed: what happened to it last while it waited, NONE for nothing. served, held: filled in.
    """

    kind: Any
    row: Any
    room: Any
    known: Any
    contents: Any
    offsets: Any
    prompt: Any
    reads: Any
    state: Any
    missed: Any
    served: Any
    held: Any


class Shape(NamedTuple):
    """The rule: tokens of a block, the alignment, whether contents may be there twice, whether blocks of which
    nothing is known go first, and the most requests that run."""

    size: int
    unit: int
    dropped: int
    computed: int
    copies: bool
    unknown_first: bool
    most: int


WAITING, RUNNING, OVER = range(3)


def replay_blocks(requests: Requests, rule: BlockRule) -> Served:
    """Under a BlockRule."""
    sequences, size, law, n = kept(requests), rule.block_size, rule.law, requests.n
    contents = blocks(sequences, requests.isolation, size)
    if is_endless(requests, rule):
        return replay_endless(requests, rule, contents)
    events = timeline(requests, sequences.lengths, rule.chunk, size, planned=rule.planned)
    needed = -(-sequences.lengths // size)
    work = Work(
        kind=events.kind,
        row=events.row,
        room=events.room,
        known=events.known,
        contents=contents.values,
        offsets=contents.offsets,
        prompt=requests.lengths,
        reads=np.ones(n, np.bool_) if requests.reads_off is None else ~requests.reads_off,
        state=np.full(n, WAITING),
        missed=np.full(n, NONE),
        served=np.zeros(n, np.int64),
        held=np.zeros(n, np.int64),
    )
    pool = _pool(rule.capacity or int(needed.sum()), int(contents.values.max(initial=-1)) + 1, needed)
    shape = Shape(
        size,
        law.unit,
        law.dropped_units,
        law.computed_tokens,
        rule.copies,
        rule.unknown_first,
        rule.max_num_seqs or n + 1,
    )
    _run(pool, work, shape)
    return Served(work.served, work.held)


def _pool(size: int, contents: int, needed: Any) -> Pool:
    """A pool in which nothing is known and every block is free, in the order of their numbers."""
    behind = np.arange(1, size + 3)
    behind[size], behind[size + 1] = 0, NONE
    before = np.arange(-1, size + 1)
    before[0], before[size], before[size + 1] = size, NONE, size - 1
    behind[size - 1] = size + 1
    if size == 0:
        behind[0], before[1] = 1, 0
    return Pool(
        users=np.zeros(size, np.int64),
        content=np.full(size, NONE),
        copy=np.full(size, NONE),
        before=before,
        behind=behind,
        first=np.full(contents, NONE),
        begin=np.cumsum(needed) - needed,
        size=np.zeros(len(needed), np.int64),
        known=np.zeros(len(needed), np.int64),
        table=np.full(int(needed.sum()), NONE),
        free=np.full(1, size),
        running=np.zeros(1, np.int64),
    )


@compiled
def _run(pool: Any, work: Any, shape: Any) -> None:
    line, first, last = np.empty(len(work.prompt), np.int64), 0, 0
    for at in range(len(work.kind)):
        row = work.row[at]
        if work.kind[at] == LOOK:
            line[last], last = row, last + 1
        elif work.state[row] == RUNNING:
            _go_on(pool, work, shape, at)
        elif work.kind[at] == LEAVE:  # it did not wait so long: it gets what there is, and leaves nothing
            _look(pool, work, shape, row)
            work.state[row] = OVER
        else:
            work.missed[row] = at
        while first < last and _start(pool, work, shape, line[first]):
            first += 1


@compiled
def _start(pool: Any, work: Any, shape: Any, row: int) -> bool:
    """Begin on the request that waits in front, if there is room for its prompt."""
    if work.state[row] == OVER:
        return True
    found = _look(pool, work, shape, row)
    begin, wanted = work.offsets[row], -(-work.prompt[row] // shape.size) - found
    for place in range(found):
        wanted += pool.users[pool.first[work.contents[begin + place]]] == 0
    if pool.running[0] == shape.most or (wanted > pool.free[0] and pool.running[0] > 0):
        return False
    for place in range(found):
        _hold(pool, row, place, pool.first[work.contents[begin + place]])
    pool.size[row] = pool.known[row] = found
    pool.running[0] += 1
    work.state[row] = RUNNING
    if work.missed[row] != NONE:
        _go_on(pool, work, shape, work.missed[row])
    return True


@compiled
def _look(pool: Any, work: Any, shape: Any, row: int) -> int:
    """Fill in what is held and served; the blocks served."""
    begin, prompt, found = work.offsets[row], work.prompt[row], 0
    while found < prompt // shape.size and pool.first[work.contents[begin + found]] != NONE:
        found += 1
    work.held[row] = found * shape.size
    work.served[row] = 0
    if work.reads[row]:
        usable = max(0, min(found * shape.size, prompt - shape.computed))
        work.served[row] = max(0, usable // shape.unit - shape.dropped) * shape.unit
    return work.served[row] // shape.size  # type: ignore[no-any-return]


@compiled
def _go_on(pool: Any, work: Any, shape: Any, at: int) -> None:
    row, room, known = work.row[at], work.room[at], work.known[at]
    if work.kind[at] == COMPUTE:
        room = min(work.prompt[row], work.served[row] + room)
        known = min(work.prompt[row], work.served[row] + known)
    _take_room(pool, row, -(-room // shape.size))
    _make_known(pool, row, known // shape.size, work.contents[work.offsets[row] :], shape.copies)
    if work.kind[at] == LEAVE:
        for place in range(pool.size[row] - 1, -1, -1):
            _let_go(pool, pool.table[pool.begin[row] + place], shape.unknown_first)
        pool.running[0] -= 1
        work.state[row] = OVER


@compiled
def _take_room(pool: Any, row: int, wanted: int) -> None:
    """Blocks from the front of the queue. Where it is empty, all are held: the block is no part of the pool then."""
    front, end = len(pool.users), len(pool.users) + 1
    for place in range(pool.size[row], wanted):
        block = pool.behind[front]
        if block == end:
            pool.table[pool.begin[row] + place] = NONE
            continue
        _forget(pool, block)
        _hold(pool, row, place, block)
    pool.size[row] = max(pool.size[row], wanted)


@compiled
def _make_known(pool: Any, row: int, upto: int, contents: Any, copies: bool) -> None:
    for place in range(pool.known[row], upto):
        block, content = pool.table[pool.begin[row] + place], contents[place]
        if block == NONE:
            continue
        same = pool.first[content]
        if same == NONE:
            pool.first[content] = block
        elif not copies:
            _let_go(pool, block, True)
            _hold(pool, row, place, same)
            continue
        else:
            while pool.copy[same] != NONE:
                same = pool.copy[same]
            pool.copy[same] = block
        pool.content[block] = content
    pool.known[row] = max(pool.known[row], upto)


@compiled
def _hold(pool: Any, row: int, place: int, block: int) -> None:
    if pool.users[block] == 0:
        before, behind = pool.before[block], pool.behind[block]
        pool.behind[before], pool.before[behind] = behind, before
        pool.free[0] -= 1
    pool.users[block] += 1
    pool.table[pool.begin[row] + place] = block


@compiled
def _let_go(pool: Any, block: int, unknown_first: bool) -> None:
    """To the end of the queue, once nobody holds it; what is known of nothing to its front, if so wanted."""
    if block == NONE:
        return
    pool.users[block] -= 1
    if pool.users[block] > 0:
        return
    if unknown_first and pool.content[block] == NONE:
        before = len(pool.users)
        behind = pool.behind[before]
    else:
        behind = len(pool.users) + 1
        before = pool.before[behind]
    pool.behind[before] = pool.before[behind] = block
    pool.before[block], pool.behind[block] = before, behind
    pool.free[0] += 1


@compiled
def _forget(pool: Any, block: int) -> None:
    content = pool.content[block]
    if content == NONE:
        return
    if pool.first[content] == block:
        pool.first[content] = pool.copy[block]
    else:
        other = pool.first[content]
        while pool.copy[other] != block:
            other = pool.copy[other]
        pool.copy[other] = pool.copy[block]
    pool.content[block] = pool.copy[block] = NONE
