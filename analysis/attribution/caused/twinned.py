"""The twin of one server, on both sides: its laws and limits, what it was given, and how well it does."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from analysis.attribution.caused.causes import Half, Pair
from analysis.attribution.caused.game import FROM_REPLAY
from analysis.attribution.caused.step_laws import Laws, apart, laws, of_one_time
from analysis.attribution.caused.told import Room, ToldSide
from analysis.attribution.certainty.pairing import interleaved
from analysis.attribution.model import Fidelity, Ints, Resampling, Side
from analysis.quantiles import Floats
from analysis.report.metrics import Metric
from analysis.twin.fidelity import fidelity
from analysis.twin.fit import fit
from analysis.twin.model import Fit, Law, Limits, Told, part, together
from analysis.twin.simulate import replay
from analysis.twin.workload import known, observed, workload

MOST_REPLAYED = 100_000  # requests of a side
LOST_QUANTILE, LOST_MEAN = 0.1, 0.05
ROW = "row"
"""Rides beside a side's times, through what leaves requests out: which of the whole side's requests each is."""


@dataclass(frozen=True)
class Twinned:
    """One server. rows: of the requests of its pair among those of the sides, in order. fits: of A and B, each by
    itself; laws: of both, told apart only where these differ. fidelity: of these laws, on both sides."""

    pair: Pair
    rows: tuple[Ints, Ints]
    fits: tuple[Fit, Fit]
    laws: Laws
    fidelity: list[Fidelity]

    @property
    def shortened(self) -> bool:
        """Whether there were more requests than are replayed."""
        sizes = [len(rows) for rows in self.rows]
        return sum(sizes) >= 2 * MOST_REPLAYED if self.pair.arms else max(sizes) >= MOST_REPLAYED


def twinned(a: Side, b: Side, metric: Metric, told: tuple[ToldSide, ToldSide], left_out: set[str]) -> Twinned:
    """Of a server's requests on both sides. left_out: figures that say nothing of what is asked. Raises NoTwin."""
    said = [side.servers.get(half.servers[0], Told()) for half, side in zip((a, b), told, strict=True)]
    if a.servers == b.servers and interleaved(a, b):
        return _of_arms(a, b, metric, said)
    rooms = [side.rooms.get(half.servers[0], Room()) for half, side in zip((a, b), told, strict=True)]
    sides = [_shortened(known(side, one)) for side, one in zip((a, b), said, strict=True)]
    # Whether all that loaded the server is here was looked at before some were left out.
    fits = [fit(side, replace(one, requests=None)) for side, one in zip(sides, said, strict=True)]
    limits = _limits([one.limits for one in fits], said)
    halves = [
        _half(side, replace(one, limits=limit), metric)
        for side, one, limit in zip(sides, fits, limits, strict=True)
    ]
    pair = Pair(halves[0], halves[1], another_room=_differ(*rooms))
    server = Twinned(pair, (_rows(sides[0]), _rows(sides[1])), (fits[0], fits[1]), apart(*fits), [])
    own, common = _by(server, server.laws), _by(server, laws(*fits))
    return own if _loses(own.fidelity, common.fidelity, left_out) else common


def _of_arms(a: Side, b: Side, metric: Metric, said: list[Told]) -> Twinned:
    """Of a server that served both at one time: fitted to all requests, and replayed with all."""
    counted = max((one.requests for one in said if one.requests is not None), default=None)
    both = replace(said[0], requests=counted)
    whole = known(_merged(a, b), both)
    a, b = known(a), known(b)
    rows = _meanwhile(a, b, 2 * MOST_REPLAYED)
    a, b = a.subset(rows[0]), b.subset(rows[1])
    found = fit(whole, both)
    pair = Pair(_half(a, found, metric), _half(b, found, metric), arms=True)
    sent = replay(together(pair.a.workload, pair.b.workload), found.law, found.limits)
    lines = [
        *fidelity(a, found, part(sent, slice(a.n))),
        *fidelity(b, found, part(sent, slice(a.n, None))),
    ]
    return Twinned(pair, (_rows(a), _rows(b)), (found, found), of_one_time(found), lines)


def _half(side: Side, found: Fit, metric: Metric) -> Half:
    return Half(
        side=side,
        workload=workload(side, found.hidden_wait, found.quiet),
        law=found.law,
        limits=found.limits,
        beyond=_beyond(side, metric),
        drawn=np.ones(side.n),
    )


def _merged(a: Side, b: Side) -> Side:
    """Both as one, in order of arrival."""
    order = np.argsort(np.concatenate([a.arrival, b.arrival]), kind="stable")

    def of(name: str) -> Any:
        return np.concatenate([getattr(a, name), getattr(b, name)], axis=-1)[..., order]

    columns = ("arrival", "totals", "times", "prompt", "completion", "tokens", "template", "server")
    return replace(
        a,
        name=f"{a.name} and {b.name}",
        begin=min(a.begin, b.begin),
        end=max(a.end, b.end),
        sampled=max(a.sampled, b.sampled),
        beside={name: np.concatenate([a.time(name), b.time(name)])[order] for name in a.beside},
        **{name: of(name) for name in columns},
    )


def _rows(side: Side) -> Ints:
    return side.time(ROW).astype(np.int64)


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


def _shortened(side: Side) -> Side:
    return side.subset(_middle(side.n, MOST_REPLAYED)) if side.n > MOST_REPLAYED else side


def _middle(n: int, most: int) -> Ints:
    first = max(0, (n - most) // 2)
    return np.arange(first, min(first + most, n))


def _meanwhile(a: Side, b: Side, most: int) -> tuple[Ints, Ints]:
    """Of two arms those that came in the same stretch of time, at most `most` together."""
    times = np.sort(np.concatenate([a.arrival, b.arrival]))
    since, upto = times[_middle(len(times), most)[[0, -1]]]
    first, second = (
        np.flatnonzero((since <= side.arrival) & (side.arrival <= upto)).astype(np.int64) for side in (a, b)
    )
    return first, second


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


def stretched(server: Twinned, most: int) -> Twinned:
    """The middle of its requests, at most `most` of a side."""
    pair = server.pair
    if pair.arms:
        rows = _meanwhile(pair.a.side, pair.b.side, 2 * most)
    else:
        rows = _middle(pair.a.side.n, most), _middle(pair.b.side.n, most)

    def half(of: Half, rows: Ints) -> Half:
        return replace(
            of,
            side=of.side.subset(rows),
            workload=part(of.workload, rows),
            beyond=of.beyond[rows],
            drawn=of.drawn[rows],
        )

    short = replace(pair, a=half(pair.a, rows[0]), b=half(pair.b, rows[1]))
    return replace(server, pair=short, rows=(server.rows[0][rows[0]], server.rows[1][rows[1]]))


def redrawn(server: Twinned, laws: tuple[Law, Law], resampling: Resampling, at: int) -> Twinned:
    """With the at-th draw of its laws and of who lends to the other side."""
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
