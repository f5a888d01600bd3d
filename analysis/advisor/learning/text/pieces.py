"""Text in pieces by which it is known again, though a value in it is another one: its sentences and lines, the clauses
of long ones, and phrases where nothing else divides them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from zlib import crc32

from analysis.advisor.rewriting.words import sentences, words

LONG = 160  # bytes of a sentence or clause, which is cut: as much of a template would be unknown for one value in it
LONG_PHRASE = 48  # bytes of a phrase of a long clause, on average
SHORT = 400  # bytes of a text of few sentences, which is looked at by phrases: a value is in most sentences
PHRASE = 18  # bytes of these
_CLAUSE_END = re.compile(
    r"(?<=[,:;])(?:\s+|(?=[^\x00-\x7f]))"  # without a blank where the script has none
    r'|\s*[、،؛"“”«»{}\[\]<>|][\s,:/"{}\[\]<>|]*'
)
_WORD_BYTES = 6


@lru_cache(maxsize=4096)
def pieces(text: str) -> tuple[str, ...]:
    """Sentences and lines of a text, squeezed, in order; of long ones the clauses, of long clauses the phrases. JSON
    and XML of one line are long sentences: their strings and elements are clauses."""
    return tuple(piece for sentence in sentences(text) for piece in _of_sentence(sentence))


def _of_sentence(sentence: str) -> Iterator[str]:
    if not is_long(sentence):
        yield sentence
        return
    for clause in filter(None, _CLAUSE_END.split(sentence)):
        if is_long(clause):
            yield from phrases(clause, LONG_PHRASE)
        else:
            yield clause


def is_long(text: str) -> bool:
    """Whether a text is more than LONG bytes: a letter of a script without blanks says as much as several of others."""
    return len(text) * 3 > LONG and size(text) > LONG


def size(text: str) -> int:
    """Bytes of a text."""
    return len(text.encode(errors="replace"))


def phrases(text: str, of: int = PHRASE) -> list[str]:
    """A text cut behind words that are chosen by what they say and not by where they stand, so that a value in it
    changes the phrase that it is in and no other. Numbers are left out. of: bytes of a phrase, on average."""
    told, since = list[str](), list[str]()
    for word in words(text).words:
        if not word[0].isalpha():
            continue
        since.append(word)
        if _ends(word, of):
            told.append(" ".join(since))
            since = []
    return [*told, " ".join(since)] if since else told


@lru_cache(maxsize=65536)
def _ends(word: str, of: int) -> bool:
    """Whether a phrase ends behind a word: behind one in as many as make so many bytes."""
    one_in = max(2, of // (3 if len(word) == 1 and not word.isascii() else _WORD_BYTES))
    return crc32(word.encode(errors="replace")) % one_in == 0
