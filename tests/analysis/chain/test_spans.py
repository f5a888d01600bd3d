"""From spans to a side: what each layer took without what lies in it, who answered, and what is not known."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from analysis.attribution.model import NOT_TOLD
from analysis.chain.model import Chain, Layer, Spans, Workload
from analysis.chain.read import read_chain
from analysis.chain.spans import attribute_names, chain_side
from analysis.selection import Selection, parse_set
from cachemodel.errors import UsageError, UserError
from tests.analysis.chain.stored import START, Request, put
from tests.analysis.chain.test_read import EXAMPLE
from tests.conftest import Database

ALL = Selection("all", "1")
CDN = read_chain(Path(EXAMPLE))
SIZED = {"http.response.body.size": "3000", "http.route": "/img"}


def asked(text: str, *labels: str) -> Selection:
    return parse_set(text, now=START + timedelta(days=1), labels=labels, prefix="a")


def test_each_layer_is_without_what_lies_in_it(db: Database) -> None:
    put(
        db.client,
        [
            Request(0, 10, {"cdn": 4}, hits=("cdn",), attributes=SIZED),
            Request(1, 30, {"cdn": 25, "edge": 20}, hits=("edge",), attributes=SIZED),
            Request(2, 100, {"cdn": 90, "edge": 80, "origin": 60}, attributes=SIZED | {"http.route": "/api"}),
        ],
    )
    side = chain_side(db.client, CDN, ALL)
    assert side.layers == ("cdn", "edge", "origin")
    assert side.totals.tolist() == [10, 30, 100]
    assert side.times.tolist() == [[4, 5, 10], [0, 20, 20], [0, 0, 60]]
    assert side.sources == ("answered by cdn", "answered by edge", "answered by origin")
    assert side.tokens.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert side.prompt.tolist() == [1] * 3
    assert side.completion.tolist() == [3000] * 3
    assert side.template[0] == side.template[1] != side.template[2]
    assert (side.arrival - START.timestamp()).tolist() == [0, 1, 2]
    assert (side.servers, side.begin, side.end) == (("client",), START.timestamp(), START.timestamp() + 2)
    assert side.notes == ()


def test_what_nobody_tells_is_not_zero(db: Database) -> None:
    put(db.client, [Request(0, 10, {"cdn": 4}, hits=("cdn",)), Request(1, 30, {"cdn": 25, "edge": 20})])
    side = chain_side(db.client, CDN, ALL)
    assert np.isnan(side.time("origin")).all()
    assert np.isnan(side.completion).all()
    assert (side.template == NOT_TOLD).all()
    # the edge says that it did not answer, and nobody else does
    assert np.isnan(side.tokens[:, 1]).all()


def test_a_span_that_came_twice_counts_once(db: Database) -> None:
    for _ in range(2):
        put(db.client, [Request(0, 10, {"cdn": 4}, hits=("cdn",), attributes=SIZED)])
    side = chain_side(db.client, CDN, ALL)
    assert side.n == 1
    assert side.time("cdn").tolist() == [4]


def test_spans_that_overlap_are_told(db: Database) -> None:
    put(db.client, [Request(0, 10, {"cdn": 4, "edge": 6}, hits=("edge",), attributes=SIZED)])
    side = chain_side(db.client, CDN, ALL)
    assert side.times[:2].tolist() == [[-2], [6]]
    assert side.notes == ("100% of the requests spend less in cdn than in what lies in it: spans overlap",)


def test_times_that_are_attributes(db: Database) -> None:
    layers = (
        Layer("lookup", "m", "#000000", attribute="lookup.us", unit="us"),
        Layer("fetch", "m", "#111111", parent="lookup", attribute="fetch", unit="s"),
    )
    chain = Chain("c", "m", Spans("GET"), layers, Workload())
    put(
        db.client,
        [
            Request(0, 10, attributes={"lookup.us": "2500", "fetch": "0.001"}),
            Request(1, 10, attributes={"lookup.us": "2500", "fetch": "no number"}),
        ],
    )
    side = chain_side(db.client, chain, ALL)
    assert side.times.tolist() == [[1.5, 2.5], [1, 0]]
    assert side.sources == ()
    assert side.completion.tolist() == [0, 0]


def test_only_the_spans_that_are_described(db: Database) -> None:
    put(db.client, [Request(0, 10, {"cdn": 4, "dns": 3}), Request(1, 10, service="crawler")])
    assert chain_side(db.client, CDN, ALL).totals.tolist() == [10]
    every = replace(CDN, request=Spans("G*", "c*"))
    assert chain_side(db.client, every, ALL).servers == ("client", "crawler")
    with_route = replace(CDN, request=Spans("GET", where={"http.route": "/i*"}))
    with pytest.raises(UserError, match="no span is 'GET'; spans here: GET of client"):
        chain_side(db.client, with_route, ALL)


def test_sets_are_windows_servers_and_attributes(db: Database) -> None:
    put(db.client, (Request(at, at + 1, attributes={"release": f"v{at % 2}"}) for at in range(10)))
    assert attribute_names(db.client, CDN) == ["release"]
    assert chain_side(db.client, CDN, asked("release=v1", "release")).totals.tolist() == [2, 4, 6, 8, 10]
    window = chain_side(db.client, CDN, asked("2026-11-29T12:00:02/2026-11-29T12:00:05,server=cl*"))
    assert window.totals.tolist() == [3, 4, 5]
    assert (window.begin - START.timestamp(), window.end - START.timestamp()) == (2, 5)
    with pytest.raises(
        UserError, match="no request matches 'release=v7'; 10 of delivery are there, 2026-11-29 12:00"
    ):
        chain_side(db.client, CDN, asked("release=v7", "release"))
    with pytest.raises(UsageError, match="requests of a chain have no ttft_us"):
        chain_side(db.client, CDN, asked("ttft_us>5"))


def test_nothing_there(db: Database) -> None:
    with pytest.raises(UserError, match="spans here: none: send some to hitmap's OTLP port"):
        chain_side(db.client, CDN, ALL)


def test_a_large_side_is_thinned_and_says_so(db: Database) -> None:
    put(db.client, (Request(at / 10, 5) for at in range(400)))
    side = chain_side(db.client, CDN, ALL, most=150)
    assert 80 < side.n < 190
    assert side.sampled == 3
    assert side.notes == ("one request in 3 was read, of 400",)


def test_hostile_names_stay_values(db: Database) -> None:
    put(db.client, [Request(0, 10)])
    nasty = replace(CDN, request=Spans("GET' OR 1=1 --", where={"k'] OR 1 --": "%"}))
    with pytest.raises(UserError):
        chain_side(db.client, nasty, ALL)
    assert math.isclose(chain_side(db.client, CDN, ALL).totals[0], 10)
