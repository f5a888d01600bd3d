"""A radix tree of token runs, found page by page, under a limit of tokens (SGLang).

A node is a run of tokens behind its parent's. It is cut in two where a prompt leaves it. What is evicted is a whole
leaf that no request holds, the one let go longest ago. A request waits, and all behind it, until there is room for its
whole prompt or nobody holds any.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from analysis.prefix_replay.compiled import compiled
from analysis.prefix_replay.identity import kept
from analysis.prefix_replay.model import Requests, Served
from analysis.prefix_replay.radix_tree import (
    EVICTABLE,
    HELD,
    NONE,
    ROOT,
    insert,
    let_go,
    match,
    new_tree,
    remove,
    take_hold,
    walk,
)
from analysis.prefix_replay.rules import RadixRule
from analysis.prefix_replay.timeline import COMPUTE, LEAVE, LOOK, timeline

WAITING, RUNNING, OVER = range(3)
PRIVATE, AT_WORK = range(2)
_UNLIMITED = 1 << 62


class Work(NamedTuple):
    """(m,) kind, row, room, known: what happens, as in Timeline. begin: (requests,) of its tokens among those of the
    tree; prompt: how many it has. reads: whether it may read. state: WAITING, RUNNING or OVER. missed: what happened to
    it last while it waited, NONE for nothing. node: where what it holds ends; inside: tokens of it in the tree; own:
    tokens that it has room for beside. sums: (2,) of all own, and requests that run. served, held: filled in.
    capacity: tokens; most: requests that run.
    """

    kind: Any
    row: Any
    room: Any
    known: Any
    begin: Any
    prompt: Any
    reads: Any
    state: Any
    missed: Any
    node: Any
    inside: Any
    own: Any
    sums: Any
    served: Any
    held: Any
    capacity: int
    most: int


def replay_radix(requests: Requests, rule: RadixRule) -> Served:
    """Under a RadixRule."""
    sequences, n, page = kept(requests), requests.n, rule.page_size
    events = timeline(requests, sequences.lengths, rule.chunk, page, planned=False)
    known = int(np.count_nonzero(events.kind != LOOK))
    # a look cuts one node at the most, and what becomes known adds one more
    tree = new_tree(sequences, requests.isolation, page, rule.capacity is None, 2 * known + n + 1)
    work = Work(
        kind=events.kind,
        row=events.row,
        room=events.room,
        known=events.known,
        begin=sequences.offsets[:-1],
        prompt=requests.lengths,
        reads=np.ones(n, np.bool_) if requests.reads_off is None else ~requests.reads_off,
        state=np.full(n, WAITING),
        missed=np.full(n, NONE),
        node=np.full(n, ROOT),
        inside=np.zeros(n, np.int64),
        own=np.zeros(n, np.int64),
        sums=np.zeros(2, np.int64),
        served=np.zeros(n, np.int64),
        held=np.zeros(n, np.int64),
        capacity=_UNLIMITED if rule.capacity is None else rule.capacity,
        most=rule.max_running_requests or n + 1,
    )
    _run(tree, work)
    return Served(work.served, work.held)


@compiled
def _run(tree: Any, work: Any) -> None:
    line, first, last = np.empty(len(work.prompt), np.int64), 0, 0
    heap = [(0, 0)]  # (when, node) that may be evicted, unless something happened to it since
    heap.pop()
    for at in range(len(work.kind)):
        row = work.row[at]
        if work.kind[at] == LOOK:
            line[last], last = row, last + 1
        elif work.state[row] == RUNNING:
            _go_on(tree, work, heap, at)
        elif work.kind[at] == LEAVE:  # it did not wait so long: it gets what there is, and leaves nothing
            _look(tree, work, row)
            work.state[row] = OVER
        else:
            work.missed[row] = at
        while first < last and _start(tree, work, heap, line[first]):
            first += 1


@compiled
def _start(tree: Any, work: Any, heap: Any, row: int) -> bool:
    """Begin on the request that waits in front, if there is room for its prompt."""
    if work.state[row] == OVER:
        return True
    if work.sums[AT_WORK] == work.most:
        return False
    _look(tree, work, row)
    wanted = _pages(tree, work.prompt[row]) - work.served[row]
    if work.sums[AT_WORK] and wanted > _free(tree, work) + tree.counts[EVICTABLE]:
        return False  # not even if all that it would hold itself could go
    node = match(tree, row, work.begin[row], work.served[row])
    take_hold(tree, node)
    if work.sums[AT_WORK] and wanted > _free(tree, work) + tree.counts[EVICTABLE]:
        let_go(tree, heap, node)
        return False
    work.node[row], work.inside[row], work.state[row] = node, work.served[row], RUNNING
    work.sums[AT_WORK] += 1
    _take_room(tree, work, heap, row, wanted)
    if work.missed[row] != NONE:
        _go_on(tree, work, heap, work.missed[row])
    return True


@compiled
def _look(tree: Any, work: Any, row: int) -> None:
    """Fill in what is held and served."""
    prompt, page = work.prompt[row], tree.page
    work.held[row] = walk(tree, row, work.begin[row], prompt // page * page)
    work.served[row] = 0
    if work.reads[row] and prompt > 0:
        work.served[row] = min(work.held[row], (prompt - 1) // page * page)


@compiled
def _go_on(tree: Any, work: Any, heap: Any, at: int) -> None:
    row, room, known = work.row[at], work.room[at], work.known[at]
    if work.kind[at] == COMPUTE:
        room = min(work.prompt[row], work.served[row] + room)
        known = min(work.prompt[row], work.served[row] + known)
    _take_room(tree, work, heap, row, _pages(tree, room) - work.inside[row] - work.own[row])
    known = known // tree.page * tree.page
    if known > work.inside[row]:
        node = insert(tree, row, work.begin[row], known)
        take_hold(tree, node)
        let_go(tree, heap, work.node[row])
        _give(work, row, known - work.inside[row])
        work.node[row], work.inside[row] = node, known
    if work.kind[at] == LEAVE:
        let_go(tree, heap, work.node[row])
        _give(work, row, work.own[row])
        work.sums[AT_WORK] -= 1
        work.state[row] = OVER


@compiled
def _take_room(tree: Any, work: Any, heap: Any, row: int, more: int) -> None:
    """For so many tokens more. Leaves are evicted until there is, or none is left: the pool is over its limit then."""
    if more <= 0:
        return
    while _free(tree, work) < more and len(heap) > 0:
        stamp, node = heappop(heap)
        if not tree.there[node] or tree.users[node] or tree.children[node] or tree.stamp[node] != stamp:
            continue
        parent = tree.parent[node]
        remove(tree, node)
        if parent != ROOT and tree.users[parent] == 0 and tree.children[parent] == 0:
            heappush(heap, (tree.stamp[parent], parent))
    work.own[row] += more
    work.sums[PRIVATE] += more


@compiled
def _give(work: Any, row: int, tokens: int) -> None:
    """Room of its own that it needs no more: its tokens are in the tree, or were there already."""
    work.own[row] -= tokens
    work.sums[PRIVATE] -= tokens


@compiled
def _free(tree: Any, work: Any) -> int:
    return work.capacity - tree.counts[HELD] - work.sums[PRIVATE]  # type: ignore[no-any-return]


@compiled
def _pages(tree: Any, tokens: int) -> int:
    """Tokens of as many pages as these take."""
    return -(-tokens // tree.page) * tree.page  # type: ignore[no-any-return]
