"""What the quantile is made of, before and after: exact, and not a cause."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.attribution.compose import composition
from analysis.attribution.model import Side, Split
from analysis.composition import compose
from analysis.quantiles import hd_quantile
from tests.analysis.attribution.generators import AS_WAS, CASES, plain, resampled, side


def split_of(a: Side, b: Side, q: float | None, rounds: int = 50) -> Split:
    found = composition(a, b, q, resampled(a, b, rounds, blocks=100))
    assert isinstance(found, Split)
    return found


@pytest.mark.parametrize("q", [0.5, 0.95, 0.99])
def test_shares_add_up_to_the_change_exactly(q: float) -> None:
    a, b = side(AS_WAS, 3000, 1), side(CASES["hits, decode, queue"], 2000, 2, "B")
    split = split_of(a, b, q)
    assert split.change == hd_quantile(b.totals, q) - hd_quantile(a.totals, q)
    assert split.values.sum() == pytest.approx(split.change, abs=1e-9)
    assert split.residual == pytest.approx(0.0, abs=1e-9)
    # binned: a thousandth of the quantile itself
    assert np.abs(split.residual_replicates).max() < 0.001 * hd_quantile(b.totals, q)
    expected = compose(b.totals, b.times, [q])[1] - compose(a.totals, a.times, [q])[1]
    assert split.values == pytest.approx(expected)


def test_the_mean_is_the_layers_means() -> None:
    a, b = side(AS_WAS, 1000, 1), side(CASES["decode + 30 ms"], 1000, 2, "B")
    split = split_of(a, b, None)
    assert split.values == pytest.approx(b.times.mean(axis=1) - a.times.mean(axis=1))
    assert split.residual == pytest.approx(0.0, abs=1e-9)


def test_replicates_are_the_composition_of_resamples() -> None:
    a, b = side(AS_WAS, 2000, 1), side(AS_WAS, 2000, 2, "B")
    drawn = resampled(a, b, 20, blocks=100)
    found = composition(a, b, 0.9, drawn)
    assert isinstance(found, Split)
    for i, replicate in enumerate(found.replicates):
        again = []
        for one, block, counts in ((a, drawn.block_a, drawn.counts_a), (b, drawn.block_b, drawn.counts_b)):
            rows = np.repeat(np.arange(one.n), counts[i][block].astype(int))
            again.append(compose(one.totals[rows], one.times[:, rows], [0.9])[1])
        assert replicate == pytest.approx(again[1] - again[0], abs=0.2)


def test_it_is_not_a_cause() -> None:
    """Decode did not change, but the slow requests are others: its part shrinks all the same."""
    a, b = side(AS_WAS, 20_000, 1), side(CASES["hit rate 0.8 -> 0.4"], 20_000, 2, "B")
    split = split_of(a, b, 0.99)
    assert split.values[split.names.index("decode")] < -2.0


def test_time_that_no_layer_tells_of_is_its_own_part() -> None:
    a = plain({"queue": np.full(100, np.nan)}, totals=np.full(100, 5.0))
    b = plain({"queue": np.full(100, 2.0)}, "B", totals=np.full(100, 6.0))
    split = split_of(a, b, 0.5)
    assert split.names == ("queue", "unattributed")
    assert split.values == pytest.approx([2.0, -1.0])
