"""Texts in one form of blanks, line ends and Unicode. Pure.

As `rules`, written into users' gateways: Python 3.9 and its standard library.
"""

from __future__ import annotations

import re
import unicodedata

_UNSEEN = re.compile(
    "[\u00ad\u200b\u2060\ufeff]"
)  # where a line may be broken, or not; joiners make other letters


def one_form(text: str) -> str:
    """In Unicode's composed form, without signs that are neither seen nor join anything, with line ends of one
    character and none at the end of the text, none of the blanks that nobody sees at a line's end, and single blanks
    between words. Tables, code and what is quoted as code keep theirs, as does indentation."""
    text = unicodedata.normalize("NFC", _UNSEEN.sub("", text.replace("\r\n", "\n"))).rstrip("\n")
    fenced, lines = False, []
    for line in text.split("\n"):
        fenced = fenced != line.lstrip().startswith("```")
        lines.append(line if fenced or _keeps_blanks(line) else _single_blanks(line))
    return "\n".join(lines)


def _keeps_blanks(line: str) -> bool:
    return "\t" in line.strip() or "`" in line or "|" in line or line.startswith(("    ", "\t"))


def _single_blanks(line: str) -> str:
    return re.sub(r"(?<=\S)[ \u00a0]{2,}(?=\S)", " ", line.rstrip(" \t"))
