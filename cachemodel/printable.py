"""What servers and senders call things, made safe to show."""

from __future__ import annotations


def printable(text: str, *, lines: bool = True) -> str:
    """Without characters that would steer a terminal: escape sequences, bells, reversed writing.

    lines: whether line breaks stay; in a cell of a table they would end its row.
    """
    kept = "\n" if lines else ""
    return "".join(c if c.isprintable() or c in kept else "\N{REPLACEMENT CHARACTER}" for c in text)
