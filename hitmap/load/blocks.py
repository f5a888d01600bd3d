"""Prompts for traces that tell lengths and block ids but no text: equal ids, equal content; different ids, different.

A block's content is its id, spelled in the alphabet at hand, then filler drawn from a generator that the id seeds. So
blocks that differ, differ near their begin, and a server whose blocks are smaller shares what the trace shared.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from random import Random
from typing import Generic, NamedTuple, Protocol, TypeVar

from cachemodel.errors import UsageError
from hitmap.load import english

SHORTEST_BLOCK = 4  # of fewer tokens the ids of a long trace cannot be spelled
TOKENS_A_WORD = 1.3  # where nobody can be asked
T = TypeVar("T")
_CACHED_BLOCKS, _LONGEST_CACHED = 4096, 1024


class Part(NamedTuple):
    """The first `tokens` tokens of block `number` of a trace's `scope`."""

    scope: str
    number: int
    tokens: int


class Prompts(Protocol):
    """How blocks become what goes into a completion request's `prompt`."""

    def prompt(self, parts: Iterable[Part]) -> list[int] | str:
        """The parts one after the other."""


class TokenPrompts:
    """Prompts as token ids: lengths are exact. vocabulary: ids to draw from, ordinary tokens of the server's model."""

    def __init__(self, vocabulary: Sequence[int], seed: int = 0) -> None:
        self._spelling = _Spelling(vocabulary, seed)

    def prompt(self, parts: Iterable[Part]) -> list[int]:
        """Token ids, as many as the parts say."""
        ids: list[int] = []
        for part in parts:
            ids += self._spelling.spell(part)
        return ids


class TextPrompts:
    """Prompts as English words, for a server that cannot be asked for its tokens: lengths are about right."""

    def __init__(self, seed: int = 0) -> None:
        self._spelling = _Spelling(WORDS, seed)

    def prompt(self, parts: Iterable[Part]) -> str:
        """Words, TOKENS_A_WORD tokens each."""
        words: list[str] = []
        for part in parts:
            count = max(1, round(part.tokens / TOKENS_A_WORD))
            words += self._spelling.spell(part._replace(tokens=count))
        return " ".join(words)


class _Spelling(Generic[T]):
    """Blocks in an alphabet of at most 65,536 letters."""

    def __init__(self, alphabet: Sequence[T], seed: int) -> None:
        self._alphabet, self._seed = alphabet, seed
        self._block = lru_cache(_CACHED_BLOCKS)(self._spelled)

    def spell(self, part: Part) -> tuple[T, ...]:
        length = 1 << max(4, (part.tokens - 1).bit_length())
        spelled = self._block if length <= _LONGEST_CACHED else self._spelled
        return spelled(part.scope, part.number, length)[: part.tokens]

    def _spelled(self, scope: str, number: int, length: int) -> tuple[T, ...]:
        """At least `length` letters; a longer length gives the same begin."""
        random = Random(f"{self._seed}/{scope}/{number}")  # noqa: S311 - it is to be repeatable
        size = len(self._alphabet)
        letters: list[int] = []
        while number or not letters:
            number, letter = divmod(number, size)
            letters.append(letter)
        letters += [drawn % size for drawn in array("H", random.randbytes(2 * length))]
        return tuple([self._alphabet[letter] for letter in letters])


def _words() -> Iterator[str]:
    texts = (*english.SYSTEMS, *english.QUESTIONS, *english.SUBJECTS, *english.DEEDS, *english.RAG_QUESTIONS)
    for word in " ".join((*texts, english.RAG_SYSTEM, english.AGENT_SYSTEM)).split():
        if (plain := word.strip(".,:;?!{}-").lower()).isalpha():
            yield plain


WORDS = tuple(sorted(set(_words())))


def scaled(block_size: int, scale: float) -> int:
    """Tokens of a block when lengths are multiplied by `scale`. Raises UsageError where ids could not be told apart."""
    size = round(block_size * scale)
    if size < SHORTEST_BLOCK:
        least = SHORTEST_BLOCK / block_size
        raise UsageError(
            f"--scale-tokens {scale:g} leaves too little of a block: {least:g} is the least here"
        )
    return size


def split(scope: str, ids: Sequence[int], block_size: int, size: int, tokens: int, number: int) -> list[Part]:
    """The parts of a prompt of `tokens` tokens whose blocks of `block_size` have these ids, scaled to `size`.

    Lengths are rounded down, so that a block is full where it was. Tokens beyond the last id's block are the request's
    own; `number` tells it from the others of its scope.
    """
    tokens = max(1, tokens * size // block_size)
    parts = [Part(scope, block, size) for block in itertools.islice(ids, tokens // size)]
    rest = tokens - size * len(parts)
    if rest and len(parts) < len(ids):
        parts.append(Part(scope, ids[len(parts)], rest))
    elif rest:
        parts.append(Part(f"{scope}/own", number, rest))
    return parts
