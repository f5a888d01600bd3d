"""The sentences that answer a miss report's question."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.misses.model import NOT_TOLD, Ints, Ladder
from analysis.misses.parts import CAUSES, HITS, PARTS, UNKNOWN, computed, total
from analysis.misses.report_model import MissLine, MissReport

WHY = {
    "unaligned": "a cache serves whole units only and the last ones are computed all the same",
    "not_loaded": "the cache that got the request held them, or was computing them, and did not serve them",
    "elsewhere": "another replica held them at that moment, not the one that got the request",
    "isolated": "they were held under another salt, adapter or image key",
    "evicted/capacity": "they had been held and were evicted to make room",
    "evicted/expiry": "they had been held and expired",
    "evicted/clear": "they had been held and the cache was cleared",
    "evicted/restart": "they had been held and the server was restarted",
    "changed": "they were sent before, but the prompt had changed in front of them",
    "cold": "they had never been sent before",
    UNKNOWN: "nothing tells why they were computed",
}
"""Why tokens of a part were computed, to follow "because"."""
UNTOLD = "nothing tells whether they were served or computed"

_NUMERALS = {
    2: "two",
    3: "three",
    4: "four",
    5: "five",
    6: "six",
    7: "seven",
    8: "eight",
    9: "nine",
    10: "ten",
}
_SECOND = 0.1  # of the computed tokens, from which on a second cause is worth a word
_FEW = 0.01  # of the prompts: so much of which nothing tells changes no headline


def missed_parts(line: MissLine) -> dict[str, int]:
    """The parts of what was computed for certain: without tokens of which nothing tells whether they were served."""
    told = {name: tokens for name, tokens in line.parts.items() if name not in HITS}
    if line.untold:
        told[UNKNOWN] = told.get(UNKNOWN, 0) - line.untold
    return {name: tokens for name, tokens in told.items() if tokens > 0}


def known_computed(line: MissLine) -> int:
    """Tokens that were computed for certain."""
    return sum(missed_parts(line).values())


def why_unknown(line: MissLine) -> str:
    """What is to be said of the tokens of a line that nobody can place: of some that are not known to be hits, of the
    rest that they were computed."""
    unknown = line.parts.get(UNKNOWN, 0)
    if line.untold >= unknown > 0:
        return UNTOLD
    return WHY[UNKNOWN] + (f"; of {line.untold:,} not even whether they were" if line.untold else "")


def hit_share(line: MissLine) -> str:
    """What to write where the share of hits is not known: `unknown`, or the least it is; empty where it is known."""
    if line.untold <= _FEW * line.prompt:
        return ""
    hits = total(line.parts, HITS)
    return f">={hits / line.prompt:.0%}" if hits else "unknown"


def where(ladder: Ladder, parts: Ints) -> int:
    """Position in the prompt at which what counts as changed begins: the middle one by tokens, NOT_TOLD for none."""
    tokens = parts[:, PARTS.index("changed")]
    rows = np.flatnonzero(tokens)
    if not len(rows):
        return NOT_TOLD
    begins = ladder.served[rows, 5]
    order = np.argsort(begins, kind="stable")
    reached = np.cumsum(tokens[rows][order])
    return int(begins[order][np.searchsorted(reached, reached[-1] / 2)])


def answer(
    report: MissReport, changed_at: int, counters: tuple[int, int] | None = None, prompts: bool = True
) -> str:
    """What a person wants to know first. counters: tokens found and looked up, as the servers themselves count.
    prompts: whether any of them is known."""
    line, prompt = report.total, report.total.prompt
    if not prompt:
        return f"Nothing tells how long the prompts of these {counted(report)} are."
    parts, missed = missed_parts(line), known_computed(line)
    begin = _hits(line, counters)
    if not missed:
        return f"{begin}." if line.untold else f"{begin}: every one of them."
    ones = f"the {missed:,} " + ("that were computed for certain" if hit_share(line) else "computed ones")
    text = f"{begin}; {_largest_two(parts, ones, changed_at)}"
    return text if prompts else f"{text.removesuffix('.')}: no prompt is known."


def _largest_two(parts: Mapping[str, int], ones: str, changed_at: int = NOT_TOLD) -> str:
    """The largest cause of some tokens, and a second one that is worth a word. ones: how many, and what they are
    called; changed_at: as from `where`."""
    first, second = _largest(parts)
    whole = sum(parts[name] for name in (*CAUSES, UNKNOWN) if name in parts)
    share = f"{parts[first] / whole:.0%}"
    if first == UNKNOWN:
        text = f"nothing tells why {'any' if parts[first] == whole else share} of {ones} were"
    else:
        text = f"{share} of {ones} were computed because {WHY[first]}"
    if first == "changed" and changed_at != NOT_TOLD:
        text += f" (half of these tokens are of prompts that differ from token {changed_at:,} on, or earlier)"
    text += "."
    if not second:
        return text
    share = f"{parts[second] / whole:.0%}"
    return text + (
        f" Of another {share} nothing tells why."
        if second == UNKNOWN
        else f" Next: {share} because {WHY[second]}."
    )


def _hits(line: MissLine, counters: tuple[int, int] | None) -> str:
    """How much was served, and where that is not known what the servers' counters say of it."""
    hits, prompt = total(line.parts, HITS), line.prompt
    if not hit_share(line):
        return f"{hits / prompt:.0%} of {prompt:,} prompt tokens came from the cache"
    if hits:
        text = (
            f"At least {hits / prompt:.0%} of {prompt:,} prompt tokens came from the cache; of {line.untold:,} nothing"
            " tells whether they did"
        )
    else:
        text = (
            f"How much of {prompt:,} prompt tokens came from the cache is not known: nothing tells what was served of"
            f" {line.untold:,} (usage with cached_tokens in a request log would)"
        )
    if counters:
        text += f"; the server's own counters say {counters[0] / counters[1]:.0%} of {counters[1]:,} at about that time"
    return text


def counted(report: MissReport) -> str:
    """How many requests there are, and of how many these are where not all were read."""
    read = report.total.requests
    if report.sampled <= 1 or report.selected <= read:
        return f"{read:,} requests"
    every = _NUMERALS.get(report.sampled, f"{report.sampled:,}")
    return f"{read:,} of {report.selected:,} requests (one in {every})"


def answer_of_events(report: MissReport) -> str:
    """The same where KV events are all there is."""
    parts: dict[str, int] = {}
    for line in report.events_alone:
        for name, tokens in line.parts.items():
            parts[name] = parts.get(name, 0) + tokens
    stored = computed(parts)
    begin = "No request is known of that time; KV events alone tell that"
    if not stored:
        return f"{begin} nothing was stored."
    return f"{begin} {_largest_two(parts, f'{stored:,} stored tokens')}"


def _largest(parts: Mapping[str, int]) -> tuple[str, str]:
    """The two largest of the computed parts, the second one empty where it is nothing to speak of."""
    order = sorted((name for name in (*CAUSES, UNKNOWN) if parts.get(name)), key=lambda name: -parts[name])
    second = (
        order[1] if len(order) > 1 and parts[order[1]] >= _SECOND * sum(parts[name] for name in order) else ""
    )
    return order[0], second
