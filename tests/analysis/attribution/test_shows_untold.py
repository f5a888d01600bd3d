"""A layer that one side tells for fewer requests: what is missing is in the rest, and is not a time of 0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.attribution.layers import half_told, layers
from analysis.attribution.model import Side, Split
from analysis.attribution.shows.split import shows
from analysis.composition import UNATTRIBUTED
from tests.analysis.attribution.generators import AS_WAS, plain, resampled, side

N = 3000
PREFILL = 1


def without(made: Side, layer: int, share: float) -> Side:
    """As a server tells it that leaves the layer out for that share of its requests; the totals are what they were."""
    times = made.times.copy()
    times[layer, np.random.default_rng(5).random(made.n) < share] = np.nan
    return replace(made, times=times)


def slower(made: Side, by: float) -> Side:
    times = made.times.copy()
    times[PREFILL] += by
    return replace(made, times=times, totals=times.sum(axis=0))


@pytest.mark.parametrize("by", [0.0, 6.0])
@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_a_layer_told_for_a_part_is_no_faster(by: float, share: float) -> None:
    """The rest, which now has prefill on both sides, became slower by what prefill did; nothing became faster."""
    a, b = side(AS_WAS, N, 1), without(slower(side(AS_WAS, N, 2, "B"), by), PREFILL, share)
    found = shows(a, b, 0.5, resampled(a, b, 100, blocks=100))
    assert isinstance(found, Split)
    assert "prefill" not in found.names
    at = found.names.index(UNATTRIBUTED)
    low, high = np.quantile(found.replicates[:, at], [0.025, 0.975])
    # of prefill's 6 ms the median shows what its requests have of it: those of the same traffic, told in full
    assert found.values[at] == pytest.approx(by, abs=max(0.5, 2 * (high - low)))
    if not by:
        assert low <= 0 <= high
    assert any(note.startswith("prefill is told by 100.0% of A's requests") for note in found.notes)


def test_a_layer_that_was_not_passed_is_not_missing() -> None:
    """A tier asked by more requests of one side: where it was not, the total has nothing of it."""
    rng = np.random.default_rng(0)
    sides = []
    for name, asked in (("A", 0.1), ("B", 0.4)):
        origin = np.where(rng.random(N) < asked, 100 * rng.gamma(9, 1 / 9, N), np.nan)
        edge, rest = rng.gamma(4, 5, N), rng.exponential(2.0, N)
        sides.append(
            plain({"edge": edge, "origin": origin}, name, totals=edge + np.nan_to_num(origin) + rest)
        )
    assert not half_told(*sides)
    assert layers(*sides)[0] == ("edge", "origin", UNATTRIBUTED)


def test_what_both_sides_leave_out_alike_stays() -> None:
    a, b = (without(side(AS_WAS, N, seed), PREFILL, 0.5) for seed in (1, 2))
    assert not half_told(a, b)
    assert "prefill" in layers(a, b)[0]


def test_layers_add_up_whatever_is_told() -> None:
    a, b = side(AS_WAS, N, 1), without(without(side(AS_WAS, N, 2, "B"), PREFILL, 0.3), 2, 0.6)
    assert set(half_told(a, b)) == {"prefill", "decode"}
    _, of_a, of_b = layers(a, b)
    for made, times in ((a, of_a), (b, of_b)):
        assert np.nansum(times, axis=0) == pytest.approx(made.totals)
