"""What servers and senders call things, made safe to show."""

from __future__ import annotations

_TEXT = {"\n": "\n", "\t": " "}
_CELL = {"\n": "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}", "\t": " "}


def printable(text: str, *, lines: bool = True) -> str:
    """Without characters that would steer a terminal: escape sequences, bells, reversed writing. A tab is a blank.

    lines: whether line breaks stay; in a cell of a table they would end its row, and are shown as an arrow.
    """
    shown = _TEXT if lines else _CELL
    return "".join(c if c.isprintable() else shown.get(c, "\N{REPLACEMENT CHARACTER}") for c in text)
