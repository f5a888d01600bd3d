"""Messages that vary as a whole, and by what one of them is known again."""

from __future__ import annotations

import re
from collections.abc import Sequence

from analysis.advisor.learning.text.pattern import _shape, label

LETTERS = 4  # of a word by which a message is called something
OPEN = (r"[^\n]+?", r"[^\n]*?")


def whole_pattern(values: Sequence[str]) -> str:
    """What such a message begins with, or its shape where it is one line; empty where neither tells it from others."""
    told = [value.strip() for value in values if value.strip()]
    called = label([value.splitlines()[0] for value in told]).strip() if told else ""
    if re.search(rf"[^\W\d_]{{{LETTERS},}}", called):
        return "^" + r"\s+".join(map(re.escape, called.split()))
    if not told or any("\n" in value for value in told):
        return ""
    shape = _shape(told)
    return "" if any(one in shape for one in OPEN) or not re.search(r"\\d", shape) else rf"^{shape}$"
