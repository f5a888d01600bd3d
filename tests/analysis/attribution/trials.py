"""Intervals of "what caused it" beside what the contention generator says, on other traffic before and after a change.

The truth is the same server with the same two traffics, run again with only the traffic, or only the change, as on the
other side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analysis.attribution.shapley import shapley
from analysis.quantiles import hd_quantile
from tests.analysis.attribution import contention
from tests.analysis.attribution.contention import CASES, LATER, Draws, World
from tests.analysis.attribution.test_caused import judged, without_causes

WORKLOAD, HITS = "workload", "hits"
TRIED = {HITS: CASES["changed"], **CASES}
"""Worlds before and after one change, by the cause that has it; `hits`: prompts are not known as chains."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One interval and its truth, ms."""

    cause: str
    truth: float
    value: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        return self.low <= self.truth <= self.high


def tried(cause: str, metric: str, q: float, n: int, seed: int) -> Iterator[Tried]:
    """The intervals of the traffic and of the change; none where there is no twin."""
    worlds, draws = TRIED[cause], (Draws.of(n, seed), Draws.of(n, seed + 100_000))
    a = contention.side(worlds[0], draws[0])
    b = contention.side(worlds[1], draws[1], "b", LATER)
    if cause == HITS:
        a, b = without_causes(a), without_causes(b)
    found = judged(a, b, worlds, q, metric)
    if found.view.refused:
        return
    for name, truth in truths(cause, worlds, draws, metric, q).items():
        share = found[name]
        assert share.low is not None
        assert share.high is not None
        yield Tried(name, truth, share.value, share.low, share.high)


def truths(
    cause: str, worlds: tuple[World, World], draws: tuple[Draws, Draws], metric: str, q: float
) -> dict[str, float]:
    """Of the traffic and of the change; of the traffic alone where that is the change."""

    def value(of: Draws, world: World) -> float:
        return float(hd_quantile(np.asarray(contention.side(world, of).time(metric)), q))

    if cause == WORKLOAD:
        return {WORKLOAD: value(draws[1], worlds[1]) - value(draws[0], worlds[0])}
    values = [value(draws[s & 1], worlds[s >> 1]) for s in range(4)]
    return dict(zip((WORKLOAD, cause), shapley(np.array(values)).tolist(), strict=True))
