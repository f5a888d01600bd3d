"""What requests would have had, had they been the other side's: rank-preserving within strata of like requests.

A request that is the third worst of its stratum gets what the third worst of the other side's stratum has. So a side
that equals the other is left as it is, whatever its values hang on. Among equal values (all requests of a side whose
prompts never changed, say) the order is that of the other side at the same point of its window, so that misses that
came in a burst come in a burst.

Strata are as narrow in length as the data allow. Values that are alike otherwise hang on the length, if only by parts
of a block: over wide strata the worst of those that were found are the shortest ones, hits would be taken from these
alone, and too few tokens with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.attribution.model import NOT_TOLD, Ints, Side
from analysis.quantiles import Floats

FEWEST = 40  # requests of a template, on either side, that stands by itself
FEWEST_OF_LENGTH, MOST_LENGTHS = 10, 128  # requests of a stratum, on either side; strata of a template
_SHARED = (
    0.9  # of the requests have a template that both sides have, else templates are other ones by name alone
)
_LEAST_WEIGHT = 0.02  # of what a stratum could weigh: values that hang on less tell nothing of the rest
_GOLDEN = (5**0.5 - 1) / 2  # its multiples spread evenly over 0 to 1, wherever one stops


@dataclass(frozen=True)
class Strata:
    """Which requests are alike, by number: of either side (n,)."""

    a: Ints
    b: Ints

    def reversed(self) -> Strata:
        """With the sides changed over."""
        return Strata(self.b, self.a)


def strata(a: Side, b: Side) -> Strata:
    """By template, where both sides have the same ones, and by prompt length; a thin stratum joins its neighbour."""
    templates_a, templates_b = _templates(a, b)
    number_a, number_b = np.zeros(a.n, np.int64), np.zeros(b.n, np.int64)
    first = 0
    for template in np.union1d(templates_a, templates_b):
        of_a, of_b = templates_a == template, templates_b == template
        edges = _edges(a.prompt[of_a], b.prompt[of_b])
        number_a[of_a] = first + np.searchsorted(edges, a.prompt[of_a], "right")
        number_b[of_b] = first + np.searchsorted(edges, b.prompt[of_b], "right")
        first += len(edges) + 1
    return Strata(number_a, number_b)


def borrowed(own: Floats, other: Floats, alike: Strata, own_weight: Floats, other_weight: Floats) -> Floats:
    """What the requests of `own` (n,) would have, had they the values of `other` (m,); NaN where nothing tells.

    Requests stand in order of arrival. alike: own is its `a`. weights: how much each value counts, about 1, and 0 where
    it is not known.
    """
    result = np.full(len(own), np.nan)
    count = 1 + int(max(alike.a.max(initial=0), alike.b.max(initial=0)))
    theirs = _Members(np.flatnonzero(other_weight > 0), alike.b, count)
    mass = np.bincount(alike.b, other_weight, count)
    tells = (theirs.count > 0) & (mass >= _LEAST_WEIGHT * np.bincount(alike.b, minlength=count))
    told = own_weight > 0
    untold = _Members(np.flatnonzero(tells[alike.a] & ~told), alike.a, count)
    result[untold.rows] = other[untold.beside(theirs)]

    mine = _Members(np.flatnonzero(tells[alike.a] & told), alike.a, count)
    mine.rank(own, other[mine.beside(theirs)])
    theirs.rank(other)
    # Not always the middle of a weight: of one request in each stratum none would get what few of the others have.
    number = np.cumsum(np.bincount(alike.a, minlength=count) > 0)
    weight = own_weight[mine.rows]
    place = mine.share(weight, mine.upto(weight) - weight * (number * _GOLDEN % 1)[mine.of])
    weight = other_weight[theirs.rows]
    upto = theirs.share(weight, theirs.upto(weight))
    # shares are at most 1: those of a stratum lie between those of its neighbours
    at = np.searchsorted(upto + 2.0 * theirs.of, place + 2.0 * mine.of)
    last = theirs.first + theirs.count - 1
    result[mine.rows] = other[theirs.rows[np.minimum(at, last[mine.of])]]
    return result


class _Members:
    """Requests by stratum, those of one in order of arrival until they are ranked. of: (m,) the stratum of each; count,
    first: (strata,) how many each has, and where they begin."""

    def __init__(self, rows: Ints, strata: Ints, count: int) -> None:
        self.rows = rows[np.argsort(strata[rows], kind="stable")]
        self.of = strata[self.rows]
        self.count = np.bincount(self.of, minlength=count)
        self.first = np.cumsum(self.count) - self.count

    def beside(self, theirs: _Members) -> Ints:
        """For each the one of theirs, in order of arrival, at the same point of the window."""
        place = np.arange(len(self.rows)) - self.first[self.of]
        at = theirs.first[self.of] + place * theirs.count[self.of] // self.count[self.of]
        beside: Ints = theirs.rows[at]
        return beside

    def rank(self, values: Floats, ties: Floats | None = None) -> None:
        """Put those of each stratum in order of their values (by row), equal ones in that of `ties` (m,)."""
        keys = [values[self.rows], self.of]
        self.rows = self.rows[np.lexsort(keys if ties is None else [ties, *keys])]

    def upto(self, weight: Floats) -> Floats:
        """(m,) weights of each stratum, summed up to each of its requests."""
        whole = np.cumsum(weight)
        before = np.append(0.0, whole)[self.first]
        upto: Floats = whole - before[self.of]
        return upto

    def share(self, weight: Floats, part: Floats) -> Floats:
        """(m,) parts of what a stratum weighs."""
        share: Floats = part / np.bincount(self.of, weight, len(self.count))[self.of]
        return share


def _templates(a: Side, b: Side) -> tuple[Ints, Ints]:
    """Those that are thick on both sides; all others together, NOT_TOLD."""
    names, inverse = np.unique(np.concatenate([a.template, b.template]), return_inverse=True)
    of_a, of_b = np.split(inverse.reshape(-1), [a.n])
    counts = [np.bincount(numbers, minlength=len(names)) for numbers in (of_a, of_b)]
    thick = (np.minimum(*counts) >= FEWEST) & (names != NOT_TOLD)
    if min(counts[0][thick].sum() / a.n, counts[1][thick].sum() / b.n) < _SHARED:
        return np.full(a.n, NOT_TOLD), np.full(b.n, NOT_TOLD)
    kept = np.where(thick, np.arange(len(names)), NOT_TOLD)
    return kept[of_a], kept[of_b]


def _edges(a: Floats, b: Floats) -> Floats:
    """Prompt lengths at which strata part, both sides having enough in each."""
    if not len(a) or not len(b):
        return np.empty(0)
    tried = np.unique(np.quantile(np.concatenate([a, b]), np.arange(1, MOST_LENGTHS) / MOST_LENGTHS))
    below = np.stack([np.searchsorted(np.sort(side), tried) for side in (a, b)], axis=1)
    whole, since = np.array([len(a), len(b)]), np.zeros(2)
    edges: list[float] = []
    for edge, upto in zip(tried.tolist(), below, strict=True):
        if min(*(upto - since), *(whole - upto)) >= FEWEST_OF_LENGTH:
            edges.append(edge)
            since = upto
    return np.array(edges)
