"""A chain is attributed as the built-in layers are: lost hits to who no longer answers, not to the layers behind."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.attribution.certainty.gate import judge
from analysis.attribution.certainty.inputs import own_changes
from analysis.attribution.certainty.resampling import resampling
from analysis.attribution.model import Refused, Side, Verdict, View
from analysis.attribution.shows.split import shows

N, SECONDS = 3000, 3000.0
Pair = tuple[float, float]


def side(name: str, cdn: float, edge: float, seed: int, slow_edge: float = 0.0, sized: bool = True) -> Side:
    """Requests of which a share is answered by the CDN, of the rest one by the edge, the others by the origin."""
    rng = np.random.default_rng(seed)
    by_cdn, by_edge = rng.random(N) < cdn, rng.random(N) < edge
    source = np.where(by_cdn, 0, np.where(by_edge, 1, 2))
    size = np.ceil(20_000 * rng.lognormal(0, 0.4, N))
    noise = rng.lognormal(0, 0.2, (3, N))
    times = (
        np.stack([5 + size / 1e4, np.where(source > 0, 10 + slow_edge, 0.0), np.where(source > 1, 60.0, 0.0)])
        * noise
    )
    tokens = np.zeros((3, N))
    tokens[source, np.arange(N)] = 1.0
    begin = 0.0 if name == "a" else SECONDS
    return Side(
        name=name,
        arrival=begin + np.sort(rng.uniform(0, SECONDS, N)),
        totals=times.sum(axis=0) + rng.exponential(3, N),
        layers=("cdn", "edge", "origin"),
        times=times,
        prompt=np.ones(N),
        completion=size if sized else np.zeros(N),
        sources=("answered by cdn", "answered by edge", "answered by origin"),
        tokens=tokens,
        template=np.zeros(N, np.int64),
        server=np.zeros(N, np.int64),
        servers=("client",),
        begin=begin,
        end=begin + SECONDS,
    )


def shown(a: Side, b: Side) -> View:
    drawn = resampling(a, b, np.random.default_rng(0), 100)
    split = shows(a, b, None, drawn)
    assert not isinstance(split, Refused)
    return judge(split, own_changes(a, b, drawn), drawn)


def named(view: View) -> dict[str, float]:
    return {share.name: share.value for share in view.shares if share.verdict is Verdict.NAMED}


@pytest.mark.parametrize(("cdn", "edge"), [((0.5, 0.5), (0.8, 0.4)), ((0.7, 0.4), (0.6, 0.6))])
def test_lost_hits_are_answers_of_those_behind(cdn: Pair, edge: Pair) -> None:
    """Truth: what more requests take that go on, 10 ms to the edge and 60 ms more to the origin, and the mean of the
    noise. Where sizes are not told it is found whole; where they are, strata by size mix a few of those that were
    answered before a layer with those that reached it, and up to a quarter shows as the layer's own."""
    truth = float(_expected(cdn[1], edge[1]) - _expected(cdn[0], edge[0]))
    for sized, least in ((False, 0.93), (True, 0.75)):
        view = shown(side("a", cdn[0], edge[0], 1, sized=sized), side("b", cdn[1], edge[1], 2, sized=sized))
        found = sum(share.value for share in view.shares if share.name.startswith("answered"))
        assert least < found / truth < 1.07, f"sized {sized}: {found:.1f} of {truth:.1f} ms: {view.shares}"
        if not sized:
            assert not {"cdn", "edge", "origin"} & set(named(view)), named(view)


def _expected(cdn: float, edge: float) -> float:
    return float((1 - cdn) * (10 + (1 - edge) * 60) * np.exp(0.02))


def test_a_slower_layer_is_that_layer() -> None:
    found = named(shown(side("a", 0.5, 0.6, 1), side("b", 0.5, 0.6, 2, slow_edge=30.0)))
    assert set(found) == {"edge"}
    assert abs(found["edge"] - 0.5 * 30 * np.exp(0.02)) < 1.5


def test_nothing_is_named_where_nothing_happened() -> None:
    a, b = side("a", 0.6, 0.6, 1), side("b", 0.6, 0.6, 2)
    assert named(shown(a, b)) == {}
