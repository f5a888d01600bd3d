"""What swapping is built of: ranks that do not clip, strata that both sides have, laws that are lent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.attribution.shows.laws import Law, law, merged
from analysis.attribution.shows.strata import THICK, Line, edges, fit, groups
from analysis.attribution.shows.transport import lots, ranked
from tests.analysis.attribution.generators import AS_WAS, plain, side


@pytest.mark.parametrize(("n", "m"), [(1000, 1000), (1000, 90), (90, 1000), (700, 999)])
def test_every_value_is_met_as_often_as_it_should_be(n: int, m: int) -> None:
    rng = np.random.default_rng(n + m)
    own, other = side(AS_WAS, n, 1), side(AS_WAS, m, 2)
    values, zeros = rng.pareto(3.0, m), np.zeros(max(n, m), dtype=np.int64)
    means, largest = [], []
    for salt in range(200):
        source = ranked(rng.exponential(size=n), zeros[:n], 1, lots(own), salt)
        target = ranked(values, zeros[:m], 1, lots(other), salt)
        moved = values[target.row(zeros[:n], source.rank)]
        means.append(moved.mean())
        largest.append((moved == values.max()).mean())
    assert np.mean(means) == pytest.approx(values.mean(), rel=0.02)
    assert np.mean(largest) == pytest.approx(1 / m, rel=0.25)


def test_the_same_set_onto_itself_stays_as_it_is() -> None:
    made = side(AS_WAS, 500, 1)
    ranks = ranked(made.times[2], made.template, 3, lots(made), 1)
    assert (ranks.row(made.template, ranks.rank) == np.arange(500)).all()


def test_ties_get_their_ranks_by_lot_and_not_by_place() -> None:
    made, order = side(AS_WAS, 400, 1), np.random.default_rng(0).permutation(400)
    again, zeros = made.subset(order), np.zeros(400, dtype=np.int64)
    first = ranked(np.ones(400), zeros, 1, lots(made), 7)
    second = ranked(np.ones(400), zeros, 1, lots(again), 7)
    assert second.rank == pytest.approx(first.rank[order])
    assert abs(np.corrcoef(first.rank, np.arange(400))[0, 1]) < 0.2
    other = ranked(np.ones(400), zeros, 1, lots(made), 8)
    assert abs(np.corrcoef(first.rank, other.rank)[0, 1]) < 0.2


def test_strata_are_thick_on_both_sides() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.lognormal(3, 1, 5000), rng.lognormal(3.5, 1, 2000)
    cuts = edges(a, b)
    assert len(cuts) >= 4
    for values in (a, b):
        assert np.bincount(np.searchsorted(cuts, values, side="right")).min() >= THICK - 1


def test_rounding_does_not_decide_in_which_stratum_a_value_is() -> None:
    """Edges lie between values, also where some that are meant to be equal are not quite."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 9, n) * np.exp(1e-13 * rng.standard_normal(n)) for n in (5000, 2000))
    cuts = edges(a, b)
    assert len(cuts) >= 4
    assert np.abs(np.concatenate([a, b])[:, None] - cuts).min() > 0.4
    assert np.array_equal(edges(b, a), cuts)
    assert len(edges(np.full(5000, 0.1), np.full(2000, 0.1 * (1 + 1e-12)))) == 0


def test_groups_are_thick_and_the_rest_is_one() -> None:
    template = np.concatenate([np.repeat([1, 2], 1000), np.arange(100, 110)])
    times = {"decode": np.ones(len(template))}
    a, b = plain(times, template=template), plain(times, "B", template=np.where(template == 2, 3, template))
    found = groups(a, b)
    assert found.count == 2
    assert found.alone == pytest.approx((1000 / 2010, 1000 / 2010))
    assert len(set(found.a[template == 1])) == 1


def test_terms_that_cannot_be_told_apart_take_the_slopes_that_are_lent() -> None:
    rng = np.random.default_rng(0)
    one = rng.uniform(100, 1000, 3000)
    terms, group = np.stack([one, 0.2 * one]), np.zeros(3000, dtype=np.int64)
    towards = replace(Line.flat(2, 1), slopes=np.array([0.0, 3.0]))
    found = fit(terms, 3.0 * 0.2 * one + rng.normal(size=3000), group, towards)
    assert found.slopes == pytest.approx([0.0, 3.0], abs=0.01)


def test_terms_that_explain_nothing_have_no_slope() -> None:
    slopes = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        terms, group = rng.uniform(100, 1000, (4, 3000)), rng.integers(0, 2, 3000)
        terms[2] = terms[0] + 0.1 * terms[1]  # goes together with what does
        y = 0.02 * terms[0] + 5.0 * group + rng.exponential(5, 3000)
        slopes.append(fit(terms, y, group, Line.flat(4, 2)).slopes)
    told = np.array(slopes)
    assert told[:, 0] + told[:, 2] == pytest.approx(np.full(20, 0.02), abs=0.004)
    assert (told[:, 3] == 0).mean() >= 0.9
    assert np.count_nonzero(told, axis=1).mean() <= 1.3


def test_a_law_knows_that_noise_grows() -> None:
    rng = np.random.default_rng(0)
    size = rng.lognormal(5, 1, 20_000)
    terms, group = size[None], np.zeros(len(size), dtype=np.int64)
    times = 4 + 0.1 * size * np.exp(0.1 * rng.standard_normal(len(size)))
    flat = Line.flat(1, 1)
    off = law((terms, times, group), Law(flat, flat, 1.0)).off(times, terms, group)
    large, middle = off[size > np.quantile(size, 0.95)], off[np.abs(size - np.median(size)) < 30]
    # in milliseconds the noise of the large ones is more than five times that of the middle
    assert large.std() == pytest.approx(middle.std(), rel=0.5)


def test_a_line_bends_where_more_computed_tokens_do_and_nowhere_else() -> None:
    towards = Line.flat(3, 1, np.array([250.0, 500.0, 750.0]))
    crooked, found = 0, []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        terms, group = rng.uniform(100, 1000, (3, 4000)), np.zeros(4000, dtype=np.int64)
        straight = 0.1 * terms[2] + rng.normal(size=4000)
        crooked += bool(fit(terms, straight, group, towards).bends.any())
        bent = fit(terms, straight + 0.2 * np.maximum(terms[2] - 500, 0), group, towards)
        found.append(bent.bends)
        assert bent(terms, group) == pytest.approx(straight + 0.2 * np.maximum(terms[2] - 500, 0), abs=6)
    assert crooked <= 2
    assert np.mean(found, axis=0) == pytest.approx([0.0, 0.2, 0.0], abs=0.01)


def test_strata_that_do_not_differ_are_one() -> None:
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        stratum = rng.integers(0, 4, 4000)
        same = rng.exponential(size=(2, 4000))
        found.append(merged((same[0], stratum), (same[1], stratum), 4).max())
        steps = same + (stratum >= 2)
        number = merged((steps[0], stratum), (steps[1], stratum), 4)
        assert number[2] > number[1]
    # three borders, each on two sides, at 5 %: at most 0.3 of a border by chance, with three standard errors
    assert np.mean(found) < 0.3 + 3 * np.sqrt(0.3 / 40)


def test_servers_of_another_order_are_the_same_groups() -> None:
    at = np.random.default_rng(0).integers(0, 2, 3000)
    a = plain({"decode": np.ones(3000)}, server=at, servers=("x", "y"))
    b = replace(a, server=1 - at, servers=("y", "x"))
    assert (groups(a, b).a == groups(a, b).b).all()
