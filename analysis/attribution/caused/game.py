"""The twin's quantile for every coalition of causes, the causes being as on B and all else as on A."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from analysis.attribution.binned import Blocks, Resampled, resampled
from analysis.attribution.caused.causes import WORKLOAD, Pair
from analysis.quantiles import Floats
from analysis.twin.model import Replay
from analysis.twin.simulate import replay_all

Coalition = frozenset[str]
NOBODY: Coalition = frozenset()
FROM_REPLAY: Mapping[str, str] = {
    "ttft": "ttft",
    "client_ttft": "ttft",
    "e2e": "e2e",
    "client_e2e": "e2e",
    "tpot": "decode",
}
"""Which time of a replay a metric is, or is made of."""
_AT_ONCE = 16  # coalitions whose requests are in memory together


@dataclass(frozen=True)
class Game:
    """pairs: the servers. metric: a name of FROM_REPLAY; q: None for the mean. blocks: resamples of the requests of A
    and of B, those of the first pair first. played: what is known already."""

    pairs: Sequence[Pair]
    metric: str
    q: float | None
    blocks: tuple[Blocks, Blocks]
    played: dict[Coalition, Resampled] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Causes that can have changed anything on some server."""
        return tuple(dict.fromkeys(name for pair in self.pairs for name in pair.names))

    @property
    def everybody(self) -> Coalition:
        return frozenset(self.names)

    def play(self, coalitions: Iterable[Coalition]) -> list[Resampled]:
        """Their quantiles, each with its replicates, in order."""
        asked = list(coalitions)
        missing = list(dict.fromkeys(one for one in asked if one not in self.played))
        for first in range(0, len(missing), _AT_ONCE):
            some = missing[first : first + _AT_ONCE]
            self.played.update(zip(some, self._replayed(some), strict=True))
        return [self.played[one] for one in asked]

    def values(self, players: Sequence[str]) -> tuple[Floats, Floats]:
        """Of all subsets of some causes, bit i of the index being the i-th: (2**m,) and their replicates (r, 2**m)."""
        subsets = (
            frozenset(name for at, name in enumerate(players) if index >> at & 1)
            for index in range(1 << len(players))
        )
        found = self.play(subsets)
        return np.array([one.value for one in found]), np.stack([one.replicates for one in found], axis=1)

    def _replayed(self, coalitions: Sequence[Coalition]) -> list[Resampled]:
        cases = [pair.case(inside) for inside in coalitions for pair in self.pairs]
        times = replay_all((case for case, _ in cases), self._time)
        told = [
            self._metric(time[: len(beyond)], case[0].completion[: len(beyond)]) + beyond
            for time, (case, beyond) in zip(times, cases, strict=True)
        ]
        servers = len(self.pairs)
        return [
            self._estimate(
                np.concatenate(told[at * servers : (at + 1) * servers]), self.blocks[WORKLOAD in inside]
            )
            for at, inside in enumerate(coalitions)
        ]

    def _time(self, replay: Replay) -> Floats:
        return np.asarray(getattr(replay, FROM_REPLAY[self.metric]))

    def _metric(self, time: Floats, completion: Floats) -> Floats:
        """NaN where a request has none."""
        if self.metric != "tpot":
            return time
        return np.asarray(
            np.divide(time, completion - 1, out=np.full(len(time), np.nan), where=completion > 1)
        )

    def _estimate(self, times: Floats, blocks: Blocks) -> Resampled:
        known = np.isfinite(times)
        return resampled(times[known], self.q, Blocks(blocks.of[known], blocks.counts))
