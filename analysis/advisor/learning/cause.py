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
    NONCE_IN_USE = "nonce in use"
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
    SHARED_BEHIND = "shared text behind what varies"
    IMAGE_FIRST = "image before shared text"
    TEMPLATE = "template rewrites history"
    HOISTED = "system message hoisted"
    RETOKENISED = "reply retokenised"
    ISOLATION = "isolation"
    READS_OFF = "reads switched off"
    EMBEDS = "given as embeddings"
    NOT_TEXT = "images, audio or files not served"
    MARKERS = "rolling cache markers"
    UNMARKED = "no cache breakpoints"
    SLOTS = "too few slots"
    BOUNDARY = "just short of a boundary"


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
        Safety.DROP, "leave the id out, or put it at the end", "nothing else in its message refers to it"
    ),
    Cause.NONCE_IN_USE: Remedy(
        Safety.MOVE,
        "put the id behind what stays the same",
        "what it is called stands elsewhere in the prompt too, which may refer to it; it reads the same at the end",
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
    Cause.SHARED_BEHIND: Remedy(
        Safety.MOVE, "put what all requests share in front of what they do not", _ELSEWHERE
    ),
    Cause.IMAGE_FIRST: Remedy(
        Safety.MOVE, "put the image behind the text that all requests share", _ELSEWHERE
    ),
    Cause.TEMPLATE: Remedy(
        Safety.NONE,
        "have the template keep earlier turns as they were (an option of the template, or another one)",
        "the chat template of the server writes them anew; the request is as it was",
    ),
    Cause.HOISTED: Remedy(
        Safety.MOVE,
        "send what comes in mid-conversation as a user's message",
        "the template puts every system message at the top; as a user's it weighs less",
    ),
    Cause.RETOKENISED: Remedy(
        Safety.NONE,
        "send the reply's token ids on instead of its text (a prompt of token ids)",
        "the text is the same; only its own tokens are found again",
    ),
    Cause.ISOLATION: Remedy(Safety.NONE, "share one salt where it is allowed", "not a fault of the prompt"),
    Cause.READS_OFF: Remedy(
        Safety.NONE, "ask without the option where it is not needed", "not a fault of the prompt"
    ),
    Cause.EMBEDS: Remedy(
        Safety.NONE, "send the image or text itself", "servers find no prefix in embeddings"
    ),
    Cause.NOT_TEXT: Remedy(
        Safety.NONE, "ask whether this server caches such prompts", "text prompts of the log are served"
    ),
    Cause.MARKERS: Remedy(
        Safety.NONE,
        "leave markers where they were, and add new ones",
        "this server renders them into the prompt",
    ),
    Cause.UNMARKED: Remedy(
        Safety.NONE,
        "set cache_control on the last block of the system prompt, and on the last message",
        "this cache keeps only what somebody asks it to keep",
    ),
    Cause.SLOTS: Remedy(
        Safety.NONE, "give the server more slots", "prompts that take turns push each other out"
    ),
    Cause.BOUNDARY: Remedy(
        Safety.NONE,
        "make the shared beginning a little longer",
        "a cache keeps whole units, and none below its minimum",
    ),
}
