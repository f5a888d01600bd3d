"""What redaction hides: requests whose tokens part from all others where their redacted texts read the same."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from analysis.advisor.stored.rows import Rows

_PLACEHOLDER = re.compile(r"<(?:private key|login|uuid|email|token|ip|mac|iban|secret|number|name)>")
_SHOWN = 3


def hidden(rows: Rows) -> Iterator[str]:
    """A sentence for each role whose messages hide something that breaks prefixes."""
    where: dict[str, Counter[int]] = defaultdict(Counter)  # role -> segment -> requests
    seen: set[int] = set()
    for at in range(rows.n):
        parted = _parted(rows, at)
        prefixes, so_far = [], hash(str(rows.server[at]))
        for segment in rows.segments.of(at):
            so_far = hash((so_far, segment))
            prefixes.append(so_far)
        if parted is not None and not rows.full[at] and prefixes[parted] in seen:
            segment = rows.segments.of(at)[parted]
            where[rows.segments.texts[segment][0]][segment] += 1
        seen.update(prefixes)
    for role, segments in where.items():
        told = Counter[str]()
        for segment, count in segments.items():
            for placeholder in set(_PLACEHOLDER.findall(rows.segments.texts[segment][1])):
                told[placeholder] += count
        behind = " or ".join(name for name, _ in told.most_common(_SHOWN)) or "none of the placeholders"
        yield (
            f"{segments.total():,} requests part from all before them within a text of role {role} that reads the same"
            f" once redacted: a value behind {behind} breaks their prefixes, and only --capture full names it"
        )


def _parted(rows: Rows, at: int) -> int | None:
    """Which of its texts a prompt parts from all before it in; None where that is not known, or in none."""
    ends, split = rows.segments.ends_of(at), int(rows.split[at])
    if split < 0:
        return None
    return next((place for place, end in enumerate(ends) if split < end), None)
