"""Which template a prompt was made from: the words of its system message and tools, without what varies. Pure.

The set of words decides, not their order: a clock at the top, numbered sessions and shuffled tools are one template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from cachemodel.content import ContentHasher
from collector.chains.prompt import Prompt
from collector.chains.text import content_text

NO_TEMPLATE = 0
_SYSTEM = ("system", "developer")
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_WORD = re.compile(r"[^\W_]+")
_VARIES = re.compile(r".*\d|[0-9a-f]{8,}$")  # has a digit, or may be one long hexadecimal number
_CALENDAR_WORDS = (
    "monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri sat sun january"
    " february march april may june july august september october november december jan feb mar apr jun jul aug sep"
    " sept oct nov dec am pm utc gmt"
)
_CALENDAR = frozenset(_CALENDAR_WORDS.split())


def template(prompt: Prompt, hasher: ContentHasher) -> int:
    """Keyed hash of the template; NO_TEMPLATE where the request has neither system message nor tools."""
    parts = list(_parts(prompt))
    if not parts:
        return NO_TEMPLATE
    words = {word for part in parts for word in _WORD.findall(_UUID.sub(" ", part).lower())}
    lasting = sorted(word for word in words if word not in _CALENDAR and not _VARIES.match(word))
    return hasher.text("template\n" + "\n".join(lasting))


def _parts(prompt: Prompt) -> Iterator[str]:
    for message in prompt.messages or ():
        if message.get("role") not in _SYSTEM:
            break
        yield content_text(message)
    if prompt.tools:
        yield json.dumps(prompt.tools, ensure_ascii=False)
