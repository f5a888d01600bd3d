"""The index of prefixes: chains of cached blocks, one root a salt, and the leaves among them that may be evicted.

A block is named by its chained hash (cachemodel.blocks), and found among its parent's children by its tokens: a
dictionary hashes them and then compares them, so that no collision can serve the KV of another text, and text that is
cached costs no SHA-256. Eviction is least recently used among leaves: a block with children on the same level goes
after them. Whatever uses a block uses all those before it, so a parent is never older than its children.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count

from cachemodel.blocks import salt_key
from engine.cache.block import CachedBlock, Level, chain_digest
from engine.cache.events import EventLog


class PrefixIndex:
    """cached: indexed blocks by level. idle: those of them that nobody holds; all of those can be evicted, since who
    holds a block holds all before it. clock: seconds that never go back."""

    def __init__(self, root: bytes, events: EventLog, clock: Callable[[], float]) -> None:
        self._root, self._events = root, events
        self._roots: dict[str, CachedBlock] = {}
        self._leaves: tuple[list[tuple[int, int, CachedBlock]], ...] = ([], [], [])
        self._serial = count()
        self._clock = clock
        self._now = 0
        self.cached, self.idle = [0, 0, 0], [0, 0, 0]

    def find(self, tokens: list[tuple[int, ...]], salt: str) -> list[CachedBlock]:
        """The longest run of blocks with these tokens from a chain's beginning."""
        found: list[CachedBlock] = []
        block = self._roots.get(salt)
        for content in tokens:
            block = block.children.get(content) if block else None
            if block is None:
                break
            found.append(block)
        return found

    def digests(self, known: list[CachedBlock], tokens: list[tuple[int, ...]], salt: str) -> list[bytes]:
        """Chained hashes of all blocks with these tokens, of which the first are known."""
        digests = [block.digest for block in known]
        for content in tokens[len(known) :]:
            digests.append(self._digest(digests[-1] if digests else None, content, salt))
        return digests

    def root(self, salt: str) -> CachedBlock:
        """The parent of a chain's first block; it holds nothing."""
        root = self._roots.get(salt)
        if root is None:
            root = self._roots[salt] = CachedBlock(None, (), self._root, Level.NOWHERE, -1, salt)
        return root

    def roots(self) -> list[CachedBlock]:
        """Of all chains."""
        return list(self._roots.values())

    def add(
        self, parent: CachedBlock, tokens: tuple[int, ...], slot: int, digest: bytes | None = None
    ) -> CachedBlock:
        """Index a new block on the device, held by its caller. The parent is indexed and has no such child.

        digest: None where nobody has computed it yet.
        """
        if digest is None:
            digest = self._digest(None if parent.is_root else parent.digest, tokens, parent.salt)
        block = CachedBlock(parent, tokens, digest, Level.DEVICE, slot, parent.salt)
        block.refs = 1
        parent.children[tokens] = block
        self._arrive(block)
        return block

    def move(self, block: CachedBlock, level: Level, slot: int) -> None:
        """Its KV is in another place now."""
        before, block.level, block.slot = block.level, level, slot
        if block.indexed:
            self._arrive(block)
            self._depart(block, before)

    def remove(self, block: CachedBlock, *, quiet: bool = False) -> None:
        """It cannot be found any more, nor can it have indexed children. quiet: an event tells of it otherwise."""
        parent = block.parent
        if parent is None or block.children:
            raise ValueError("a block with children is not removed before them, nor a root at all")
        del parent.children[block.tokens]
        block.indexed = False
        self._depart(block, block.level, quiet=quiet)
        if parent.is_root and not parent.children:
            self._roots.pop(block.salt, None)

    def hold(self, block: CachedBlock) -> None:
        """One more holds it: it is not evicted."""
        if block.indexed and not block.refs:
            self.idle[block.level] -= 1
        block.refs += 1

    def touch(self, blocks: list[CachedBlock]) -> None:
        """Blocks from a chain's beginning on were used now, all at the same time. Their caller holds them."""
        self._now += 1
        used_at = self._clock()
        for block in blocks:
            block.last_used, block.used_at = self._now, used_at

    def let_go(self, block: CachedBlock) -> None:
        """One fewer holds it."""
        block.refs -= 1
        if block.indexed and not block.refs:
            self.idle[block.level] += 1
            self._offer(block)

    def pop_leaf(self, level: Level) -> CachedBlock | None:
        """The block of a level to evict next; the caller moves or removes it. None: all are held."""
        leaves = self._leaves[level]
        while leaves:
            last_used, _, block = heapq.heappop(leaves)
            if block.last_used == last_used and self._is_leaf(block, level):
                return block
        return None

    def queued(self, level: Level) -> set[CachedBlock]:
        """What `pop_leaf` would give, one after the other."""
        return {
            block
            for used, _, block in self._leaves[level]
            if block.last_used == used and self._is_leaf(block, level)
        }

    def subtree(self, block: CachedBlock) -> Iterator[CachedBlock]:
        """The block and all below it, children before parents."""
        order, ahead = [], [block]
        while ahead:
            order.append(ahead.pop())
            ahead.extend(order[-1].children.values())
        return reversed(order)

    def blocks(self) -> Iterator[CachedBlock]:
        """All indexed blocks, children before parents."""
        for root in self.roots():
            yield from (block for block in self.subtree(root) if not block.is_root)

    def _digest(self, parent: bytes | None, tokens: tuple[int, ...], salt: str) -> bytes:
        if parent is not None:
            return chain_digest(parent, tokens)
        return chain_digest(self._root, tokens, (salt_key(salt),) if salt else None)

    def _arrive(self, block: CachedBlock) -> None:
        level = block.level
        self.cached[level] += 1
        self.idle[level] += not block.refs
        if block.parent is not None:
            block.parent.children_at[level] += 1
        self._events.stored(block, level)
        self._offer(block)

    def _depart(self, block: CachedBlock, level: Level, *, quiet: bool = False) -> None:
        self.cached[level] -= 1
        self.idle[level] -= not block.refs
        if block.parent is not None:
            block.parent.children_at[level] -= 1
            self._offer(block.parent)
        if not quiet:
            self._events.removed(block, level)

    def _is_leaf(self, block: CachedBlock, level: Level) -> bool:
        return block.level is level and block.indexed and not block.refs and not block.children_at[level]

    def _offer(self, block: CachedBlock) -> None:
        """Queue it for eviction if it may be evicted. What happens to it later makes its entry void, not absent."""
        level = block.level
        if level is Level.NOWHERE or not self._is_leaf(block, level):
            return
        leaves = self._leaves[level]
        if len(leaves) > 2 * self.cached[level] + 64:
            valid = {
                id(b): (used, n, b)
                for used, n, b in leaves
                if b.last_used == used and self._is_leaf(b, level)
            }
            leaves[:] = valid.values()
            heapq.heapify(leaves)
        heapq.heappush(leaves, (block.last_used, next(self._serial), block))
