"""Sources of tokens and chains of caches: lost hits are laid on who lost them, with the right sign and size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.attribution.model import Side, Split
from analysis.attribution.shows.laws import gate
from analysis.attribution.shows.split import shows
from analysis.attribution.shows.strata import LOADS, REST, THICK, groups, parts
from analysis.attribution.shows.swap import _mixed
from analysis.quantiles import Floats, hd_quantile
from tests.analysis.attribution.generators import AS_WAS, plain, resampled, side

N, TOP = 6000, 16.0


def caused(made: Side, clock: bool, seed: int, late: float = 0.0, odd: float = 0.0) -> Side:
    """Prompts of which a part is cold and, of the rest, some is evicted. clock: the time stands at the top, behind TOP
    tokens, so that all templates are new and all that is not cold is computed as `changed`, but in a share `late` of
    the requests. odd: share of requests with a template of their own."""
    rng = np.random.default_rng(seed)
    cold = made.prompt * rng.beta(2, 12, made.n)
    lost = (rng.random(made.n) < 0.2) * rng.beta(2, 2, made.n)
    new = (rng.random(made.n) >= late) & clock
    noise, alone = np.exp(0.1 * rng.standard_normal(made.n)), rng.random(made.n) < odd
    changed = np.where(new, np.maximum(made.prompt - cold - TOP, 0), 0.0)
    evicted = (made.prompt - cold - changed) * lost
    served = made.prompt - cold - changed - evicted
    times = made.times.copy()
    times[1] = 4 + 0.04 * (made.prompt - served) * noise
    template = np.where(new, made.template + 10 + np.arange(made.n) % 50 * 20, made.template)
    return replace(
        made,
        sources=("device", "evicted", "changed", "cold"),
        tokens=np.stack([served, evicted, changed, cold]),
        times=times,
        totals=times.sum(axis=0),
        template=np.where(alone, 10**6 + np.arange(made.n), template),
    )


def quantile(totals: Floats, q: float | None) -> float:
    return float(totals.mean()) if q is None else hd_quantile(totals, q)


@pytest.mark.parametrize("q", [None, 0.95])
@pytest.mark.parametrize(("late", "odd"), [(0.0, 0.0), (0.05, 0.01)])
def test_a_clock_at_the_top_is_what_changed(q: float | None, late: float, odd: float) -> None:
    """Nothing is known of evictions under the clock, where hardly anything is left to evict: they did not fall."""
    a, b = (
        caused(side(AS_WAS, N, 1), False, 11, 0.0, odd),
        caused(side(AS_WAS, N, 2, "B"), True, 12, late, odd),
    )
    split = shows(a, b, q, resampled(a, b, 100, blocks=100))
    assert isinstance(split, Split)
    share = dict(zip(split.names, split.values.tolist(), strict=True))
    # the same traffic with and without the clock, on both sides
    with_clock, without = (
        caused(side(AS_WAS, N, 1), True, 11, late, odd),
        caused(side(AS_WAS, N, 2), False, 12, 0.0, odd),
    )
    true = (
        quantile(with_clock.totals, q)
        - quantile(a.totals, q)
        + quantile(b.totals, q)
        - quantile(without.totals, q)
    ) / 2
    print(
        q,
        f"true {true:.1f}",
        {name: round(value, 1) for name, value in share.items()},
        f"{split.residual:.1f}",
    )
    assert share["changed"] == pytest.approx(true, rel=0.1)
    for name in ("evicted", "cold", "prefill"):
        assert abs(share[name]) < 0.03 * true, name
    assert abs(split.residual) < 0.1 * true


def chain(cdn: float, edge: float, seed: int) -> Side:
    """Requests of all sizes, each answered as a whole by the first of three caches that has it."""
    rng = np.random.default_rng(seed)
    by_cdn, by_edge = rng.random(N) < cdn, rng.random(N) < edge
    source = np.where(by_cdn, 0, np.where(by_edge, 1, 2))
    size = np.ceil(20_000 * rng.lognormal(0, 0.4, N))
    own = np.stack([5 + size / 1e4, np.where(source > 0, 10.0, 0.0), np.where(source > 1, 60.0, 0.0)])
    tokens = np.zeros((3, N))
    tokens[source, np.arange(N)] = 1.0
    names = ("cdn", "edge", "origin")
    made = plain(
        dict(zip(names, own * rng.lognormal(0, 0.2, (3, N)), strict=True)), prompt=np.ones(N), completion=size
    )
    return replace(made, sources=tuple(f"answered by {name}" for name in names), tokens=tokens)


@pytest.mark.parametrize(("before", "after"), [((0.5, 0.5), (0.8, 0.4)), ((0.7, 0.4), (0.6, 0.6))])
def test_lost_hits_of_a_chain_do_not_leak_into_the_layers_behind(
    before: tuple[float, float], after: tuple[float, float]
) -> None:
    a, b = chain(*before, 1), replace(chain(*after, 2), name="B")
    split = shows(a, b, None, resampled(a, b, 100, blocks=100))
    assert isinstance(split, Split)
    ways = [(1 - cdn) * (10 + (1 - edge) * 60) * np.exp(0.02) for cdn, edge in (before, after)]
    share = dict(zip(split.names, split.values.tolist(), strict=True))
    answered = sum(value for name, value in share.items() if name.startswith("answered"))
    sigma = split.change_replicates.std()
    assert answered == pytest.approx(ways[1] - ways[0], abs=2.5 * sigma)
    for name in ("cdn", "edge", "origin"):
        assert abs(share[name]) < 0.05 * abs(ways[1] - ways[0]), name


def test_a_layer_is_reached_by_loads_of_its_own_or_from_behind_it() -> None:
    loads = np.zeros((LOADS + 2, 400))
    loads[0], loads[LOADS, 100:200], loads[LOADS + 1, 200:300] = 1.0, 1.0, 1.0
    edge, origin, everybody = np.zeros((3, 400), dtype=bool)
    edge[100:300], origin[200:300] = True, True
    assert gate(loads, loads, edge, edge) == (LOADS, LOADS + 1)
    assert gate(loads, loads, origin, origin) == (LOADS + 1,)
    assert gate(loads, loads, ~everybody, ~everybody) == ()
    assert gate(loads[:LOADS], loads[:LOADS], edge, edge) == ()


def test_a_stick_breaks_from_the_last_source_on() -> None:
    taken, left = parts(np.array([[0.3, 0.0], [0.2, 0.0], [0.5, 1.0]]), 0)
    assert taken[2].tolist() == [0.5, 1.0]
    assert left[2].tolist() == [1.0, 1.0]
    assert taken[1].tolist() == [pytest.approx(0.4), 0.0]
    assert left[1].tolist() == [0.5, 0.0]


def test_parts_of_next_to_nothing_are_not_lent() -> None:
    """device, evicted, changed: there, 2 % are left when `changed` has taken its part, of which none is evicted."""
    own, theirs = np.array([[0.6], [0.4], [0.0]]), np.array([[0.02], [0.0], [0.98]])
    assert _mixed(own, theirs, frozenset({1}), 0)[1] == pytest.approx(0.96 * 0.4)
    assert _mixed(own, theirs, frozenset({2}), 0)[:, 0].tolist() == pytest.approx([0.012, 0.008, 0.98])
    # and without the change, as much is evicted there as here
    assert _mixed(theirs, own, frozenset({2}), 0)[1] == pytest.approx(0.96 * 0.4)
    both = _mixed(own, theirs, frozenset({1, 2}), 0)
    assert both[:, 0].tolist() == pytest.approx([0.02, 0.0, 0.98])
    assert both.sum(axis=0) == pytest.approx(1.0)


def test_a_rest_that_is_thin_on_one_side_is_no_group() -> None:
    """Fifty odd requests of A would stand for nearly all of B, whose templates are new."""
    template = np.repeat([1, 2], 2000)
    odd = np.arange(100, 150)
    times = {"decode": np.ones(4050)}
    a = plain(times, template=np.concatenate([template, odd]))
    b = plain(times, "B", template=np.concatenate([np.repeat([1, 2], 300), 1000 + np.arange(3450)]))
    found = groups(a, b)
    sizes = np.stack([np.bincount(g, minlength=found.count) for g in (found.a, found.b)])
    assert sizes[:, REST].min() >= THICK
    assert found.count == 2
