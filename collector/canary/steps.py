"""The unit of reuse from times alone: what a prompt saves when it is sent again grows with its length in steps. Pure.

For every unit the saved milliseconds are fitted as a line over the tokens that the law of that unit serves; the units
whose misfit is not worse than the best one's by more than chance (an F test, at a level that leaves room for having
chosen the best among so many) are possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cachemodel.alignment import Alignment

USUAL = frozenset({1, *(1 << power for power in range(3, 13)), 48, 96, 528, 784, 1072, 2144})
"""Units that servers are known to have: pages and blocks, and the large ones of hybrid models."""
_FEWEST = 8
_F = 16.0  # of 1 and 45 degrees of freedom: 0.05 over some 200 units that can be told apart


class Saved(NamedTuple):
    """tokens: of the prompt; ms: how much sooner its first token came the second time."""

    tokens: int
    ms: float


class Steps(NamedTuple):
    """unit: the one usual unit among the possible ones, None where there are several or none. low, high: the least and
    the largest possible one."""

    unit: int | None
    low: int
    high: int


def fit_steps(saved: Sequence[Saved]) -> Steps | None:
    """The units that the times allow; None where there are too few, or longer prompts do not save more."""
    if len(saved) < _FEWEST:
        return None
    tokens = [point.tokens for point in saved]
    ms = np.array([point.ms for point in saved])
    level = float(((ms - ms.mean()) ** 2).sum())
    misfits = {unit: _misfit(tokens, ms, unit) for unit in range(1, max(tokens))}
    best = min(misfits.values())
    freedom = len(saved) - 3
    if best <= 0 or (level - best) / (best / freedom) < _F:
        possible = [unit for unit, misfit in misfits.items() if misfit <= 0] if best <= 0 < level else []
    else:
        possible = [unit for unit, misfit in misfits.items() if misfit <= best * (1 + _F / freedom)]
    if not possible:
        return None
    usual = [unit for unit in possible if unit in USUAL]
    return Steps(usual[0] if len(usual) == 1 else None, min(possible), max(possible))


def _misfit(tokens: Sequence[int], ms: np.ndarray, unit: int) -> float:
    """Sum of squares that a rising line over the served tokens leaves."""
    law = Alignment(unit)
    served = np.array([law.attainable(length) for length in tokens], dtype=float)
    centred = served - served.mean()
    spread = float(centred @ centred)
    rest = ms - ms.mean()
    rise = float(centred @ rest) / spread if spread else 0.0
    rest = rest - max(0.0, rise) * centred
    return float(rest @ rest)
