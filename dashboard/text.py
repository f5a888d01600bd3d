"""Texts of others on a page: as they are, neither HTML nor Markdown. Prompts, ids and names of servers are such."""

from __future__ import annotations

import html
import re

from cachemodel.printable import printable

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
# What becomes a link or an icon though its punctuation is escaped: http://..., www...., a@b.c, :name:
_LINKS = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?<=\S)(?=@)|(?<=:)(?=[a-z_+-][\w+-]*:)", re.IGNORECASE)
_WORD_JOINER = "\u2060"  # has no width
_LINE = 24  # characters beside a bar


def plain(text: str) -> str:
    """For what renders Markdown: every character stands for itself."""
    return _PUNCTUATION.sub(r"\\\1", _LINKS.sub(_WORD_JOINER, printable(one_line(text), lines=False)))


def one_line(text: str) -> str:
    """Line breaks and tabs are spaces, as on the terminal."""
    return re.sub(r"[\t\n\v\f\r\x85\u2028\u2029]+", " ", text)


def in_browser(sentence: str) -> str:
    """A sentence of analysis that says what to write on a terminal, as it is done here."""
    what, say, servers = sentence.rpartition(": say --server ")
    if say:
        sentence = f"{what}: {servers}; choose it under Server, tick it in a table, or add request_server= to the link"
    return re.sub(r"--by (?=\w)", "by=", sentence)


def in_chart(text: str, longest: int = 60) -> str:
    """For plotly, which reads a few tags in its texts; shortened in the middle."""
    return html.escape(_shortened(text, longest), quote=False)


def beside_bar(text: str, longest: int = 40) -> str:
    """The same on at most two lines: what stands beside bars takes its room from them."""
    text = _shortened(text, longest)
    if len(text) > _LINE:
        at = max(text.rfind(seam, _LINE // 2, _LINE) for seam in " -_./:,") + 1 or _LINE
        text = f"{text[:at]}\n{text[at:]}"
    return html.escape(text, quote=False).replace("\n", "<br>")


def _shortened(text: str, longest: int) -> str:
    text = printable(one_line(text), lines=False)
    return text if len(text) <= longest else f"{text[: longest * 2 // 3]}…{text[-(longest // 3) :]}"
