"""What servers and senders call things, made safe to show."""

from __future__ import annotations


def printable(text: str) -> str:
    """Without characters that would steer a terminal: escape sequences, bells, reversed writing. Lines stay."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
