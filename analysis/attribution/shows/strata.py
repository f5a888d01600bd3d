"""What makes requests alike: groups of template and server, lengths, tokens by source; and strata of one number.

A stratum has to be thick in both sets, or nothing can be learned from it; thin ones are merged with their neighbours,
groups with the rest of the requests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pyarrow

from analysis.attribution.layers import Mask
from analysis.attribution.model import Ints, Side
from analysis.quantiles import Floats
from cachemodel.layers import TokenSource

THICK = 200  # requests of each side
GROUPS = 32
REST = 0
_EIGHTHS = 8
_GIANTS = 5
COMPUTED, LOADS = 2, 5
"""Which of the terms is the computed tokens; terms before the loads."""
_RIDGE = 1e-12
_NOTHING = 1e-12  # of a prompt
_SAME = 1e-9  # of the largest: values no further apart differ by rounding
SERVED = tuple(str(source) for source in TokenSource if source != TokenSource.COMPUTED)


@dataclass(frozen=True)
class Groups:
    """Template and server of the requests of both sides, (n,) each, as `count` numbers; REST is what is too thin.

    alone: the share of each side's requests whose template or server the other side has none of.
    """

    a: Ints
    b: Ints
    count: int
    alone: tuple[float, float]


def groups(a: Side, b: Side) -> Groups:
    """Servers by name, since their indices are each side's own."""
    names = {name: i for i, name in enumerate(sorted({*a.servers, *b.servers}))}
    places = [np.array([names[name] for name in side.servers] + [-1], dtype=np.int64) for side in (a, b)]
    server = np.concatenate([place[side.server] for place, side in zip(places, (a, b), strict=True)])
    template = _numbered(np.concatenate([a.template, b.template]))
    code = _numbered(template * (len(names) + 1) + server + 1)
    counts = np.stack([np.bincount(part, minlength=code.max() + 1) for part in np.split(code, [a.n])])
    thick = np.flatnonzero(counts.min(axis=0) >= THICK)
    thick = thick[np.argsort(-counts.min(axis=0)[thick], kind="stable")][:GROUPS]
    number = np.full(counts.shape[1], REST)
    number[thick] = np.arange(len(thick)) + 1
    only = counts * (counts[::-1] == 0)
    alone = only.sum(axis=1) / counts.sum(axis=1)
    group_a, group_b = np.split(number[code], [a.n])
    return _closed(group_a, group_b, len(thick) + 1, (float(alone[0]), float(alone[1])))


def _numbered(values: Ints) -> Ints:
    """Values (n,) by their rank among the distinct ones."""
    encoded = pyarrow.array(values).dictionary_encode()
    distinct = encoded.dictionary.to_numpy()
    rank = np.empty(len(distinct), dtype=np.int64)
    rank[np.argsort(distinct)] = np.arange(len(distinct))
    return np.asarray(rank[encoded.indices.to_numpy()])


def _closed(a: Ints, b: Ints, count: int, alone: tuple[float, float]) -> Groups:
    """No group that one side alone has, or nearly: a rest that is thin on one side takes the smallest groups in."""
    sizes = np.stack([np.bincount(g, minlength=count) for g in (a, b)])
    while count > 1 and sizes[:, REST].min() < THICK and sizes[:, REST].max() > 0:
        a, b = (np.where(g == count - 1, REST, g) for g in (a, b))
        count -= 1
        sizes[:, REST] += sizes[:, count]
    return Groups(a, b, count, alone)


def edges(a: Floats, b: Floats, parts: int | None = None) -> Floats:
    """Edges of strata of a number that both sides have, (n,) and (m,): eighths of the requests, ever finer towards the
    tail (or `parts` equal ones), each with THICK requests of both sides."""
    ranks = np.arange(1, parts or _EIGHTHS) / (parts or _EIGHTHS)
    if parts is None:
        ranks = np.concatenate([ranks, 1 - 0.5 ** np.arange(4, 12)])
    sides = np.sort(a), np.sort(b)
    candidates = _between(np.unique(np.quantile(np.concatenate(sides), ranks, method="higher")), sides)
    kept: list[float] = []
    inside = [np.searchsorted(side, candidates) for side in sides]
    last = [0, 0]
    for i, edge in enumerate(candidates):
        here = [int(inside[0][i]), int(inside[1][i])]
        thick = all(
            h - b4 >= THICK and n - h >= THICK for h, b4, n in zip(here, last, (len(a), len(b)), strict=True)
        )
        if thick:
            kept.append(float(edge))
            last = here
    return np.array(kept)


