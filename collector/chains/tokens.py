"""What a tokenizer is to those who make chains of prompts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from collector.chains.prompt import Prompt

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


CACHE_BYTES = 32 << 20  # of tokens that are remembered with what they are of


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
