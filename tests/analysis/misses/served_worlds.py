"""Random worlds that can be: one server whose cache does what caches do, and what was true of each request's tokens.

The server works in steps. What arrived by then is looked up, takes its room (others make it, the one used last the
last), and is computed for some steps; its blocks are cached at once, as vLLM does, or when they are computed, as the
engine here does. The events of a step carry the time of its end. While nobody asks, blocks expire, the cache is cleared
and the server starts anew.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import strategies as st

from analysis.misses.model import NOT_TOLD, Action
from tests.analysis.misses.build import BLOCK, World

WORDS = st.sampled_from(["AB", "ABC", "ABCD", "ABCD", "ABCE", "ABX", "AY", "QRS"])
TICK = 5  # milliseconds: a step takes some of them
PAUSES = st.sampled_from([1, 3, 10, 15, 40, 90, 1_000]).map(lambda ticks: ticks * TICK)
MOSTLY = st.sampled_from([True, True, True, False])
CAPACITY = 7
GAVE_WAY = "gave way"  # tokens of a copy under another salt that was removed to make room for the same tokens
APART = 1_001  # so far from any store a removal is no eviction for room
_MARKS = {Action.CLEARED: "clear", Action.RESTART: "restart"}
Block = tuple[str, int]  # the word up to it, and its salt


@dataclass
class _Running:
    """row: of its request. blocks: of its prompt; done: how many of them were served or computed; left: steps."""

    row: int
    blocks: list[Block]
    done: int
    left: int


@dataclass
class Server:
    """early: blocks are cached when their request is admitted. truth: tokens by part, of each request in order."""

    world: World
    early: bool
    used: dict[Block, int] = field(default_factory=dict)
    lost: dict[Block, str] = field(default_factory=dict)
    running: list[_Running] = field(default_factory=list)
    truth: list[Counter[str]] = field(default_factory=list)

    def step(self, row: int | None, began: int, steps: int, ends: int) -> None:
        """Admit a request, and compute a step of all."""
        if row is not None:
            asked = self.world.asked[row]
            asked.began = began
            blocks = [(asked.word[: n + 1], asked.salt) for n in range(len(asked.word))]
            readable = (len(asked.word) * BLOCK + asked.more - 1) // BLOCK
            found = _leading([block in self.used for block in blocks[:readable]])
            self.truth.append(self._parts(row, blocks, found))
            self.running.append(_Running(row, blocks, found, steps))
            for block in self._make_room(sum(block not in self.used for block in blocks)):
                self._say(Action.REMOVED, block, ends)
                self.truth[row][GAVE_WAY] += BLOCK * (
                    asked.word.startswith(block[0]) and block[1] != asked.salt
                )
            if self.early:
                self._cache(blocks, ends)
        for one in list(self.running):
            one.done += -(-(len(one.blocks) - one.done) // one.left)
            one.left -= 1
            self._cache(one.blocks[: one.done], ends)
            if not one.left:
                self.running.remove(one)
                self.world.asked[one.row].first = ends

    def forget(self, action: Action, now: int) -> None:
        """Nothing is cached any more."""
        for block in list(self.used):
            self._lose(block, _MARKS[action])
        self.world.mark(action, now)

    def expire(self, count: int, now: int) -> None:
        """The blocks that were used longest ago go, though nobody needs their room."""
        for block in self._oldest()[:count]:
            self._lose(block, "expiry")
            self._say(Action.REMOVED, block, now)

    def _cache(self, blocks: list[Block], now: int) -> None:
        for block in blocks:
            if block not in self.used:
                self._say(Action.STORED, block, now)
        self.used |= dict.fromkeys(blocks, now)

    def _make_room(self, wanted: int) -> list[Block]:
        gone = self._oldest()[: max(0, len(self.used) + wanted - CAPACITY)]
        for block in gone:
            self._lose(block, "capacity")
        return gone

    def _oldest(self) -> list[Block]:
        """Those that may go, in the order in which they do."""
        pinned = {block for one in self.running for block in one.blocks}
        free = sorted((at, -len(block[0]), block) for block, at in self.used.items() if block not in pinned)
        return [block for _, _, block in free]

    def _lose(self, block: Block, cause: str) -> None:
        del self.used[block]
        self.lost.pop(block, None)  # the last one that was lost comes last
        self.lost[block] = cause

    def _say(self, action: Action, block: Block, now: int) -> None:
        word, salt = block
        say = self.world.store if action == Action.STORED else self.world.remove
        say(word, now, begin=len(word) - 1, salt=salt)

    def _parts(self, row: int, blocks: list[Block], found: int) -> Counter[str]:
        flying = {block for one in self.running for block in one.blocks}
        there = set(self.used) | flying
        words = {word for word, _ in there}
        sent = {one.word[: n + 1] for one in self.world.asked[:row] for n in range(len(one.word))}
        here = _leading([block in there for block in blocks])
        anywhere = max(here, _leading([word in words for word, _ in blocks]))
        before = max(anywhere, _leading([word in sent for word, _ in blocks]))
        parts = Counter(actual=found, here=here - found, isolated=anywhere - here)
        parts.update(self._cause(block) for block in blocks[anywhere:before])
        parts["cold"] = len(blocks) - before
        asked = self.world.asked[row]
        tokens = Counter({part: count * BLOCK for part, count in parts.items() if count})
        tokens["cold"] += asked.more
        return tokens

    def _cause(self, block: Block) -> str:
        return self.lost.get(block) or next(
            cause for (word, _), cause in reversed(self.lost.items()) if word == block[0]
        )


def here_together(found: dict[str, int]) -> dict[str, int]:
    """Of what was computed here although it was here, or was being computed, the last block may count as either."""
    here = found.pop("unaligned", 0) + found.pop("not_loaded", 0)
    return {**found, "here": here} if here else found


def _leading(flags: list[bool]) -> int:
    return next((n for n, flag in enumerate(flags) if not flag), len(flags))


def _idle(draw: st.DrawFn, server: Server, since: int, until: int) -> int:
    """What befalls a cache that nobody uses between two moments; the moment from which it is used again."""
    if until - since > 2 * APART and draw(MOSTLY):
        server.expire(draw(st.integers(1, CAPACITY)), since + APART)
    until = max(since, until)
    if draw(st.sampled_from([False, False, True])):
        server.forget(draw(st.sampled_from([*_MARKS])), until + 1)
        until += 2
    return until


@st.composite
def served_worlds(draw: st.DrawFn, *, usage: bool) -> tuple[World, list[Counter[str]]]:
    """A world, and tokens by part of each request: causes, `actual`, `here` for what was there, or was being computed,
    and was computed all the same; and GAVE_WAY, which are among the isolated."""
    world = World()
    world.joined["a", 0] = 0
    # without usage nobody can know whether a block that is being computed is shared
    server = Server(world, early=not usage or draw(st.booleans()))
    now = 1000
    for _ in range(draw(st.integers(2, 9))):
        now += draw(PAUSES)
        salt, more = draw(st.sampled_from([0, 0, 0, 1])), draw(st.integers(0, BLOCK - 1))
        world.ask(draw(WORDS), now, salt=salt, more=more)
    clock, admitted = 1000, 0
    while admitted < len(world.asked) or server.running:
        if not server.running:
            clock = _idle(draw, server, clock, world.asked[admitted].at)
        ready = admitted < len(world.asked) and world.asked[admitted].at <= clock
        ends = clock + TICK * draw(st.integers(1, 12))
        server.step(admitted if ready else None, clock, draw(st.integers(1, 3)), ends)
        admitted += ready
        clock = ends
    tells_first = draw(MOSTLY)
    for row, asked in enumerate(world.asked):
        asked.cached = server.truth[row]["actual"] if usage else NOT_TOLD
        asked.first = asked.first if tells_first else NOT_TOLD
    return world, server.truth
