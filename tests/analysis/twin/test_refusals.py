"""Sides that no twin can speak for: each is told why, and what would help."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.attribution.model import Side
from analysis.twin.fit import fit
from analysis.twin.model import Law, Limits, NoTwin, Told
from analysis.twin.workload import known, observed, workload
from tests.analysis.twin.plain import real_side, traffic

LAW = Law(step=5.0, prefill=0.06, attention=0.004, decode=0.25, context=0.03, host=0.01, host_fixed=2.0)


@pytest.fixture(scope="module")
def side() -> Side:
    return real_side(traffic(200, 1, 5.0), LAW, Limits(16, 512))


def without(side: Side, layer: str, rows: slice = slice(None)) -> Side:
    times = side.times.copy()
    times[side.layers.index(layer), rows] = np.nan
    return replace(side, times=times)


def test_too_few(side: Side) -> None:
    with pytest.raises(NoTwin, match="a has 99 requests, a twin takes 100"):
        fit(side.subset(np.arange(99)))


def test_layers_that_nothing_tells(side: Side) -> None:
    with pytest.raises(NoTwin, match=r"have no queue and decode time: it takes the server's spans"):
        fit(without(without(side, "queue"), "decode"))


def test_some_that_are_not_known(side: Side) -> None:
    """A few are left out; many would be missed as load."""
    assert known(without(side, "prefill", slice(0, 10))).n == 190
    with pytest.raises(
        NoTwin, match="6% of the requests of a lack times or tokens, and loaded the server too"
    ):
        known(without(side, "prefill", slice(0, 11)))


def test_several_servers(side: Side) -> None:
    with pytest.raises(NoTwin, match="a has 2 servers, a twin is of one: ask for one with server=NAME"):
        fit(replace(side, server=np.arange(200) % 2))


def test_a_thinned_side(side: Side) -> None:
    with pytest.raises(NoTwin, match="thinned to one request in 3: ask for a shorter window"):
        fit(replace(side, sampled=3))


def test_hits_that_nothing_tells(side: Side) -> None:
    with pytest.raises(NoTwin, match="how many prompt tokens of a were cached is told for no request"):
        fit(replace(side, tokens=np.full_like(side.tokens, np.nan)))


def test_load_that_spans_do_not_show(side: Side) -> None:
    told = Told(max_num_seqs=16, max_num_batched_tokens=512, requests=300)
    with pytest.raises(NoTwin, match="a has 200 requests, and the server's counters say 300"):
        fit(side, told)
    assert known(side, replace(told, requests=210)).n == 200


def test_a_side_by_first_token_has_the_rest_beside(side: Side) -> None:
    """Its layers may be the metric's alone: what else a twin needs stands beside."""
    inside = ("frontend", "queue", "host", "prefill")
    rows = [side.layers.index(name) for name in inside]
    beside = {name: side.time(name) for name in ("remote", "decode", "other")}
    short = replace(side, layers=inside, times=side.times[rows], beside=beside)
    for name in ("ttft", "e2e", "queue", "decode"):
        np.testing.assert_allclose(getattr(observed(short), name), getattr(observed(side), name))


def test_causes_are_computed_tokens(side: Side) -> None:
    """However a side calls them, and whatever tier served the rest."""
    tokens = np.stack([side.tokens[0] + side.tokens[1], side.tokens[2] / 4, 3 * side.tokens[2] / 4])
    caused = replace(side, sources=("cached", "changed", "cold"), tokens=tokens)
    np.testing.assert_allclose(workload(caused).computed, workload(side).computed)
    assert not workload(caused).host.any()
