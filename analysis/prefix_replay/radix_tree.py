"""The tree of the radix rule: nodes are runs of tokens, children are found by their first page in one hash table.

radix.py is compiled with these in it, and numba looks only at the file that it compiles: after a change here, touch
that.
"""

from __future__ import annotations

from heapq import heappush
from typing import Any, NamedTuple

import numpy as np

from analysis.prefix_replay.compiled import compiled
from analysis.prefix_replay.model import Hashes, Ragged

NONE, GONE, ROOT = -1, -2, 0
NODES, NOW, HELD, EVICTABLE = range(4)


class Tree(NamedTuple):
    """tokens: of all sequences; key: (requests,) isolation. (nodes,) begin, length: its run in tokens. parent,
    children: the number of these. owner: a request with that run. users: requests that hold it. stamp: when it was
    last held. there: not evicted. slots: the hash table, a node, NONE or GONE each. counts: nodes made, the time,
    tokens held, of these evictable. endless: nothing is ever evicted."""

    tokens: Any
    key: Any
    begin: Any
    length: Any
    parent: Any
    children: Any
    owner: Any
    users: Any
    stamp: Any
    there: Any
    slots: Any
    counts: Any
    page: int
    endless: bool


def new_tree(sequences: Ragged, isolation: Hashes | None, page: int, endless: bool, size: int) -> Tree:
    """An empty tree. size: the most nodes that will ever be made."""
    slots = 1 << (2 * size).bit_length()
    return Tree(
        tokens=sequences.values,
        key=np.zeros(len(sequences.offsets) - 1, np.uint64) if isolation is None else isolation,
        begin=np.zeros(size, np.int64),
        length=np.zeros(size, np.int64),
        parent=np.zeros(size, np.int64),
        children=np.zeros(size, np.int64),
        owner=np.zeros(size, np.int64),
        users=np.zeros(size, np.int64),
        stamp=np.zeros(size, np.int64),
        there=np.zeros(size, np.bool_),
        slots=np.full(slots, NONE),
        counts=np.array([1, 0, 0, 0]),
        page=page,
        endless=endless,
    )


@compiled
def walk(tree: Any, row: int, begin: int, length: int) -> int:
    """How many of the tokens from `begin` on the tree has, in whole pages."""
    node, found = ROOT, 0
    while found < length:
        child = _child(tree, node, row, begin + found)
        if child == NONE:
            break
        same = _common(tree, tree.begin[child], begin + found, min(tree.length[child], length - found))
        found += same
        if same < tree.length[child]:
            break
        node = child
    return found


@compiled
def match(tree: Any, row: int, begin: int, length: int) -> int:
    """The node at the end of so many tokens that the tree has, which is cut out where they end inside of one."""
    node, found = ROOT, 0
    while found < length:
        node = _child(tree, node, row, begin + found)
        if found + tree.length[node] > length:
            node = _cut(tree, node, length - found)
        found += tree.length[node]
    return node


@compiled
def insert(tree: Any, row: int, begin: int, length: int) -> int:
    """The node at the end of so many tokens, all of which the tree has then."""
    found = walk(tree, row, begin, length)
    node = match(tree, row, begin, found)
    if found == length:
        return node  # type: ignore[no-any-return]
    leaf = _new(tree, node, row, begin + found, length - found)
    tree.counts[HELD] += length - found
    tree.counts[EVICTABLE] += length - found
    tree.children[node] += 1
    return leaf  # type: ignore[no-any-return]


@compiled
def take_hold(tree: Any, node: int) -> None:
    """Of a node and all before it."""
    while node != ROOT:
        if tree.users[node] == 0:
            tree.counts[EVICTABLE] -= tree.length[node]
        tree.users[node] += 1
        node = tree.parent[node]


