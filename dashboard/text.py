"""Texts of others on a page: as they are, neither HTML nor Markdown. Prompts, ids and names of servers are such."""

from __future__ import annotations

import html
import re

from cachemodel.printable import printable

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
# What becomes a link or an icon though its punctuation is escaped: http://..., www...., a@b.c, :name:
_LINKS = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?<=\S)(?=@)|(?<=:)(?=[a-z_+-][\w+-]*:)", re.IGNORECASE)
_WORD_JOINER = "\u2060"  # has no width


def plain(text: str) -> str:
    """For what renders Markdown: every character stands for itself."""
    return _PUNCTUATION.sub(r"\\\1", _LINKS.sub(_WORD_JOINER, printable(one_line(text), lines=False)))


def one_line(text: str) -> str:
    """Line breaks and tabs are spaces, as on the terminal."""
    return re.sub(r"[\t\n\v\f\r\x85\u2028\u2029]+", " ", text)


def in_chart(text: str, longest: int = 60) -> str:
    """For plotly, which reads a few tags in its texts; shortened in the middle."""
    text = printable(one_line(text), lines=False)
    if len(text) > longest:
        text = f"{text[: longest * 2 // 3]}…{text[-(longest // 3) :]}"
    return html.escape(text, quote=False)
