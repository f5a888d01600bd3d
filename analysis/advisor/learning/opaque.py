"""Values that say nothing to a model: ids of random letters and digits. A name, a reading or an address is as unique as
they are, and the model may need it; so what has words, or numbers of a length that people read, is none of these.

There is no list of forms. What tells an id is that letters and digits take turns in it as they do in no word, and at
other places in each, unlike those of `1h02m33s`; or that its letters are no language's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from analysis.advisor.rewriting.words import normal

LOOKED_AT = 400  # characters of a value
SHORTEST = 8  # letters and digits: people read, spell and are asked for codes that are shorter
DIGITS = 17  # of a number that nobody reads: telephone numbers have up to 15 (ITU-T E.164), payment cards mostly 16
TURNS = 2  # of letters and digits, in a piece: `src29`, `X5` and `450d` have one
MEAN_TURNS = 2.5  # in all of them: `ada1988k` has 2, eight random hexadecimal digits have 3.3
ENOUGH = 6  # pieces, to tell by so few turns; of fewer each has twice as many
LETTERS = 0.15  # of a piece of both: a time of ISO 8601 has 0.12, random hexadecimal digits have 0.37
VOWELS = 0.28  # of letters: languages written in Latin letters have a third and more, all 26 drawn alike 0.23
LETTERS_ENOUGH = 200  # to tell by their vowels; of fewer, as in a name or two, next to none are vowels
NEXT_TO_NONE = 0.05
WORDS = 0.5  # of the letters, in runs that could be words
MOST = 0.8  # of a value; and of the values, to have what is no part of any
SAME = 0.08  # of the pieces have the same letters, or have them at the same places, beside the one that may
OWN = 0.9  # of words of letters alone are no other value's
_RUN = re.compile(r"[A-Za-z0-9]+")
_LETTERS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_LETTER, _DIGIT = re.compile(r"[A-Za-z]"), re.compile(r"\d")
_VOWEL = re.compile(r"[aeiouy]", re.IGNORECASE)
_CONSONANTS = re.compile(r"[bcdfghjklmnpqrstvwxz]{4}", re.IGNORECASE)


def opaque(values: Sequence[str]) -> float:
    """The share of the values that say nothing, but for what nearly all of them have, such as the name of an id."""
    told = _own([normal(value[:LOOKED_AT]) for value in values])
    drawn = {piece for pieces in told for piece in pieces if _is_drawn(piece)}
    nothing = {p for pieces in told for p in pieces if _is_long_number(p)} | _of_drawn_letters(told)
    nothing |= drawn if _differ(drawn) and _words(drawn) < WORDS else set()
    return sum(_is_made_of(nothing, pieces) for pieces in told) / len(values)


def _own(values: Sequence[str]) -> list[list[str]]:
    """What stands between the blanks of each value, without the words and numbers that most values have."""
    often = Counter(run for value in values for run in set(_RUN.findall(value)))
    usual = {run for run, count in often.items() if len(values) > 1 and count >= MOST * len(values)}
    return [
        [_RUN.sub(lambda run: "" if run[0] in usual else run[0], piece) for piece in value.split()]
        for value in values
    ]


def _is_made_of(nothing: set[str], pieces: Sequence[str]) -> bool:
    sizes = [(piece in nothing, sum(map(str.isalnum, piece))) for piece in pieces]
    found = sum(size for own, size in sizes if own)
    return found > 0 and found >= MOST * sum(size for _, size in sizes)


def _is_drawn(piece: str) -> bool:
    """Whether letters and digits take turns in it."""
    size, letters = sum(map(len, _RUN.findall(piece))), len(_LETTER.findall(piece))
    return piece.isascii() and size >= SHORTEST and _turns(piece) >= TURNS and letters >= LETTERS * size


def _turns(piece: str) -> int:
    return sum(a.isdigit() != b.isdigit() for run in _RUN.findall(piece) for a, b in pairwise(run))


def _differ(pieces: set[str]) -> bool:
    """Whether letters and digits take turns often, and where and which ones differs from piece to piece."""
    n = len(pieces)
    often = MEAN_TURNS if n >= ENOUGH else 2 * MEAN_TURNS
    if n == 0 or sum(map(_turns, pieces)) < often * n:
        return False
    shapes = Counter(_LETTER.sub("a", _DIGIT.sub("9", piece)) for piece in pieces)
    letters = Counter("".join(_LETTER.findall(piece)) for piece in pieces)
    return max(*shapes.values(), *letters.values()) <= 1 + SAME * n


def _is_long_number(piece: str) -> bool:
    return not _LETTER.search(piece) and any(len(run) >= DIGITS for run in _RUN.findall(piece))


def _of_drawn_letters(told: Sequence[Sequence[str]]) -> set[str]:
    """Pieces of letters alone, if these were drawn: few vowels in all of them together, and no two the same."""
    found = [
        piece
        for pieces in told
        for piece in pieces
        if piece.isascii() and not _DIGIT.search(piece) and len(_LETTER.findall(piece)) >= SHORTEST
    ]
    own = set(found)
    letters = "".join(own)
    most = VOWELS if len(letters) >= LETTERS_ENOUGH else NEXT_TO_NONE
    return own if len(own) >= OWN * len(found) and _vowels(letters) < most else set()


def _words(pieces: set[str]) -> float:
    """The share of letters in runs that could be words."""
    runs = [run for piece in pieces for run in _LETTERS.findall(piece)]
    words = sum(len(run) for run in runs if _could_be_a_word(run))
    return words / max(1, sum(map(len, runs)))


def _could_be_a_word(letters: str) -> bool:
    return len(letters) >= 4 and _vowels(letters) >= VOWELS / 2 and not _CONSONANTS.search(letters)


def _vowels(text: str) -> float:
    return len(_VOWEL.findall(text)) / max(1, len(_LETTER.findall(text)))
