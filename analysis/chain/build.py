"""A chain of one's own, two sets of its requests in, one Report out: what `hitmap report --layers FILE` shows."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.attribution.build import Pair, explain
from analysis.attribution.certainty.gate import Own
from analysis.attribution.certainty.history import Past, deploys
from analysis.attribution.certainty.placebo import MOST_PAIRS, Spans
from analysis.attribution.model import Fidelity, Refused, Share, Side, View
from analysis.chain.model import Chain
from analysis.chain.read import read_chain
from analysis.chain.spans import attribute_names, chain_side, check_there
from analysis.report.build import FEWEST, build
from analysis.report.compare import Asked
from analysis.report.metrics import Metric
from analysis.report.model import Report
from analysis.report.reader import TOKEN_COLUMNS, Requests
from analysis.report.words import warnings
from analysis.selection import Selection, parse_set
from cachemodel.errors import UserError

_WORDS = {
    "a completion longer or shorter": "a size larger or smaller",
    "how long their completion is": "their size",
    "where their prompt's tokens came from": "who answered",
}
MOST_OF_THE_PAST = 500_000  # requests
NO_TWIN = "only LLM servers are replayed: a layer that waits for another shows that one's change as its own"


def compare_chain(client: Client, path: Path, a: str, b: str, asked: Asked) -> Report:
    """Compare two sets of a chain's requests, each written as `analysis.selection` says; raises UserError.

    asked: its metric is not looked at, a chain has one.
    """
    chain = read_chain(path)
    check_there(client, chain)
    labels, now = attribute_names(client, chain), datetime.now(UTC)
    left, right = (parse_set(text, now=now, labels=labels, prefix=p) for text, p in ((a, "a"), (b, "b")))
    asked.progress("reading spans")
    sides = chain_side(client, chain, left), chain_side(client, chain, right)
    for side in sides:
        if side.n < FEWEST:
            raise UserError(f"{side.n} requests are {side.name!r}; at least {FEWEST} are needed")
    words = shlex.join(["--layers", str(path), "--a", a, "--b", b])
    metric = Metric(chain.name, chain.meaning, "Duration", tuple(layer.drawn() for layer in chain.layers))
    pair = Pair.of(*sides, asked.of(metric))
    report = _described(metric, pair, (left, right), asked, words)
    found = explain(pair, asked.of(metric), _no_twin, _past(client, chain, left, *sides, asked.past))
    found = replace(found, shows=_of_chain(found.shows), caused=_of_chain(found.caused))
    return replace(report, attribution=found, answer=found.headline)


def _no_twin() -> tuple[Refused, list[Fidelity], dict[str, Own]]:
    return Refused("caused", NO_TWIN), [], {}


def _described(
    metric: Metric, pair: Pair, asked_for: tuple[Selection, Selection], asked: Asked, words: str
) -> Report:
    """Quantiles and what they are made of."""
    sets = _requests(pair.a), _requests(pair.b)
    names, windows = (pair.a.name, pair.b.name), (asked_for[0].asked, asked_for[1].asked)
    drawn = pair.drawn_for((pair.a.arrival, pair.b.arrival))
    report = build(metric, asked.quantile, names, sets, [], words, windows, drawn)
    a, b = (replace(line, cached_unknown=0) for line in (report.a, report.b))
    return replace(
        report,
        a=a,
        b=b,
        warnings=warnings((a, b), asked.quantile, report.layers, [], []),
        next_steps=_next_steps(asked.quantile, words),
    )


def _next_steps(q: float | None, words: str) -> list[str]:
    others = [name for name, value in (("mean", None), ("p50", 0.5), ("p99", 0.99)) if value != q]
    return [f"hitmap report {words} --quantile {other}" for other in others[:2]]


def _requests(side: Side) -> Requests:
    """As the report's tables take them; a chain has no tokens."""
    return Requests(
        totals=side.totals,
        layers=side.times,
        tokens={column: np.full(side.n, np.nan) for column in TOKEN_COLUMNS},
        begin=datetime.fromtimestamp(side.arrival[0], UTC).replace(tzinfo=None),
        end=datetime.fromtimestamp((side.arrival + side.totals / 1000).max(), UTC).replace(tzinfo=None),
        servers=list(side.servers),
        arrival=side.arrival,
        sampled=side.sampled,
    )


def _past(client: Client, chain: Chain, selection: Selection, a: Side, b: Side, wanted: bool) -> Past:
    """Requests like those of A from before, without deployments and without B."""
    marked = deploys(client, a, b)
    if not wanted:
        return Past(marked)
    length = a.end - a.begin
    begin, end = (datetime.fromtimestamp(at, UTC) for at in (a.end - 2 * (MOST_PAIRS + 1) * length, a.end))
    before = replace(selection.at(begin, end, "past"), name="the past")
    side = chain_side(client, chain, before, MOST_OF_THE_PAST)
    spans = _quiet((float(side.arrival[0]), a.end), [(b.begin, b.end), *((at, at) for at, _ in marked)])
    return Past(marked, side, spans)


def _quiet(whole: tuple[float, float], apart: Sequence[tuple[float, float]]) -> Spans:
    """Stretches of a time in which nothing happened."""
    found, since = [], whole[0]
    for low, high in sorted(apart):
        if low > since:
            found.append((since, min(low, whole[1])))
        since = max(since, high)
    return [*found, (since, whole[1])] if since < whole[1] else found


def _of_chain(view: View) -> View:
    """In the words of a chain: a request has a size, no completion of tokens."""
    shares = [replace(share, own=_sized(share)) for share in view.shares]
    return replace(view, shares=shares, notes=[_note(note) for note in view.notes])


def _note(note: str) -> str:
    for tokens, here in _WORDS.items():
        note = note.replace(tokens, here)
    return note


def _sized(share: Share) -> str:
    if share.name != "workload":
        return share.own
    return share.own.replace("mean completion", "mean size").replace(" tokens", "")
