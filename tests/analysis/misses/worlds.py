"""Random worlds for the ladder: requests, what was stored for them, and what else befell the caches.

Caches mostly do what caches do: a request stores what it did not find, room is made for others, and now and then
something happens that no cache does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from analysis.misses.model import NOT_TOLD, Action
from cachemodel.alignment import Alignment
from tests.analysis.misses.build import BLOCK, World

WORDS = st.sampled_from(["AB", "ABC", "ABCD", "ABCD", "ABCE", "ABX", "AY", "QRS"])
PAUSES = st.sampled_from([1, 3, 10, 15, 40, 90, 2_000, 70_000])
LAWS = st.sampled_from([None, None, Alignment(BLOCK, 1), Alignment(2 * BLOCK), Alignment(BLOCK, 0, 0)])
PIECES = st.lists(st.tuples(st.sampled_from("pqrs"), st.integers(4, 20)), max_size=3)
FLEETS = st.sampled_from([{"a": 1}, {"a": 1}, {"a": 1, "b": 1}, {"a": 2}, {"a": 2, "b": 1, "c": 1}])
KINDS = st.sampled_from(["serve"] * 5 + ["ask", "store", "evict", "evict", "remove", "mark"])
MOSTLY = st.sampled_from([True, True, True, False])
_Holder = tuple[str, int]


@dataclass
class _Scene:
    """What the draws of one world have in common. held: what each cache holds on its device, (word, salt)."""

    draw: st.DrawFn
    world: World
    gaps: bool
    usage: bool
    tiers: bool
    held: dict[_Holder, set[tuple[str, int]]] = field(default_factory=dict)

    def happen(self, now: int) -> None:
        holder = self.draw(st.sampled_from(self.world.holders))
        word, salt, kind = self.draw(WORDS), self.draw(st.sampled_from([0, 0, 0, 1])), self.draw(KINDS)
        held = self.held.setdefault(holder, set())
        server, rank = holder
        tier = self.draw(st.sampled_from([0, 0, 1, 2])) if self.tiers and kind != "serve" else 0
        if kind in ("serve", "ask"):
            found = next((n for n in range(len(word)) if (word[: n + 1], salt) not in held), len(word))
            self.ask(word, now, holder, salt, found)
        if kind in ("serve", "store"):
            begin = found if kind == "serve" and self.draw(MOSTLY) else self.draw(st.integers(0, len(word)))
            at = now + self.draw(st.sampled_from([0, 4, 10, 10]))
            if self.draw(st.booleans()) and kind == "serve":
                self.evict(at, holder, tier)
            self.world.store(word, at, server, begin=begin, rank=rank, salt=salt, tier=tier)
            if tier == 0:
                held |= {(word[: n + 1], salt) for n in range(begin, len(word))}
        if kind == "evict":
            self.evict(now, holder, 0)
        if kind == "remove":
            begin = self.draw(st.integers(0, len(word) - 1))
            self.world.remove(word, now, server, begin=begin, rank=rank, salt=salt, tier=tier)
            held -= {(word[: n + 1], salt) for n in range(begin, len(word)) if tier == 0}
        if kind == "mark":
            marks = [Action.CLEARED, Action.RESTART] + ([Action.GAP] * 2 if self.gaps else [])
            self.world.mark(self.draw(st.sampled_from(marks)), now, server, rank)
            held.clear()

    def evict(self, now: int, holder: _Holder, tier: int) -> None:
        """The deepest blocks of something that is held go, perhaps to the host."""
        held = self.held.setdefault(holder, set())
        if not held:
            return
        word, salt = self.draw(st.sampled_from(sorted(held)))
        begin = self.draw(st.integers(0, len(word) - 1))
        gone = {one for one in held if one[1] == salt and one[0][: begin + 1] == word[: begin + 1]}
        for one in sorted({name for name, _ in gone}, key=len, reverse=True):
            server, rank = holder
            self.world.remove(one, now, server, begin=len(one) - 1, rank=rank, salt=salt)
            if tier or (self.tiers and self.draw(st.sampled_from([False, False, True]))):
                self.world.store(one, now, server, begin=len(one) - 1, rank=rank, salt=salt, tier=1)
        held -= gone

    def ask(self, word: str, now: int, holder: _Holder, salt: int, found: int) -> None:
        draw, more = self.draw, self.draw(st.integers(0, BLOCK - 1))
        prompt = len(word) * BLOCK + more
        usage = [NOT_TOLD, NOT_TOLD, found * BLOCK, found * BLOCK, 0, BLOCK, 2 * BLOCK, prompt]
        self.world.ask(
            word,
            now,
            holder[0],
            rank=holder[1],
            salt=salt,
            more=more,
            began=now + draw(st.sampled_from([0, 0, 1, 5])),
            first=draw(st.sampled_from([None, None, None, now + 6, now + 300, NOT_TOLD])),
            cached=draw(st.sampled_from(usage)) if self.usage else NOT_TOLD,
            split=(draw(st.integers(0, len(word))), draw(st.integers(0, more))),
            pieces=draw(PIECES),
            pieces_from=draw(st.integers(0, prompt)),
            reads_off=self.usage and draw(st.sampled_from([False] * 7 + [True])),
        )


@st.composite
def worlds(draw: st.DrawFn, *, gaps: bool = True, usage: bool = True, tiers: bool = True) -> World:
    """gaps: events may be missing. usage: servers may say what they served. tiers: blocks may be on the host."""
    world = World(dict(draw(FLEETS)))
    for holder in world.holders:
        world.joined[holder] = draw(st.sampled_from([0, 0, 0, 500, None])) if gaps else 0
    for name in world.servers:
        if law := draw(LAWS):
            world.alignments[name] = law
    if draw(st.booleans()):
        world.sent(draw(WORDS), 0, draw(st.sampled_from([*world.servers])), draw(st.sampled_from([0, 1])))
    if gaps and draw(st.sampled_from([False, False, False, True])):
        world.blind[draw(st.sampled_from(world.holders))] = draw(st.sampled_from([50, 130, 3_000]))
    scene, now = _Scene(draw, world, gaps, usage, tiers), 100
    for _ in range(draw(st.integers(2, 12))):
        now += draw(PAUSES)
        scene.happen(now)
    return world
