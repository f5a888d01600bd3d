"""Taking a request's place among its likes to the place that is the same among those of the other side.

A request's rank within its stratum stays; its value becomes the one of that rank in another set. The place is uniform
within the step that a request is of its stratum's distribution, and the value is that of a real request of the other
set: every request there is met as often as it should be, the outermost ones, too. (Ranks at the middle of the steps and
values between two requests, as a plain quantile mapping has them, clip the tail of every stratum.) Equal values share
their ranks by a hash of the request, so that neither the order of the requests nor luck decides.

Bootstrap replicates need how far a resample moves the ranks: `Ranks.shift`, at a few ranks of each stratum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.attribution.binned import Blocks
from analysis.attribution.model import Ints, Side
from analysis.quantiles import Floats

Hashes = NDArray[np.uint64]
# Ranks at which a stratum's distribution is watched: closer together towards both ends.
KNOTS = np.array([0, 0.005, 0.02, 0.05, *np.arange(0.1, 0.95, 0.05), 0.95, 0.98, 0.99, 0.995, 0.998, 1.0])
_STEPS = 2**24
_FINE = 1000  # of which all knots are multiples
_KNOT_OF = np.searchsorted(KNOTS, (np.arange(_FINE) + 0.5) / _FINE, side="right").astype(np.int8) - np.int8(1)


@dataclass(frozen=True)
class Lots:
    """What decides where nothing else does: a number of each request (n,), and the requests in its order."""

    hashed: Hashes
    order: Ints


def lots(side: Side) -> Lots:
    """From what a request is, not from its place in the set (splitmix64: Steele et al., OOPSLA 2014)."""
    mixed = np.zeros(side.n, dtype=np.uint64)
    for part in (side.arrival, side.prompt, side.completion):
        mixed = _mixed(mixed ^ (part + 0.0).view(np.uint64))
    return Lots(mixed, np.argsort(mixed, kind="stable"))


def _mixed(x: Hashes) -> Hashes:
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def _chance(hashed: Hashes, salt: int) -> Floats:
    """A number in (0, 1) of each request (n,), another one for each salt."""
    drawn = _mixed(hashed ^ np.uint64(salt * 0x9E3779B9))
    return ((drawn >> np.uint64(40)).astype(np.float64) + 0.5) / _STEPS


@dataclass(frozen=True)
class Ranks:
    """n values in strata: rank (n,) of each within its stratum, 0 to 1; knot: (n,) the last one below it; order: rows
    by stratum and then by value; start, size: of each stratum in `order`."""

    stratum: Ints
    rank: Floats
    knot: NDArray[np.int8]
    order: Ints
    start: Ints
    size: Ints

    def row(self, stratum: Ints | int, rank: Floats) -> Ints:
        """Which request has that rank in that stratum."""
        return self.order[self.place(stratum, rank)]

    def place(self, stratum: Ints | int, rank: Floats) -> Ints:
        """The same as a place in `order`."""
        size = self.size[stratum]
        return self.start[stratum] + np.clip((rank * size).astype(np.int64), 0, size - 1)

    def shift(self, blocks: Blocks) -> Floats:
        """By how much the rank of a value moves when the set is resampled, at each knot of each stratum:
        (r, strata * knots)."""
        strata, parts = len(self.size), len(KNOTS) - 1
        part = self.stratum * parts + self.knot
        upto = ranks_at_knots(blocks.resampled(None, part, strata * parts), strata)
        here = ranks_at_knots(np.bincount(part, minlength=strata * parts)[None].astype(np.float64), strata)
        return (upto - here).reshape(len(upto), -1)


def ranks_at_knots(mass: Floats, strata: int) -> Floats:
    upto = np.cumsum(mass.reshape(len(mass), strata, -1), axis=2)
    upto = np.concatenate([np.zeros_like(upto[..., :1]), upto], axis=2)
    return np.divide(upto, upto[..., -1:], out=np.zeros_like(upto), where=upto[..., -1:] > 0)


def ranked(values: Floats, stratum: Ints, strata: int, lots: Lots, salt: int) -> Ranks:
    """Ranks of values (n,) within strata (n,), numbered from 0 to strata - 1. salt: another one for each use."""
    shuffled = _shuffled(lots.order, salt)
    by_value = shuffled[np.argsort(values[shuffled], kind="stable")]
    order = by_value[np.argsort(stratum[by_value].astype(np.int16), kind="stable")]
    size = np.bincount(stratum, minlength=strata)
    start = np.concatenate(([0], np.cumsum(size)[:-1]))
    rank = np.empty(len(values))
    rank[order] = np.arange(len(values)) - np.repeat(start, size)
    rank += _chance(lots.hashed, salt)
    rank /= np.maximum(size, 1)[stratum]
    knot = _KNOT_OF[np.minimum((rank * _FINE).astype(np.int16), _FINE - 1)]
    return Ranks(stratum, rank, knot, order, start, size)


def _shuffled(order: Ints, salt: int) -> Ints:
    """Another order for each salt, by steps that meet everybody once."""
    n = len(order)
    step = max(1, int(n * (salt * 0.6180339887498949 % 1)))
    while math.gcd(step, n) > 1:
        step += 1
    return np.asarray(order[np.arange(n) * step % n])


def knot_weights(strata: int, stratum: Ints, knot: NDArray[np.int8], rank: Floats, effect: Floats) -> Floats:
    """What the shift of each knot of each stratum does (strata * knots,). Of some requests (n,): stratum, knot
    below their rank, rank, and what each does when its rank goes from that knot to the next."""
    width = KNOTS[knot + 1] - KNOTS[knot]
    part = (rank - KNOTS[knot]) / width
    at, size = stratum * len(KNOTS) + knot, strata * len(KNOTS)
    lower = np.bincount(at, effect * (1 - part) / width, minlength=size)
    return np.asarray(lower + np.bincount(at + 1, effect * part / width, minlength=size))
