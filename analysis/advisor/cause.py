"""Why a slot of a prompt breaks the cache, and how safe it is to put that right."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Safety(StrEnum):
    """How safe a rewrite is. CANONICALISE: the prompt means the same. MOVE: the model sees the same elsewhere. DROP: it
    sees less. NONE: nothing to rewrite in the prompt."""

    CANONICALISE = "canonicalise"
    MOVE = "move"
    DROP = "drop"
    NONE = "none"


class Cause(StrEnum):
    """What a volatile slot is, by how it behaves."""

    CLOCK = "clock"
    NONCE = "nonce"
    COUNTER = "counter"
    SESSION_VALUE = "session value"
    USER_VALUE = "user value"
    MEASUREMENT = "measurement"
    VARIANT = "variant"
    MEMORY = "retrieved text"
    UNKNOWN = "unknown volatile slot"
    TOOL_ORDER = "tool order"
    TOOL_SET = "tool set"
    KEY_ORDER = "JSON key order"
    ITEM_ORDER = "item order"
    WHITESPACE = "whitespace"
    UNICODE = "Unicode form"
    SLIDING_WINDOW = "sliding window"
    HISTORY_REWRITTEN = "history rewritten"
    REASONING_STRIPPED = "reasoning stripped"
    INSERTED = "inserted before history"
    ISOLATION = "isolation"
    READS_OFF = "reads switched off"
    EMBEDS = "given as embeddings"


@dataclass(frozen=True, slots=True)
class Remedy:
    """safety: of the remedy. what: what to do, an imperative. why: what makes it safe or not."""

    safety: Safety
    what: str
    why: str


_SAME = "the prompt means the same"
_ELSEWHERE = "the model reads the same words in another place"
REMEDIES: dict[Cause, Remedy] = {
    Cause.CLOCK: Remedy(Safety.MOVE, "put the time behind what stays the same", _ELSEWHERE),
    Cause.NONCE: Remedy(
        Safety.DROP, "leave the id out, or put it at the end", "nothing in the prompt refers to it"
    ),
    Cause.COUNTER: Remedy(Safety.MOVE, "put the counter behind what stays the same", _ELSEWHERE),
    Cause.SESSION_VALUE: Remedy(
        Safety.MOVE, "put what belongs to the session behind what all share", _ELSEWHERE
    ),
    Cause.USER_VALUE: Remedy(Safety.MOVE, "put what belongs to the user behind what all share", _ELSEWHERE),
    Cause.MEASUREMENT: Remedy(Safety.MOVE, "put the reading behind what stays the same", _ELSEWHERE),
    Cause.VARIANT: Remedy(
        Safety.MOVE, "put what the variants share in front of what they do not", _ELSEWHERE
    ),
    Cause.MEMORY: Remedy(Safety.MOVE, "put what was retrieved behind what stays the same", _ELSEWHERE),
    Cause.UNKNOWN: Remedy(Safety.MOVE, "put it behind what stays the same", _ELSEWHERE),
    Cause.TOOL_ORDER: Remedy(Safety.CANONICALISE, "send the tools in one order", _SAME),
    Cause.TOOL_SET: Remedy(
        Safety.MOVE,
        "send all tools from the start, or add new ones at the end",
        "the model sees tools earlier",
    ),
    Cause.KEY_ORDER: Remedy(Safety.CANONICALISE, "write JSON with its keys in one order", _SAME),
    Cause.ITEM_ORDER: Remedy(
        Safety.MOVE, "send the items in one order", "models attend to what stands first and last"
    ),
    Cause.WHITESPACE: Remedy(Safety.CANONICALISE, "write blanks and line ends in one way", _SAME),
    Cause.UNICODE: Remedy(Safety.CANONICALISE, "write text in one Unicode form (NFC)", _SAME),
    Cause.SLIDING_WINDOW: Remedy(
        Safety.MOVE, "drop old turns rarely and many at once", "the model sees some turns longer"
    ),
    Cause.HISTORY_REWRITTEN: Remedy(
        Safety.MOVE, "send earlier turns as they were sent before", "the model sees what it saw then"
    ),
    Cause.REASONING_STRIPPED: Remedy(
        Safety.MOVE,
        "send the reasoning of earlier turns back as it was",
        "the model sees its earlier reasoning",
    ),
    Cause.INSERTED: Remedy(Safety.MOVE, "append new messages, insert none", _ELSEWHERE),
    Cause.ISOLATION: Remedy(Safety.NONE, "share one salt where it is allowed", "not a fault of the prompt"),
    Cause.READS_OFF: Remedy(
        Safety.NONE, "ask without the option where it is not needed", "not a fault of the prompt"
    ),
    Cause.EMBEDS: Remedy(
        Safety.NONE, "send the image or text itself", "servers find no prefix in embeddings"
    ),
}
