"""Content-defined pieces: they cover the prompt, keep their sizes, and are cut alike wherever a passage stands."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from collector.chains.pieces import LONGEST, SHORTEST, ends

tokens = st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 3), max_size=300)


@given(tokens)
def test_they_cover_the_prompt_in_believable_sizes(sent: list[int]) -> None:
    cuts = [0, *ends(sent)]
    sizes = [end - begin for begin, end in itertools.pairwise(cuts)]
    assert cuts[-1] == len(sent)
    assert all(SHORTEST <= size <= LONGEST for size in sizes[:-1])
    assert all(0 < size <= LONGEST for size in sizes[-1:])


@given(tokens, st.data())
def test_a_beginning_is_cut_as_the_whole(sent: list[int], data: st.DataObject) -> None:
    """So that pieces can begin anywhere: where the text before is the same, the cuts are."""
    length = data.draw(st.integers(0, len(sent)))
    begun = ends(sent[:length])
    assert begun[:-1] == [end for end in ends(sent) if end in begun[:-1]]


def test_what_is_never_cut_by_its_content_is_cut_at_the_longest() -> None:
    """The same token again and again: it cuts everywhere or nowhere."""
    for token in range(50):
        sizes = {len(piece) for piece in cut([token] * 4 * LONGEST)}
        assert sizes in ({SHORTEST}, {LONGEST})
    assert {len(piece) for piece in cut([0] * 4 * LONGEST)} == {LONGEST}


def passage(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(8000) for _ in range(length)]


def test_a_passage_that_moved_is_recognised() -> None:
    rng = random.Random(7)
    moved, found, sizes = 0, 0, []
    for _ in range(200):
        text = passage(rng, 200)
        before, after = passage(rng, rng.randrange(60)) + text, passage(rng, rng.randrange(60)) + text
        kept = {tuple(piece) for piece in cut(before)}
        pieces = cut(after)
        sizes += [len(piece) for piece in pieces]
        moved += len(text)
        found += sum(len(piece) for piece in pieces if tuple(piece) in kept)
    assert found / moved > 0.9
    assert 6 < sum(sizes) / len(sizes) < 10


def cut(sent: list[int]) -> list[list[int]]:
    cuts = [0, *ends(sent)]
    return [sent[begin:end] for begin, end in itertools.pairwise(cuts)]