@compiled
def let_go(tree: Any, heap: Any, node: int) -> None:
    """Of the same. What may be evicted now goes into the heap of (time, node); no two are let go at one time."""
    tree.counts[NOW] += 1
    while node != ROOT:
        tree.users[node] -= 1
        tree.stamp[node] = tree.counts[NOW]
        if tree.users[node] == 0:
            tree.counts[EVICTABLE] += tree.length[node]
            if tree.children[node] == 0 and not tree.endless:
                heappush(heap, (tree.stamp[node], node))
        node = tree.parent[node]


@compiled
def remove(tree: Any, node: int) -> None:
    """Evict a leaf that nobody holds."""
    tree.slots[_slot(tree, node)] = GONE
    tree.there[node] = False
    tree.children[tree.parent[node]] -= 1
    tree.counts[HELD] -= tree.length[node]
    tree.counts[EVICTABLE] -= tree.length[node]


@compiled
def _new(tree: Any, parent: int, row: int, begin: int, length: int) -> int:
    node = tree.counts[NODES]
    tree.counts[NODES] += 1
    tree.begin[node], tree.length[node], tree.parent[node], tree.owner[node] = begin, length, parent, row
    tree.stamp[node], tree.there[node] = tree.counts[NOW], True
    at = _hash(tree, parent, row, begin)
    while tree.slots[at] >= 0:
        at = (at + 1) & (len(tree.slots) - 1)
    tree.slots[at] = node
    return node  # type: ignore[no-any-return]


@compiled
def _cut(tree: Any, node: int, length: int) -> int:
    """A node of the first `length` tokens of a node, which keeps the rest and becomes its child."""
    at = _slot(tree, node)
    tree.slots[at] = GONE
    upper = _new(tree, tree.parent[node], tree.owner[node], tree.begin[node], length)
    tree.users[upper], tree.children[upper], tree.stamp[upper] = tree.users[node], 1, tree.stamp[node]
    tree.begin[node] += length
    tree.length[node] -= length
    tree.parent[node] = upper
    at = _hash(tree, upper, tree.owner[node], tree.begin[node])
    while tree.slots[at] >= 0:
        at = (at + 1) & (len(tree.slots) - 1)
    tree.slots[at] = node
    return upper  # type: ignore[no-any-return]


@compiled
def _child(tree: Any, parent: int, row: int, begin: int) -> int:
    """The child of a node that begins with the page at `begin`, NONE for none."""
    at = _hash(tree, parent, row, begin)
    while tree.slots[at] != NONE:
        node = tree.slots[at]
        if node >= 0 and tree.parent[node] == parent and tree.key[tree.owner[node]] == tree.key[row]:
            same = 0
            while same < tree.page and tree.tokens[tree.begin[node] + same] == tree.tokens[begin + same]:
                same += 1
            if same == tree.page:
                return node  # type: ignore[no-any-return]
        at = (at + 1) & (len(tree.slots) - 1)
    return NONE


@compiled
def _slot(tree: Any, node: int) -> int:
    """Where a node stands in the hash table."""
    at = _hash(tree, tree.parent[node], tree.owner[node], tree.begin[node])
    while tree.slots[at] != node:
        at = (at + 1) & (len(tree.slots) - 1)
    return at  # type: ignore[no-any-return]


@compiled
def _hash(tree: Any, parent: int, row: int, begin: int) -> int:
    mixed = np.uint64(parent) * np.uint64(0x9E3779B97F4A7C15) ^ tree.key[row]
    for at in range(begin, begin + tree.page):
        mixed = (mixed ^ np.uint64(tree.tokens[at])) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
    return np.int64(mixed & np.uint64(len(tree.slots) - 1))  # type: ignore[return-value]


@compiled
def _common(tree: Any, a: int, b: int, most: int) -> int:
    """How many tokens from a and b on are equal, in whole pages."""
    same = 0
    while same < most and tree.tokens[a + same] == tree.tokens[b + same]:
        same += 1
    return same // tree.page * tree.page  # type: ignore[no-any-return]
