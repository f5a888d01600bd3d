"""Tokens that are nobody's: of lines together as of the text as a whole."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from collector.chains.approximate import _PIECE, Approximation
from tests.collector.chains.support import prompt


@given(
    st.lists(
        st.sampled_from(["word", " ", "\n", "\n\n", "/", "1234", "_", "\t", ".", "é", "\ud800"]) | st.text(),
        max_size=12,
    )
)
def test_lines_come_to_the_same_as_the_text(parts: list[str]) -> None:
    text = "".join(parts)
    pieces = list(_PIECE.finditer(text))
    ids = [zlib.crc32(piece[0].encode(errors="surrogatepass")) for piece in pieces]
    ours = Approximation()
    told = ours.tokens(prompt(text=text), with_text=True)
    assert list(told.ids) == list(ours.tokens(prompt(text=text)).ids) == ids
    assert list(told.ends) == [piece.end() for piece in pieces]
