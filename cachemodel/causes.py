"""Why a prompt token was computed: the ladder of ideal caches, each able to do all that the one before can and one
thing more. The tokens that a rung newly serves are its cause, so that the causes add up to the computed tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MissCause(StrEnum):
    """One cause a computed token has, in the ladder's order; UNKNOWN where the telemetry cannot place it."""

    UNALIGNED = "unaligned"
    NOT_LOADED = "not_loaded"
    ELSEWHERE = "elsewhere"
    ISOLATED = "isolated"
    EVICTED = "evicted"
    CHANGED = "changed"
    COLD = "cold"
    UNKNOWN = "unknown"


class Eviction(StrEnum):
    """Sub-causes of EVICTED."""

    CAPACITY = "capacity"
    EXPIRY = "expiry"
    CLEAR = "clear"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Rung:
    """A cause with the ideal cache that would have served its tokens, and what must be known to tell.

    colour: for plots, distinct also for colour-blind readers.
    """

    cause: MissCause
    cache: str
    evidence: str
    colour: str


LADDER = (
    Rung(
        MissCause.UNALIGNED,
        "loses nothing to blocks, chunks, the last block or speculative decoding",
        "the alignment unit, fitted from (prompt, cached) pairs or canaries",
        "#88CCEE",
    ),
    Rung(
        MissCause.NOT_LOADED,
        "never fails or declines a load or store, shares blocks in flight, ignores options that switch reads off",
        "connector counters, request options, timing",
        "#DDCC77",
    ),
    Rung(MissCause.ELSEWHERE, "sees what every replica and rank held", "KV events of the others", "#44AA99"),
    Rung(MissCause.ISOLATED, "ignores salt, adapter and image keys", "extra keys", "#AA4499"),
    Rung(MissCause.EVICTED, "forgets nothing", "removed and cleared events, restarts", "#CC6677"),
    Rung(MissCause.CHANGED, "sees prompts as the advisor would rewrite them", "prompt chains", "#882255"),
    Rung(MissCause.COLD, "holds everything", "none", "#BBBBBB"),
)
UNKNOWN_COLOUR = "#555555"