def _between(values: Floats, sides: tuple[Floats, Floats]) -> Floats:
    """The middle between each of some values (k,) and the next lower one of sorted sides: at a value itself, rounding
    would decide on which side of the edge its request is. Not those that have none below."""
    apart = values - _SAME * max(float(np.abs(side).max()) for side in sides)
    lower = [np.concatenate(([-np.inf], side))[np.searchsorted(side, apart)] for side in sides]
    below = np.maximum(*lower)
    some = np.isfinite(below)
    return np.asarray((below[some] + values[some]) / 2)


@dataclass(frozen=True)
class Told:
    """What is known of n requests before their times: prompt and completion tokens (n,) and shares (s, n) of the prompt
    by source, without gaps: what is not told is taken to be as where it is."""

    group: Ints
    prompt: Floats
    completion: Floats
    shares: Floats

    def subset(self, rows: Ints) -> Told:
        """Some of the requests."""
        return Told(self.group[rows], self.prompt[rows], self.completion[rows], self.shares[:, rows])


def told(side: Side, other: Side, group: Ints) -> Told:
    """See `Told`."""
    prompt, completion = (_filled(getattr(side, n), getattr(other, n)) for n in ("prompt", "completion"))
    shares = np.zeros((len(side.sources), side.n))
    whole = side.tokens.sum(axis=0)
    known = np.isfinite(whole) & (whole > 0)
    if known.any():
        shares[:, known] = side.tokens[:, known] / whole[known]
        shares[:, ~known] = (side.tokens[:, known].sum(axis=1) / whole[known].sum())[:, None]
    return Told(group, prompt, completion, shares)


def _filled(values: Floats, other: Floats) -> Floats:
    """Gaps as the middle of both sides, which says nothing about either."""
    known = np.isfinite(values)
    if known.all():
        return values
    both = np.concatenate([values[known], other[np.isfinite(other)]])
    return np.where(known, values, np.median(both) if len(both) else 0.0)


def parts(shares: Floats, home: int) -> tuple[Floats, Floats]:
    """Shares (s, n) of prompts as a stick that breaks from the last source on: the part that each takes of what those
    before it left, 0 of nothing, and what they left; `home` has what is left in the end. (s, n) each."""
    taken, left = np.zeros_like(shares), np.zeros_like(shares)
    rest = np.ones(shares.shape[1])
    for i in breaking(len(shares), home):
        left[i] = np.where(rest > _NOTHING, rest, 0.0)
        np.divide(shares[i], rest, out=taken[i], where=rest > _NOTHING)
        rest = rest - shares[i]
    return taken, left


def breaking(sources: int, home: int) -> list[int]:
    """The order in which sources take their parts."""
    return [i for i in reversed(range(sources)) if i != home]


@dataclass(frozen=True)
class Sources:
    """Which of the sources serve at no cost of their own, load, and are computed; home: the one that takes what the
    others do not, none where no source is told."""

    loaded: tuple[int, ...]
    computed: tuple[int, ...]
    home: int | None

    @classmethod
    def of(cls, names: tuple[str, ...]) -> Sources:
        served = [i for i, name in enumerate(names) if name in SERVED]
        if names and not served:
            # of another chain (analysis/chain): the first serves for free, each further one at a cost of its own
            return cls(loaded=tuple(range(1, len(names))), computed=(), home=0)
        free = [i for i in served if names[i] in (TokenSource.DEVICE, TokenSource.CACHED)]
        return cls(
            loaded=tuple(i for i in served if i not in free),
            computed=tuple(i for i in range(len(names)) if i not in served),
            home=next(iter(free or served or range(len(names))), None),
        )

    def missed(self, told: Told) -> Floats:
        """The share of the prompt that was computed, (n,)."""
        return np.asarray(told.shares[list(self.computed)].sum(axis=0))

    def terms(self, told: Told) -> Floats:
        """What a time can depend on, (d, n): prompt, completion, computed tokens, these times the prompt and squared
        (attention: u computed of p tokens look at u * (p - u / 2) tokens), and the tokens loaded."""
        computed = self.missed(told) * told.prompt
        loaded = [told.shares[i] * told.prompt for i in self.loaded]
        attention = computed * told.prompt / 1e3, computed * computed / 1e3
        return np.stack([told.prompt, told.completion, computed, *attention, *loaded])


