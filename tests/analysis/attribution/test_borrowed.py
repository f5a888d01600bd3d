"""What a side would have with the other's values: all strata at once, against one stratum after the other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.attribution.caused.borrowed import Strata, borrowed

_GOLDEN = (math.sqrt(5) - 1) / 2


def slowly(
    own: list[float], other: list[float], alike: Strata, own_weight: list[float], other_weight: list[float]
) -> list[float]:
    """The same in plain Python, request by request."""
    found = [math.nan] * len(own)
    for at, stratum in enumerate(sorted(set(alike.a.tolist())), start=1):
        there = [i for i, one in enumerate(alike.b.tolist()) if one == stratum]
        theirs = [i for i in there if other_weight[i] > 0]
        mass = sum(other_weight[i] for i in theirs)
        if not theirs or mass < 0.02 * len(there):
            continue
        ranked = sorted(theirs, key=lambda i: other[i])
        members = [i for i, one in enumerate(alike.a.tolist()) if one == stratum]
        for told in (False, True):
            some = [i for i in members if (own_weight[i] > 0) == told]
            beside = {i: other[theirs[k * len(theirs) // len(some)]] for k, i in enumerate(some)}
            found = [beside.get(i, value) for i, value in enumerate(found)]
        mine, upto = sorted(some, key=lambda i: (own[i], beside[i])), 0.0
        whole = sum(own_weight[i] for i in mine)
        for i in mine:
            upto += own_weight[i]
            place, k = (upto - own_weight[i] * (at * _GOLDEN % 1)) / whole, 0
            while k < len(ranked) - 1 and sum(other_weight[j] for j in ranked[: k + 1]) / mass < place:
                k += 1
            found[i] = other[ranked[k]]
    return found


@pytest.mark.parametrize("digits", [0, 1, 6], ids=["many alike", "some alike", "none alike"])
@pytest.mark.parametrize("weighted", [False, True])
def test_all_strata_at_once_are_each_by_itself(digits: int, weighted: bool) -> None:
    rng = np.random.default_rng(digits)
    for _ in range(60):
        n, m, strata = rng.integers(1, [60, 60, 8]).tolist()
        alike = Strata(rng.integers(0, strata, n), rng.integers(0, strata, m))
        own, other = (np.round(rng.exponential(size=size), digits) for size in (n, m))
        weights = [
            rng.choice([0.0, 1.0, 1.25, 0.001], size) if weighted else np.ones(size) for size in (n, m)
        ]
        found = borrowed(own, other, alike, *weights)
        plain = slowly(own.tolist(), other.tolist(), alike, *(one.tolist() for one in weights))
        assert np.array_equal(found, np.array(plain), equal_nan=True)
