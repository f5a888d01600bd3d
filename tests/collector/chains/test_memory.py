"""Where a prompt parts from those before it, against comparing it with each of them."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from collector.chains.memory import ChainMemory, Split
from tests.collector.support import HASHER

BLOCK = 4
prompts = st.lists(st.lists(st.integers(0, 2), max_size=14), max_size=12)


def take(memory: ChainMemory, tokens: list[int], block_size: int = BLOCK) -> Split:
    return memory.take(list(HASHER.chain(tokens, block_size)), tokens, block_size)


def common(one: list[int], other: list[int]) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


@given(prompts)
def test_it_is_exact_to_the_token(sent: list[list[int]]) -> None:
    memory = ChainMemory()
    for number, tokens in enumerate(sent):
        split = take(memory, tokens)
        shared = max((common(tokens, before) for before in sent[:number]), default=0)
        assert split == divmod(shared, BLOCK)


@given(prompts, st.integers(1, 6))
def test_a_small_memory_says_less_and_never_more(sent: list[list[int]], room: int) -> None:
    memory = ChainMemory(room)
    for number, tokens in enumerate(sent):
        split = take(memory, tokens)
        shared = max((common(tokens, before) for before in sent[:number]), default=0)
        assert split.depth * BLOCK + split.tokens <= shared
        assert split.tokens < BLOCK


def test_what_is_used_stays() -> None:
    memory, rng = ChainMemory(200), random.Random(1)
    system = [rng.randrange(1000) for _ in range(40)]
    take(memory, system)
    for _ in range(500):
        assert take(memory, system + [rng.randrange(1000) for _ in range(20)]).depth >= 10
        take(memory, [rng.randrange(1000) for _ in range(20)])


def test_the_deep_blocks_are_forgotten_first() -> None:
    memory = ChainMemory(4)
    prompt = list(range(16))
    take(memory, prompt)
    take(memory, [99] * 4)  # room for one
    assert take(memory, prompt) == Split(3, 0)


def test_chains_of_other_block_sizes_are_others() -> None:
    memory = ChainMemory()
    take(memory, [1] * 8, 4)
    assert take(memory, [1] * 8, 8) == Split(0, 0)
    assert take(memory, [1] * 8, 4) == Split(2, 0)
