"""The twins of a comparison: a law and limits fitted to every server on either side, and how well they do."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from analysis.attribution.binned import Blocks
from analysis.attribution.caused.causes import Half, Pair
from analysis.attribution.caused.game import FROM_REPLAY
from analysis.attribution.caused.step_laws import Laws, apart, laws
from analysis.attribution.caused.told import Room, ToldSide
from analysis.attribution.model import Fidelity, Ints, Resampling, Side
from analysis.attribution.reader import alike
from analysis.bootstrap import supports
from analysis.quantiles import Floats
from analysis.report.metrics import Metric
from analysis.twin.fidelity import QUANTILES, WHOLES, fidelity, misfit
from analysis.twin.fit import fit
from analysis.twin.model import Fit, Law, Limits, NoTwin, Told
from analysis.twin.workload import known, observed, workload

MOST_REPLAYED = 100_000  # requests of a side
LOST_QUANTILE, LOST_MEAN = 0.1, 0.05
_ROW = "row"  # rides beside a side's times through what leaves requests out


@dataclass(frozen=True)
class Twinned:
    """One server. rows: of the requests of its pair among those of the sides, in order. fits: of A and B, each by
    itself; laws: of both, told apart only where these differ. fidelity: of these laws, on both sides."""

    pair: Pair
    rows: tuple[Ints, Ints]
    fits: tuple[Fit, Fit]
    laws: Laws
    fidelity: list[Fidelity]


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
        short = [_stretched(server, most // len(self.servers)) for server in self.servers]
        laws = [server.laws.draw(rng, count) for server in short]
        return [
            replace(
                self,
                servers=tuple(
                    _redrawn(server, of[at], resampling, at) for server, of in zip(short, laws, strict=True)
                ),
            )
            for at in range(count)
        ]


def twins(a: Side, b: Side, q: float | None, metric: Metric, told: tuple[ToldSide, ToldSide]) -> Twins:
    """Fit both sides. Raises NoTwin, saying why and what would help."""
    if metric.name not in FROM_REPLAY:
        raise NoTwin(f"the twin tells nothing of {metric.meaning}")
    a, b = (replace(side, beside={**side.beside, _ROW: np.arange(float(side.n))}) for side in alike(a, b))
    left_out = _left_out(metric, q, min(a.n, b.n))
    servers = [_twinned(*sides, metric, told, left_out) for sides in _by_server(a, b)]
    found = [line for server in servers for line in server.fidelity]
    notes = list(dict.fromkeys(note for server in servers for one in server.fits for note in one.notes))
    if any(server.pair.another_room for server in servers):
        notes.append("room for KV changed: what was evicted or moved to a lower tier counts as capacity")
    if any(len(rows) == MOST_REPLAYED for server in servers for rows in server.rows):
        notes.append(f"the twin replays {MOST_REPLAYED:,} requests in a row of a side, not all")
    poor = misfit([line for line in found if line.figure not in left_out])
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
    return [(_of_server(a, name), _of_server(b, name)) for name in a.servers]


def _of_server(side: Side, name: str) -> Side:
    at = side.servers.index(name)
    mine = side.subset(side.server == at)
    return replace(mine, name=f"{side.name} on {name}", servers=(name,), server=np.zeros(mine.n, np.int64))


def _twinned(
    a: Side, b: Side, metric: Metric, told: tuple[ToldSide, ToldSide], left_out: set[str]
) -> Twinned:
    of_server = [side.servers.get(half.servers[0], Told()) for half, side in zip((a, b), told, strict=True)]
    rooms = [side.rooms.get(half.servers[0], Room()) for half, side in zip((a, b), told, strict=True)]
    sides = [_shortened(known(side, said)) for side, said in zip((a, b), of_server, strict=True)]
    fits = [fit(side, said) for side, said in zip(sides, of_server, strict=True)]
    limits = _limits([one.limits for one in fits], of_server)
    halves = [
        Half(
            side=side,
            workload=workload(side, one.hidden_wait, one.quiet),
            law=one.law,
            limits=limit,
            beyond=_beyond(side, metric),
            drawn=np.ones(side.n),
        )
        for side, one, limit in zip(sides, fits, limits, strict=True)
    ]
    rows = [side.time(_ROW).astype(np.int64) for side in sides]
    pair = Pair(halves[0], halves[1], another_room=_differ(*rooms))
    server = Twinned(pair, (rows[0], rows[1]), (fits[0], fits[1]), apart(*fits), [])
    own, common = _by(server, server.laws), _by(server, laws(*fits))
    return own if _loses(own.fidelity, common.fidelity, left_out) else common


def _by(server: Twinned, of_both: Laws) -> Twinned:
    """With these laws."""
    pair = server.pair
    a, b = replace(pair.a, law=of_both.a), replace(pair.b, law=of_both.b)
    found = [
        line
        for half, one in zip((a, b), server.fits, strict=True)
        for line in fidelity(half.side, replace(one, law=half.law, limits=half.limits))
    ]
    return replace(server, pair=replace(pair, a=a, b=b), laws=of_both, fidelity=found)


def _loses(own: list[Fidelity], common: list[Fidelity], left_out: set[str]) -> bool:
    """Whether common laws reproduce a side clearly worse: a quantile by a tenth, a layer by 5 % of the whole time."""
    layers = [line for line in own if line.figure.startswith("mean ")]
    whole = {
        side: sum(line.real for line in layers if line.side == side) for side in {line.side for line in own}
    }
    for mine, ours in zip(own, common, strict=True):
        fair = LOST_MEAN * whole[mine.side] if mine in layers else LOST_QUANTILE * mine.real
        if mine.figure not in left_out and abs(ours.twin - ours.real) > max(abs(mine.twin - mine.real), fair):
            return True
    return False


def _shortened(side: Side, most: int = MOST_REPLAYED) -> Side:
    first = (side.n - most) // 2
    return side if side.n <= most else side.subset(np.arange(first, first + most))


def _limits(fitted: list[Limits], told: list[Told]) -> list[Limits]:
    """A limit changed where both sides tell it; one that had to be guessed from when requests queued is the same."""
    for name in ("max_num_seqs", "max_num_batched_tokens", "kv_tokens"):
        if any(getattr(said, name) is None for said in told):
            guesses = [guess for one in fitted if (guess := getattr(one, name)) is not None]
            same: Any = {name: min(guesses, default=None)}
            fitted = [replace(one, **same) for one in fitted]
    return fitted


def _differ(a: Room, b: Room) -> bool:
    both = [(getattr(a, tier.name), getattr(b, tier.name)) for tier in fields(Room)]
    return any(here is not None and there is not None and here != there for here, there in both)


def _beyond(side: Side, metric: Metric) -> Floats:
    """What a client's time has beyond the server's."""
    if not metric.name.startswith("client_"):
        return np.zeros(side.n)
    return np.asarray(np.nan_to_num(side.totals - getattr(observed(side), FROM_REPLAY[metric.name])))


def _stretched(server: Twinned, most: int) -> Twinned:
    """The middle of its requests."""

    def half(of: Half, rows: Ints) -> tuple[Half, Ints]:
        first = max(0, (of.side.n - most) // 2)
        part = np.arange(first, min(first + most, of.side.n))
        columns: dict[str, Any] = {
            name: value[part] for name, value in vars(of.workload).items() if isinstance(value, np.ndarray)
        }
        short = replace(
            of,
            side=of.side.subset(part),
            workload=replace(of.workload, **columns),
            beyond=of.beyond[part],
            drawn=of.drawn[part],
        )
        return short, rows[part]

    (a, rows_a), (b, rows_b) = half(server.pair.a, server.rows[0]), half(server.pair.b, server.rows[1])
    return replace(server, pair=replace(server.pair, a=a, b=b), rows=(rows_a, rows_b))


def _redrawn(server: Twinned, laws: tuple[Law, Law], resampling: Resampling, at: int) -> Twinned:
    counts = [
        of[at % len(of)][block[rows]] if len(of) else np.ones(len(rows))
        for of, block, rows in (
            (resampling.counts_a, resampling.block_a, server.rows[0]),
            (resampling.counts_b, resampling.block_b, server.rows[1]),
        )
    ]
    a, b = (
        replace(half, law=law, drawn=drawn)
        for half, law, drawn in zip((server.pair.a, server.pair.b), laws, counts, strict=True)
    )
    return replace(server, pair=replace(server.pair, a=a, b=b))
