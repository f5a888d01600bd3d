"""Facts that only the course of a window tells: a burst of new prompts, and what was evicted behind it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.attribution.model import Ints, Side
from analysis.diagnosis.model import Fact
from analysis.diagnosis.requests import share
from analysis.quantiles import Floats
from cachemodel.causes import MissCause

_PARTS, _FEWEST = 20, 100  # of a window; requests
_BEHIND = 5  # parts in which a burst is felt, its own being the first


def bursts(a: Side, b: Side) -> Mapping[str, Fact]:
    """How far the busiest part of each side stands out; behind that of B, what was evicted and how slow it was."""
    before, course = _course(a), _course(b)
    if course is None:
        return {}
    cold, evicted, prompt, part = course
    peak = int(cold.argmax())
    in_peak, parts = part == peak, np.arange(_PARTS)
    felt = (parts >= peak) & (parts < peak + _BEHIND)
    after, ttft = felt[part] & ~in_peak, b.time("ttft")
    rest, behind = (_share_of(evicted[of], prompt[of]) for of in (~felt, felt))
    found = {
        "cold_burst": Fact(_peak(before[0]) if before else None, _peak(cold), a.n, b.n),
        "burst_prompt": Fact(None, _over(b.prompt[in_peak], b.prompt[~in_peak]), a.n, int(in_peak.sum())),
        "evicted_after_burst": Fact(None, Fact(rest, behind, a.n, b.n).aspect("ratio"), a.n, b.n),
        "ttft_after_burst": Fact(None, _over(ttft[after], ttft[~felt[part]]), a.n, int(after.sum())),
    }
    return {name: fact for name, fact in found.items() if fact.b is not None}


def _course(side: Side) -> tuple[Floats, Floats, Floats, Ints] | None:
    """Cold, evicted and all prompt tokens by part of the window (_PARTS,), and the part of each request."""
    wanted = (MissCause.COLD, MissCause.EVICTED)
    if side.n < _FEWEST or side.end <= side.begin or not set(wanted) <= set(side.sources):
        return None
    part = np.clip((side.arrival - side.begin) / (side.end - side.begin) * _PARTS, 0, _PARTS - 1).astype(
        np.int64
    )
    cold, evicted = (share(side, (cause,)) for cause in wanted)
    columns = (cold[0], evicted[0], cold[1])
    of_cold, of_evicted, of_all = (np.bincount(part, v, minlength=_PARTS).astype(np.float64) for v in columns)
    return of_cold, of_evicted, of_all, part


def _peak(sums: Floats) -> float | None:
    middle = float(np.median(sums))
    return float(sums.max()) / middle if middle > 0 else None


def _share_of(some: Floats, whole: Floats) -> float | None:
    return float(some.sum() / whole.sum()) if whole.sum() > 0 else None


def _over(some: Floats, others: Floats) -> float | None:
    values = [x[np.isfinite(x)] for x in (some, others)]
    return float(values[0].mean() / values[1].mean()) if all(len(x) for x in values) else None