@dataclass(frozen=True)
class Line:
    """A linear law: slopes (d,) of terms and the level of each group. It may bend where computed tokens pass one of the
    knots (k,): bends (k,), by how much the slope changes there."""

    slopes: Floats
    levels: Floats
    knots: Floats
    bends: Floats

    def __call__(self, terms: Floats, group: Ints) -> Floats:
        """(n,) of terms (d, n)."""
        return np.asarray(self.rise(terms) + self.levels[group])

    def rise(self, terms: Floats) -> Floats:
        """The same without levels."""
        risen = self.slopes @ terms
        for knot, bend in zip(self.knots, self.bends, strict=True):
            if bend:
                risen += bend * np.maximum(terms[COMPUTED] - knot, 0.0)
        return np.asarray(risen)

    @property
    def varies(self) -> bool:
        """Whether any term has a slope."""
        return bool(self.slopes.any() or self.bends.any())

    @classmethod
    def flat(cls, terms: int, groups: int, knots: Floats | None = None) -> Line:
        """Zero everywhere."""
        knots = np.empty(0) if knots is None else knots
        return cls(np.zeros(terms), np.zeros(groups), knots, np.zeros(len(knots)))


def fit(terms: Floats, y: Floats, group: Ints, towards: Line, spread: Floats | None = None) -> Line:
    """Least squares of y (n,) on terms (d, n) within groups. towards: whose slopes and bends hold where the data say
    nothing of one, and at whose knots it may bend. spread: how far y (n,) are off a line on average; None: alike.

    The outermost 0.1 % on either side, five at least, count only as far as the next one: of y for a first line, then of
    what is off it (y is large where terms are: cut there, a line would bend). Terms without a slope to go towards that
    explain no more than chance get none: the error of each would be taken for a change wherever requests became longer.
    A group without requests has the level of all."""
    n, d, groups = len(y), len(terms), len(towards.levels)
    if not n:
        return replace(towards, levels=np.zeros(groups))
    spread = np.ones(n) if spread is None else spread
    weights = spread**-2.0
    weights /= weights.mean()
    hinges = [np.maximum(terms[COMPUTED] - knot, 0.0) for knot in towards.knots]
    terms = np.vstack([terms, *hinges])
    known = np.concatenate([towards.slopes, towards.bends])
    scale = np.abs(terms).max(axis=1)
    scale[scale == 0] = 1.0
    scaled = terms / scale[:, None]
    within = scaled - np.stack([_levels(row, group, groups, weights)[group] for row in scaled])
    weighted = within * weights
    square = weighted @ within.T / n

    def solved(y: Floats) -> tuple[Floats, Floats]:
        left = y - known @ terms
        left -= _levels(left, group, groups, weights)[group]
        variance = float(left @ (left * weights)) / n
        slopes = known + _solved(square, weighted @ left / n, variance, n, known != 0) / scale
        return slopes, _levels(y - slopes @ terms, group, groups, weights)

    slopes, levels = solved(_clipped(y))
    first = slopes @ terms + levels[group]
    slopes, levels = solved(first + spread * _clipped((y - first) / spread))
    return Line(slopes[:d], levels, towards.knots, slopes[d:])


def _solved(square: Floats, product: Floats, variance: float, n: int, always: Mask) -> Floats:
    """Least squares (d,) from the terms' squares (d, d) and products with what is fitted, whose variance is given: of
    those to be had always, and of others as long as the best of them explains log(n) times what a useless one would
    (Schwarz, Annals of Statistics 6, 1978)."""

    # a prior worth one request, so that terms which go together (or not at all) do not share slopes out at random
    firmer = square + np.diag(square.diagonal() / n + _RIDGE)

    def fitted(some: list[int]) -> tuple[Floats, float]:
        slopes = np.zeros(len(product))
        slopes[some] = np.linalg.solve(firmer[np.ix_(some, some)], product[some])
        # what is left without the prior: a term that only makes up for what that takes away explains nothing
        return slopes, variance - float(2 * product @ slopes - slopes @ square @ slopes)

    chosen = np.flatnonzero(always).tolist()
    slopes, left = fitted(chosen)
    while len(chosen) < len(product):
        more = {j: fitted([*chosen, j]) for j in range(len(product)) if j not in chosen}
        best = min(more, key=lambda j: more[j][1])
        if left - more[best][1] <= max(more[best][1] * math.log(n) / n, _RIDGE * variance):
            break
        chosen.append(best)
        slopes, left = more[best]
    return slopes


def _clipped(y: Floats) -> Floats:
    n = len(y)
    beyond = min(max(n // 1000, _GIANTS), (n - 1) // 4)
    return np.clip(y, *np.partition(y, [beyond, n - 1 - beyond])[[beyond, n - 1 - beyond]])


def _levels(values: Floats, group: Ints, groups: int, weights: Floats) -> Floats:
    mass, sums = (np.bincount(group, x, minlength=groups) for x in (weights, weights * values))
    return np.where(mass > 0, sums / np.where(mass > 0, mass, 1.0), sums.sum() / mass.sum())
