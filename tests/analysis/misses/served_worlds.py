"""Random worlds that can be: one server whose cache does what caches do, and what was true of each request's tokens.

The server works in steps. What arrived by then is looked up, takes its room (others make it, the one used last the
last), and is computed for some steps; its blocks are cached at once, as vLLM does, or when they are computed, as the
engine here does. The events of a step carry the time of its end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import strategies as st

from analysis.misses.model import NOT_TOLD, Action
from tests.analysis.misses.build import BLOCK, World

WORDS = st.sampled_from(["AB", "ABC", "ABCD", "ABCD", "ABCE", "ABX", "AY", "QRS"])
PAUSES = st.sampled_from([1, 3, 10, 15, 40, 90, 2_000])
MOSTLY = st.sampled_from([True, True, True, False])
CAPACITY = 7
_MARKS = {Action.CLEARED: "clear", Action.RESTART: "restart"}
Block = tuple[str, int]  # the word up to it, and its salt


@dataclass
class _Running:
    """row: of its request. blocks: of its prompt; found: how many of them were served; left: steps."""

    row: int
    blocks: list[Block]
    found: int
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
        removed: list[Block] = []
        if row is not None:
            asked = self.world.asked[row]
            asked.began = began
            blocks = [(asked.word[: n + 1], asked.salt) for n in range(len(asked.word))]
            readable = (len(asked.word) * BLOCK + asked.more - 1) // BLOCK
            found = _leading([block in self.used for block in blocks[:readable]])
            self.truth.append(self._parts(row, blocks, found))
            self.running.append(_Running(row, blocks, found, steps))
            removed = self._make_room(sum(block not in self.used for block in blocks))
            for block in removed:
                self._say(Action.REMOVED, block, ends)
            if self.early:
                self._cache(blocks, ends)
        for one in self.running:
            one.left -= 1
        for one in [one for one in self.running if not one.left]:
            self.running.remove(one)
            self._cache(one.blocks, ends)
            self.world.asked[one.row].first = ends

    def forget(self, action: Action, now: int) -> None:
        """Nothing is cached any more."""
        self.lost |= dict.fromkeys(self.used, _MARKS[action])
        self.used.clear()
        self.world.mark(action, now)

    def _cache(self, blocks: list[Block], now: int) -> None:
        for block in blocks:
            if block not in self.used:
                self._say(Action.STORED, block, now)
        self.used |= dict.fromkeys(blocks, now)

    def _make_room(self, wanted: int) -> list[Block]:
        pinned = {block for one in self.running for block in one.blocks}
        free = sorted((at, -len(block[0]), block) for block, at in self.used.items() if block not in pinned)
        gone = [block for _, _, block in free[: max(0, len(self.used) + wanted - CAPACITY)]]
        for block in gone:
            del self.used[block]
            self.lost[block] = "capacity"
        return gone

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
        if before > anywhere:
            parts[self._cause(blocks[anywhere])] += before - anywhere
        parts["cold"] = len(blocks) - before
        asked = self.world.asked[row]
        tokens = Counter({part: count * BLOCK for part, count in parts.items() if count})
        tokens["cold"] += asked.more
        return tokens

    def _cause(self, block: Block) -> str:
        return self.lost.get(block) or next((self.lost[b] for b in self.lost if b[0] == block[0]), "unknown")


def _leading(flags: list[bool]) -> int:
    return next((n for n, flag in enumerate(flags) if not flag), len(flags))


@st.composite
def served_worlds(draw: st.DrawFn, *, usage: bool) -> tuple[World, list[Counter[str]]]:
    """A world, and tokens by part of each request: causes, `actual`, and `here` for what was there, or was being
    computed, and was computed all the same."""
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
            clock = max(clock, world.asked[admitted].at)
            if draw(st.sampled_from([False] * 7 + [True])):
                server.forget(draw(st.sampled_from([*_MARKS])), clock + 1)
                clock += 2
        ready = admitted < len(world.asked) and world.asked[admitted].at <= clock
        ends = clock + draw(st.integers(1, 12))
        server.step(admitted if ready else None, clock, draw(st.integers(1, 3)), ends)
        admitted += ready
        clock = ends
    tells_first = draw(MOSTLY)
    for row, asked in enumerate(world.asked):
        asked.cached = server.truth[row]["actual"] if usage else NOT_TOLD
        asked.first = asked.first if tells_first else NOT_TOLD
    return world, server.truth
