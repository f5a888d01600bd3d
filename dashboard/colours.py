"""What a part of a prompt is called, its colour and its hatching, the same on every page.

Colours are those of the terminal. Some of them are close, more so for colour-blind readers: hatching tells these apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.misses.parts import COLOURS, HITS
from analysis.misses.parts import PARTS as NAMES
from analysis.misses.words import WHY
from cachemodel.causes import LADDER, UNKNOWN_COLOUR, Eviction, MissCause
from cachemodel.layers import TokenSource

SEAM = {"color": "rgba(128,128,128,0.9)", "width": 0.8}  # an edge that shows on light and on dark
# One colour stands for all that was evicted: how much lighter it is for each way.
_LIGHTER = {Eviction.CAPACITY: 0.0, Eviction.EXPIRY: 0.0, Eviction.CLEAR: 0.5, Eviction.RESTART: 0.5}
_HATCHING = {
    TokenSource.CACHED.value: "-",
    MissCause.UNALIGNED.value: ".",
    MissCause.ELSEWHERE.value: "\\",
    MissCause.ISOLATED.value: "|",
    f"{MissCause.EVICTED}/{Eviction.CAPACITY}": "x",
    f"{MissCause.EVICTED}/{Eviction.EXPIRY}": "+",
    f"{MissCause.EVICTED}/{Eviction.CLEAR}": "x",
    f"{MissCause.EVICTED}/{Eviction.RESTART}": "+",
    MissCause.UNKNOWN.value: "/",
}
_MEANING = {
    "device": "served from device memory",
    "host": "served from host memory",
    "remote": "served from disk or another node",
    TokenSource.CACHED.value: "served from some tier; the server does not say which",
}


@dataclass(frozen=True, slots=True)
class Part:
    """Where tokens of a prompt came from. name: as in analysis.misses.report_model. hit: served, not computed.
    hatching: plotly's shape of a pattern, empty for none. evidence: what must be known to tell it."""

    name: str
    label: str
    colour: str
    hatching: str
    hit: bool
    meaning: str
    evidence: str

    def pattern(self) -> dict[str, object]:
        """For plotly's `pattern` of bars and `fillpattern` of areas."""
        return {
            "shape": self.hatching,
            "fgcolor": f"rgba(255,255,255,{0.3 if self.hit else 0.6})",  # hits are most of it: a quiet hatching
            "bgcolor": self.colour,
            "size": 9 if self.hit else 6,
            "solidity": 0.12 if self.hit else 0.25,
        }


def _part(name: str) -> Part:
    cause, _, sub = name.partition("/")
    hit = name in HITS
    rung = next((rung for rung in LADDER if rung.cause == cause), None)
    words = cause.replace("_", " ") + (f": {sub}" if sub else "")
    if hit:
        words = "served" if name == TokenSource.CACHED else f"served: {name}"
    return Part(
        name,
        words,
        _lighter(COLOURS[name], _LIGHTER[Eviction(sub)] if sub else 0.0),
        _HATCHING.get(name, ""),
        hit,
        _MEANING.get(name) or f"computed, because {WHY[name]}",
        "" if rung is None else rung.evidence,
    )


def _lighter(colour: str, share: float) -> str:
    """That much of the way to white."""
    levels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(level + (255 - level) * share):02X}" for level in levels)


PARTS = {name: _part(name) for name in NAMES}
"""In the order in which they are stacked."""


def part_of(name: str) -> Part:
    """A part that a later version may know and this one does not is shown all the same, as computed."""
    return PARTS.get(name) or Part(name, name, UNKNOWN_COLOUR, "", False, "", "")
