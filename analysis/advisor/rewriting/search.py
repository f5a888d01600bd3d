"""Patterns of rules found in texts, in time that grows with the text whoever wrote it. Pure.

As `rules`, written into users' gateways: Python 3.9 and its standard library.
"""

from __future__ import annotations

import re

_GAP = re.compile(r"((?:\\s\+)?)(\[\^\\n\][*+]\?)")  # its blanks may be those of what stands behind it


def search(pattern: str, text: str) -> re.Match[str] | None:
    """The first match, in time that grows with the text and not with a power of it, whoever wrote the text.

    Between what a pattern fixes it leaves gaps open, within a line (`_GAP`). What is fixed is looked for as early as it
    can be, and not again further behind: where that leads to no match, no later beginning in the same line does. Runs
    of blanks, digits or letters are taken as a whole and from their beginning only, so that none is gone through anew
    from each of its characters: blanks alone are no value, and none begins with one.
    """
    first, *rest = _GAP.split(pattern)  # then blanks, a gap, and what is fixed behind it, for each gap
    blanks = [*rest[::3], ""]
    whole = fixed = _from_its_start(first) + _before(blanks[0])
    for at in range(len(rest) // 3):
        gap, behind = rest[3 * at + 1], _from_its_start(rest[3 * at + 2])
        run = rf"{blanks[at]}(?!\s)" if blanks[at] else ""
        whole += f"(?=({run}{gap}{behind}{_before(blanks[at + 1])}))\\{at + 1}"
    begins, matches = re.compile(fixed, re.MULTILINE), re.compile(whole, re.MULTILINE)
    at = 0
    while begin := begins.search(text, at):
        if match := matches.match(text, begin.start()):
            return match
        at = text.find("\n", begin.start()) + 1
        if not at:
            break
    return None


def _from_its_start(pattern: str) -> str:
    """A pattern that begins with a run begins where the run does."""
    run = next((run for run in (r"\s+", r"\d+", r"[^\W\d_]+") if pattern.startswith(run)), None)
    if run is None:
        return pattern
    kind, rest = run[:-1], pattern[len(run) :]
    return f"(?<!{kind}){run}(?!{kind}){rest}"


def _before(blanks: str) -> str:
    """What has to follow where blanks do."""
    return r"(?=\s)" if blanks else ""
