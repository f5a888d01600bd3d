"""What a tokenizer is to those who make chains of prompts."""

from __future__ import annotations

import re
from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import Generic, Protocol, TypeVar

from collector.chains.prompt import Prompt

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


CACHE_BYTES = 32 << 20  # of tokens that are remembered with what they are of

_LINES = re.compile(r"(?:[^\n]++|(?<!\S)\n|\n(?![^\s/]))*+\n?")


class Untokenizable(Exception):
    """This prompt has no tokens that could be told; the text is one of a few fixed phrases."""


class Unanswered(Exception):
    """The server that was asked for tokens cannot say now; the text says why. refused: it was there, and would not."""

    def __init__(self, message: str, *, refused: bool) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class Tokenized:
    """A prompt's tokens. text: the prompt as rendered, ends: of that text, one past the last character of each token;
    both empty where nobody asked or nothing tells."""

    ids: Sequence[int]
    text: str = ""
    ends: Sequence[int] = ()


class Tokenizer(Protocol):
    """told_by: as in `request_chains`. exact: whether counts can be held against the server's. name: for people."""

    told_by: str
    exact: bool
    name: str

    def tokens(self, prompt: Prompt, *, with_text: bool = False) -> Tokenized:
        """The tokens of a prompt that has a text or messages. Raises Untokenizable, or Unanswered where asking again
        may help."""
        ...


def lines(text: str) -> list[str]:
    """The text cut behind those ends of lines that stand between two signs, of which the second is no slash.

    Pieces of words, by whatever rule, reach across none of these; they do across blanks, and o200k's across a slash.
    """
    return _LINES.findall(text)[:-1]  # the last one is the empty match at the end


class Lru(Generic[K, V]):
    """The most recently used of what was made, up to a sum of weights. weigh: of an entry, such as its bytes."""

    def __init__(self, most: int, weigh: Callable[[K, V], int]) -> None:
        self._most, self._weigh, self._held = most, weigh, 0
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """What is under the key, made now where nothing is."""
        if key in self._entries:
            self._entries.move_to_end(key)
            return self._entries[key]
        value = make()
        self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Hold this under a key that holds nothing yet."""
        if (weight := self._weigh(key, value)) > self._most or key in self._entries:
            return
        self._entries[key] = value
        self._held += weight
        while self._held > self._most:
            self._held -= self._weigh(*self._entries.popitem(last=False))

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)


class Pieces:
    """Tokens of pieces of text: each is made once, as long as it is remembered."""

    def __init__(self, encode: Callable[[str], array[int]]) -> None:
        self._encode = encode
        self._known: Lru[str, array[int]] = Lru(
            CACHE_BYTES, lambda text, ids: 200 + getsizeof(text) + getsizeof(ids)
        )

    def joined(self, texts: Iterable[str]) -> array[int]:
        """Of some pieces, one after the other."""
        ids = array("I")
        for text in texts:
            ids += self._known.get(text, lambda text=text: self._encode(text))  # type: ignore[misc]
        return ids

    def put(self, text: str, ids: array[int]) -> None:
        """Hold these as the tokens of a piece that nothing is held of yet."""
        self._known.put(text, ids)
