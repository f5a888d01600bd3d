"""Which law a server is taken to reuse by: that of canaries before all, then what traffic proves, then whole blocks."""

from __future__ import annotations

from clickhouse_connect.driver.client import Client

from analysis.misses.alignments import BY_CANARIES, climb_by_laws, laws
from analysis.misses.reader import read
from analysis.selection import Selection
from cachemodel.alignment import Alignment
from tests.analysis.misses.build import World
from tests.analysis.misses.stored_world import put

ALL = Selection("all", "1", {})
LATER = 100_000
DROPPED, PLAIN = Alignment(16, 1), Alignment(16)


def agents() -> World:
    """Sessions whose every match loses its last block, told by usage and by events."""
    world, words = World(), ("ABCD", "EFGHIJ", "KLMNOPQ")
    for at, word in enumerate(words):
        world.served(word, at * 1000, cached=0)
    for turn in range(6):
        for at, word in enumerate(words):
            held = len(word) * 16
            more = turn % 2 * (1 + 3 * at + turn)  # every other one is held whole
            world.ask(
                word, LATER + turn * 5000 + at * 1000, cached=DROPPED.served(held + more, held), more=more
            )
    return world


def test_what_was_held_proves_a_law_that_hits_alone_do_not(store: Client) -> None:
    put(store, agents())
    reading = read(store, ALL)
    known = laws(reading.chains, {})
    assert known.alignments["a"] == PLAIN
    ladder, proven = climb_by_laws(reading, known)
    assert (proven.alignments["a"], ladder.alignments["a"]) == (DROPPED, DROPPED)
    assert proven.told["a"] == "proven by 18 hits and what was held"


def test_what_a_canary_measured_stands(store: Client) -> None:
    """Whatever the traffic proves: a canary knew what was held, for it had sent it."""
    put(store, agents())
    reading = read(store, ALL)
    known = laws(reading.chains, {"a": PLAIN})
    ladder, same = climb_by_laws(reading, known)
    assert same is known
    assert (ladder.alignments["a"], same.told["a"]) == (PLAIN, BY_CANARIES)


def test_of_several_laws_that_explain_the_hits_whole_blocks_are_taken() -> None:
    """Three hits of 64 tokens look like units of 64 the most; nothing forbids the blocks of 16."""
    world = World()
    for at in range(3):
        world.ask("ABCDEF", at * 1000, cached=64, more=at)
    known = laws(world.chains(), {})
    fitted = known.fits["a"]
    assert fitted is not None
    assert fitted.alignment.unit == 64
    assert known.alignments["a"] == PLAIN
