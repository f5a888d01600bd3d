"""The parts that prompt tokens are split into, in their order, with the colours that stand for them everywhere."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from analysis.misses.assemble import TIERS
from analysis.misses.model import Flags, Ints, Ladder
from cachemodel.causes import LADDER, UNKNOWN_COLOUR, Eviction, MissCause
from cachemodel.layers import SERVING_LAYERS, TokenSource

CACHED = TokenSource.CACHED.value
UNKNOWN = MissCause.UNKNOWN.value
HITS = (*TIERS, CACHED)
EVICTED = tuple(f"{MissCause.EVICTED}/{sub}" for sub in Eviction)
_BEFORE_EVICTED = tuple(rung.cause.value for rung in LADDER[:4])
_AFTER_EVICTED = (MissCause.CHANGED.value, MissCause.COLD.value)
CAUSES = (*_BEFORE_EVICTED, *EVICTED, *_AFTER_EVICTED)
PARTS = (*HITS, *CAUSES, UNKNOWN)


def _colours() -> dict[str, str]:
    layers = {layer.name: layer.colour for layer in SERVING_LAYERS}
    # what the device held is found by the layer `prefix`; where no tier is told that is the nearest
    found = {
        "device": layers["prefix"],
        CACHED: layers["prefix"],
        "host": layers["host"],
        "remote": layers["remote"],
    }
    told = {rung.cause.value: rung.colour for rung in LADDER}
    told |= dict.fromkeys(EVICTED, told[MissCause.EVICTED.value])
    return found | told | {UNKNOWN: UNKNOWN_COLOUR}


COLOURS = _colours()


def split(ladder: Ladder, tiers: Ints) -> Ints:
    """(n, len(PARTS)) tokens of each request by part; rows add up to the prompt.

    tiers: (n, 3) tokens by TIERS as the server said, NOT_TOLD. Where these are not exactly what was served, the tier of
    all of it counts as not told.
    """
    actual = ladder.served[:, 0]
    steps = np.diff(ladder.served, axis=1) - ladder.unknown[:, 1:]
    told = np.maximum(tiers, 0)
    whole = told.sum(axis=1) == actual
    columns = [
        np.where(whole[:, None], told, 0),
        np.where(whole, 0, actual)[:, None],
        steps[:, :4],
        ladder.evicted,
        steps[:, 5:],
        ladder.unknown.sum(axis=1)[:, None],
    ]
    return np.concatenate(columns, axis=1)


def named(counts: Ints) -> dict[str, int]:
    """Tokens by part of one row, those without any left out."""
    return {name: int(count) for name, count in zip(PARTS, counts.tolist(), strict=True) if count}


def computed(parts: dict[str, int]) -> int:
    """The tokens of a line that were computed."""
    return sum(count for name, count in parts.items() if name not in HITS)


def total(parts: dict[str, int], names: Iterable[str]) -> int:
    """The tokens of a line in some of its parts."""
    return sum(parts.get(name, 0) for name in names)


def cause_of(part: str) -> str:
    """The cause a part belongs to, without its sub-cause."""
    return part.partition("/")[0]


def rows_of(ladder: Ladder, rows: Flags) -> Ladder:
    """The ladder of some of its requests."""
    return Ladder(
        ladder.served[rows],
        ladder.unknown[rows],
        ladder.evicted[rows],
        ladder.shared[rows],
        ladder.derived[rows],
        ladder.alignments,
    )
