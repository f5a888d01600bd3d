"""Text as words that can be compared, as they read once their Unicode form is set aside."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

# Letters of scripts that are written without blanks stand alone, so that one that differs is not a whole sentence.
_NO_BLANKS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_MARKS = "\u0300-\u036f"  # accents written behind their letter
_WORD = re.compile(rf"[{_NO_BLANKS}]\u3099?\u309a?|(?:[^\W\d_{_NO_BLANKS}]|[{_MARKS}])+|\d+|[^\w\s]|_")
SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？])\s*|\s*\n+\s*")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufe00-\ufe0f\ufeff]")


@dataclass(frozen=True, slots=True)
class Words:
    """text: as sent. words: n words in normal form; starts, ends: where each stands in the text, in characters."""

    text: str
    words: tuple[str, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.words)

    def between(self, first: int, last: int) -> str:
        """The text of words first to last - 1, without the blanks around it."""
        return self.text[self.starts[first] : self.ends[last - 1]] if first < last else ""


@lru_cache(maxsize=4096)
def words(text: str) -> Words:
    """The words of a text."""
    found = list(_WORD.finditer(text))
    return Words(
        text,
        tuple(normal(match[0]) for match in found),
        tuple(match.start() for match in found),
        tuple(match.end() for match in found),
    )


def normal(text: str) -> str:
    """In one Unicode form, without what nobody sees."""
    if text.isascii():
        return text
    return _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))


def squeezed(text: str) -> str:
    """In one Unicode form and with single blanks: equal for texts that read alike."""
    return " ".join(normal(text).split())


@lru_cache(maxsize=4096)
def sentences(text: str) -> tuple[str, ...]:
    """Its sentences and lines, squeezed, in order."""
    return tuple(one for part in SENTENCE_END.split(text) if (one := squeezed(part)))


def shares_of(first: Sequence[str], second: Sequence[str]) -> float:
    """How much of the smaller of two sets of sentences is in the other one, by characters: 0 to 1."""
    a, b = set(first), set(second)
    smaller = min(sum(map(len, a)), sum(map(len, b)))
    return sum(map(len, a & b)) / smaller if smaller else 0.0
