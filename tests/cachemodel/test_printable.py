"""What is shown of others' names and texts: nothing that steers a terminal, and blanks that read as blanks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cachemodel.printable import printable


@given(st.text())
def test_nothing_that_is_shown_steers(text: str) -> None:
    shown = printable(text, lines=False)
    assert shown.isprintable()
    assert len(shown) == len(text)
    assert printable(text).replace("\n", "").isprintable()
    assert printable(text).count("\n") == text.count("\n")


def test_line_breaks_and_tabs_are_no_broken_characters() -> None:
    assert printable("a\n\tb\x1b", lines=False) == "a↵ b\N{REPLACEMENT CHARACTER}"
    assert printable("a\n\tb\x1b") == "a\n b\N{REPLACEMENT CHARACTER}"
