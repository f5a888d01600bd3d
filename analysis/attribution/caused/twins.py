"""The twins of a comparison: a law and limits fitted to every server on either side, and how well they do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analysis.attribution.binned import Blocks
from analysis.attribution.caused.causes import Pair
from analysis.attribution.caused.game import FROM_REPLAY
from analysis.attribution.caused.told import ToldSide
from analysis.attribution.caused.twinned import MOST_REPLAYED, ROW, Twinned, redrawn, stretched, twinned
from analysis.attribution.model import Fidelity, Resampling, Side
from analysis.attribution.reader import alike
from analysis.bootstrap import supports
from analysis.report.metrics import Metric
from analysis.twin.fidelity import QUANTILES, WHOLES, misfit
from analysis.twin.model import NoTwin


@dataclass(frozen=True)
class Twins:
    """All servers. fidelity: of both sides; notes: what to know of them, a sentence each. misfit: why they may not
    speak of what is asked, empty where they may."""

    servers: tuple[Twinned, ...]
    fidelity: list[Fidelity]
    notes: tuple[str, ...]
    misfit: str

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return tuple(server.pair for server in self.servers)

    def blocks(self, resampling: Resampling) -> tuple[Blocks, Blocks]:
        """The resamples of the requests of A and of B, server by server."""
        of = (
            (resampling.block_a, resampling.counts_a, 0),
            (resampling.block_b, resampling.counts_b, 1),
        )
        a, b = (
            Blocks(np.concatenate([block[server.rows[at]] for server in self.servers]), counts)
            for block, counts, at in of
        )
        return a, b

    def drawn(self, resampling: Resampling, count: int, most: int, rng: np.random.Generator) -> list[Twins]:
        """`count` times the servers as they could have been fitted as well, each on the same stretch of at most `most`
        requests of a side: laws are drawn by their covariance, and by blocks who lends to the other side."""
        short = [stretched(server, most // len(self.servers)) for server in self.servers]
        laws = [server.laws.draw(rng, count) for server in short]
        return [
            replace(
                self,
                servers=tuple(
                    redrawn(server, of[at], resampling, at) for server, of in zip(short, laws, strict=True)
                ),
            )
            for at in range(count)
        ]


def twins(a: Side, b: Side, q: float | None, metric: Metric, told: tuple[ToldSide, ToldSide]) -> Twins:
    """Fit both sides. Raises NoTwin, saying why and what would help."""
    if metric.name not in FROM_REPLAY:
        raise NoTwin(f"the twin tells nothing of {metric.meaning}")
    a, b = (replace(side, beside={**side.beside, ROW: np.arange(float(side.n))}) for side in alike(a, b))
    left_out = _left_out(metric, q, min(a.n, b.n))
    servers = [twinned(*sides, metric, told, left_out) for sides in _by_server(a, b)]
    found = [
        replace(line, held=line.figure not in left_out) for server in servers for line in server.fidelity
    ]
    notes = list(dict.fromkeys(note for server in servers for one in server.fits for note in one.notes))
    if any(server.pair.another_room for server in servers):
        notes.append("room for KV changed: what was evicted or moved to a lower tier counts as capacity")
    if any(server.pair.arms for server in servers):
        notes.append(
            "a server served both arms at one time: they are replayed together, each as the other's load"
        )
    if any(server.shortened for server in servers):
        notes.append(f"the twin replays {MOST_REPLAYED:,} requests in a row of a side, not all")
    poor = misfit([line for line in found if line.held])
    return Twins(tuple(servers), found, tuple(notes), poor)


def _left_out(metric: Metric, q: float | None, n: int) -> set[str]:
    """Figures that say nothing of what is asked: quantiles of other times, those further out in the tail (of P90 up to
    P95, of a mean up to P50), and those that so few requests do not show."""
    upto = min((one for one in QUANTILES if one >= (q or 0.0)), default=QUANTILES[-1])
    asked = "ttft" if FROM_REPLAY[metric.name] == "ttft" else "e2e"
    return {
        f"P{100 * one:g} of {words}"
        for name, words in WHOLES.items()
        for one in QUANTILES
        if name != asked or one > upto or not supports(n, one)
    }


def _by_server(a: Side, b: Side) -> list[tuple[Side, Side]]:
    """The requests of each server on either side; the one server of each, where these have two names."""
    if len(a.servers) == len(b.servers) == 1:
        return [(a, b)]
    if set(a.servers) != set(b.servers):
        raise NoTwin(
            f"the sides are of other servers ({', '.join(a.servers)}; {', '.join(b.servers)}): a twin is of a server"
            " on both sides; ask for one with server=NAME"
        )
    return [(a.of_server(name), b.of_server(name)) for name in a.servers]
