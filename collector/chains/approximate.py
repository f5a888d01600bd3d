"""Tokens without a tokenizer: pieces of words and signs. Repetition is seen, counts are rough, and it is told so."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator

from collector.chains.prompt import Prompt
from collector.chains.text import content_text
from collector.chains.tokens import Tokenized

# A word with the blank before it in pieces of six letters, three digits, one sign, a run of blanks.
_PIECE = re.compile(r" ?[^\W\d_]{1,6}|\d{1,3}| ?[^\w\s]|_|\s+")


class Approximation:
    """Counts nobody's tokens: what stands before and between messages is made up as well."""

    told_by = "approximation"
    exact = False
    name = "an approximation"

    def tokens(self, prompt: Prompt, *, with_text: bool = False) -> Tokenized:
        text = prompt.text if prompt.messages is None else "".join(_rendered(prompt))
        pieces = list(_PIECE.finditer(text or ""))
        ids = [zlib.crc32(piece[0].encode(errors="surrogatepass")) for piece in pieces]
        return Tokenized(ids, text or "", [piece.end() for piece in pieces]) if with_text else Tokenized(ids)


def _rendered(prompt: Prompt) -> Iterator[str]:
    for tool in prompt.tools or ():
        yield f"\n{json.dumps(tool, ensure_ascii=False)}"
    for message in prompt.messages or ():
        yield f"\n{message.get('role', '')}\n{content_text(message)}"
    yield "\nassistant\n"
