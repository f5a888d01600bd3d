"""What a replay has to get right, as figures of each request: a mean of every layer over groups of requests alike.

Groups are by what explains a layer: prefill by tokens computed, decode per token by how many ran and how much prompt
was computed meanwhile. So a law that trades one of its numbers for another is found out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.bootstrap import block_length
from analysis.quantiles import Floats
from analysis.twin.model import Replay, Workload
from analysis.twin.regression import Intervals, during

_PARTS = 4
_FEWEST = 20  # requests of a group
_MODEL_ERROR = (
    0.01  # of a mean: no law of five numbers is nearer to a server, however many requests there are
)
_FEWEST_BLOCKS = 10


@dataclass(frozen=True)
class Group:
    """layer: an attribute of Replay; rows: which requests (n,); per: what its time is divided by (n,)."""

    layer: str
    rows: NDArray[np.bool_]
    per: Floats


@dataclass(frozen=True)
class Moments:
    """groups: k of them, by what really was. scale: (k,), of the real means."""

    groups: tuple[Group, ...]
    scale: Floats

    def of(self, replay: Replay) -> Floats:
        """(n, k): what each request adds to each mean; the means are those of the columns."""
        columns = [
            np.where(group.rows, getattr(replay, group.layer) / group.per, 0.0) / group.rows.mean()
            for group in self.groups
        ]
        return np.stack(columns, axis=1)

    def noise(self, missed: Floats) -> Floats:
        """(k, k): covariance of the means of what a replay missed (n, k), requests that follow each other resembling
        each other, with the error of any law on its diagonal."""
        n = len(missed)
        length = max(block_length(column) for column in missed.T)
        blocks = max(min(_FEWEST_BLOCKS, n), n // length)
        sums = np.add.reduceat(missed - missed.mean(axis=0), np.arange(blocks) * n // blocks, axis=0)
        return np.asarray(sums.T @ sums / n**2 + np.diag((_MODEL_ERROR * self.scale) ** 2))


def moments(work: Workload, real: Replay) -> Moments:
    """The figures that a workload's replays are held against."""
    n = len(work.arrival)
    spans = Intervals.of(work, real)
    answer = during(work, spans, spans.first, spans.end)
    steps = work.completion - 1
    generates = steps >= 1
    per = np.maximum(steps, 1)
    ones = np.ones(n)
    groups = _parts("prefill", np.ones(n, bool), work.computed, ones)
    for explains in (answer.generated / per, answer.tokens / per, answer.context / per):
        groups += _parts("decode", generates, explains, per)
    groups.append(Group("queue", np.ones(n, bool), ones))
    groups += _parts("host", work.host > 0, work.host, ones, parts=2)
    groups += _parts("remote", work.remote > 0, work.remote, ones, parts=2)
    groups = [group for group in groups if group.rows.sum() >= _FEWEST]
    bare = Moments(tuple(groups), np.zeros(len(groups)))
    return Moments(bare.groups, np.abs(bare.of(real).mean(axis=0)))


def _parts(
    layer: str, among: NDArray[np.bool_], explains: Floats, per: Floats, parts: int = _PARTS
) -> list[Group]:
    """Of some requests, as many with the least, ..., the most of what explains a layer."""
    if among.sum() < parts * _FEWEST:
        return [Group(layer, among, per)]
    edges = np.quantile(explains[among], np.linspace(0, 1, parts + 1)[1:-1])
    part = np.searchsorted(edges, explains, side="right")
    return [Group(layer, among & (part == number), per) for number in range(parts)]
