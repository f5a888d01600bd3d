"""Tokens without a tokenizer: pieces of words and signs. Repetition is seen, counts are rough, and it is told so."""

from __future__ import annotations

import json
import re
import zlib
from array import array
from collections.abc import Iterator

from collector.chains.prompt import Prompt
from collector.chains.text import content_text
from collector.chains.tokens import Pieces, Tokenized, lines

# A word with the blank before it in pieces of six letters, three digits, one sign, a run of blanks.
_PIECE = re.compile(r" ?[^\W\d_]{1,6}|\d{1,3}| ?[^\w\s]|_|\s+")


class Approximation:
    """Counts nobody's tokens: what stands before and between messages is made up as well."""

    told_by = "approximation"
    exact = False
    name = "an approximation"

    def __init__(self) -> None:
        self._lines = Pieces(_ids)

    def tokens(self, prompt: Prompt, *, with_text: bool = False) -> Tokenized:
        text = (prompt.text if prompt.messages is None else "".join(_rendered(prompt))) or ""
        ids = self._lines.joined(lines(text))  # prompts have most of them in common
        if not with_text:
            return Tokenized(ids)
        return Tokenized(ids, text, [piece.end() for piece in _PIECE.finditer(text)])


def _ids(line: str) -> array[int]:
    return array("I", [zlib.crc32(piece.encode(errors="surrogatepass")) for piece in _PIECE.findall(line)])


def _rendered(prompt: Prompt) -> Iterator[str]:
    for tool in prompt.tools or ():
        yield f"\n{json.dumps(tool, ensure_ascii=False)}"
    for message in prompt.messages or ():
        yield f"\n{message.get('role', '')}\n{content_text(message)}"
    yield "\nassistant\n"
