"""What a person can set of a server's chains."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SERVER, APPROXIMATE, OFF = "server", "approximate", "off"
WORDS = (SERVER, APPROXIMATE, OFF)
"""What --tokenizer can be beside a path."""


class Capture(StrEnum):
    """What may be stored of a prompt; the rest is dropped before anything is put into a sink."""

    HASHES = "hashes"
    REDACTED = "redacted"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class ChainSettings:
    """tokenizer: one of WORDS, or a path; empty for the server, if it will. tokens_a_block: None for what the server
    says."""

    tokenizer: str = ""
    tokens_a_block: int | None = None
    capture: Capture = Capture.HASHES


DEFAULT_CHAINS = ChainSettings()
