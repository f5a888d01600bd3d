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
_ALONE = re.compile(f"[{_NO_BLANKS}]")
_UPPER, _LOWER = "A-ZÀ-ÖØ-ÞΑ-ΩА-ЯЁ", "a-zß-öø-ÿα-ωа-яё"
_ABBREVIATED = "".join(
    rf"(?<!{before}\.)"
    for before in (
        *(rf"{at}\d{more}" for at in ("^", r"[^\w.:,/-]") for more in ("", r"\d")),  # 29. November
        *(rf"\b[{_UPPER}]{f'[{_LOWER}]' * more}" for more in range(4)),  # Nov. 29, Dr. Ito, M.D.
        r"\.\w",  # e.g.
    )
)
SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？])\s*|\s*\n+\s*")
"""The blanks behind a sentence, or the end of a line: finely, for what is compared sentence by sentence."""
SURE_END = re.compile(rf"(?<=[!?;])\s+|(?<=\.){_ABBREVIATED}\s+(?![{_LOWER}\s])|(?<=[。！？])\s*|\s*\n+\s*")
"""The same where a rule may cut. A full stop ends none behind a number of one or two digits or a
short capitalised word, or before a small letter. What is no abbreviation and is taken for one makes two sentences
one, which are kept together then; the other mistake would tear one apart."""
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufe00-\ufe0f\ufeff]")

SHORT = 512  # characters, up to which texts are remembered: lines and sentences, which prompts have in common


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
    """The words of a text; signs that nobody sees are none."""
    found = [match for match in _WORD.finditer(text) if normal(match[0])]
    return Words(
        text,
        tuple(normal(match[0]) for match in found),
        tuple(match.start() for match in found),
        tuple(match.end() for match in found),
    )


def says(text: str) -> float:
    """Words of letters in a text; of scripts without blanks, three letters are one."""
    return sum(1 / 3 if _ALONE.match(word) else 1 for word in words(text).words if word[:1].isalpha())


def normal(text: str) -> str:
    """In one Unicode form, without what nobody sees."""
    if text.isascii():
        return text
    return _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))


def squeezed(text: str) -> str:
    """In one Unicode form and with single blanks: equal for texts that read alike."""
    return _squeezed(text) if len(text) <= SHORT else _squeezed.__wrapped__(text)


@lru_cache(maxsize=1 << 15)
def _squeezed(text: str) -> str:
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
