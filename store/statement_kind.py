"""What kind of statement a text is, as far as it decides how to run it: its first words, not a parse."""

from __future__ import annotations

import re

MAX_LEXED = 1 << 20  # longer ones are INSERTs with their values

# What is no statement but may look like one: comments, texts, quoted names, heredocs.
_OPAQUE = re.compile(
    r"--[^\n]*|/\*.*?(?:\*/|$)|#[ !][^\n]*|'(?:[^'\\]|\\.)*+'?|`(?:[^`\\]|\\.)*+`?|\"(?:[^\"\\]|\\.)*+\"?"
    r"|\$(\w*)\$.*?(?:\$\1\$|$)",
    re.DOTALL,
)
_FIRST_WORD = re.compile(r"(?:\s|\(|--[^\n]*\n|/\*(?:(?!\*/).)*\*/)*+(\w+)\b", re.DOTALL)
_INSERT = re.compile(r"\bINSERT\s+(?:INTO|TABLE|FUNCTION)\b", re.IGNORECASE)
_SHOWING = frozenset({"FROM", "SHOW", "DESC", "DESCRIBE", "EXPLAIN", "EXISTS", "CHECK"})


def without_texts(sql: str) -> str:
    """`sql` with blanks in place of comments, texts and quoted names; a very long one as it is."""
    return sql if len(sql) > MAX_LEXED else _OPAQUE.sub(lambda found: " " * len(found[0]), sql)


def selects(sql: str) -> bool:
    """Whether it is a SELECT: the only statement whose result can be streamed."""
    word = _first_word(sql)
    return word == "SELECT" or (word == "WITH" and not _INSERT.search(without_texts(sql)))


def shows(sql: str) -> bool:
    """Whether it is none, but has a result, too, and changes nothing."""
    return _first_word(sql) in _SHOWING


def _first_word(sql: str) -> str:
    found = _FIRST_WORD.match(sql)
    return found[1].upper() if found else ""
