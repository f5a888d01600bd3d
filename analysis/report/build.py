"""Two sets of requests in, one Report out: pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analysis.bootstrap import interval, replicate, resamples
from analysis.composition import UNATTRIBUTED, compose, with_rest
from analysis.quantiles import Floats, hd_quantile, hd_rank_mass, hd_resampled_weights
from analysis.report.model import (
    Comparison,
    CounterLine,
    Estimate,
    LayerLine,
    Provenance,
    Report,
    SetLine,
    TokenLine,
)
from analysis.report.reader import METRICS, Requests
from analysis.report.words import answer, next_steps, warnings
from cachemodel.errors import UserError
from cachemodel.layers import TokenSource

QUANTILES = (0.5, 0.9, 0.95, 0.99)
FEWEST = 3
# Layers that are what the others leave: computed by subtraction, not told by a server.
DERIVED = ("frontend", "other", UNATTRIBUTED)


class Side:
    """One set: its estimates, and their replicates from one bootstrap, so that all its intervals belong together.

    Estimates are mean and quantiles (1 + k,), means of the parts (p,), unattributed last, and the parts' contributions
    to the chosen quantile (p,); replicates have a row for each resample.
    """

    def __init__(
        self, name: str, requests: Requests, qs: Sequence[float], q: float, count: int, seed: int
    ) -> None:
        timed = np.isfinite(requests.totals)
        self.requests, self.count = requests, count
        self.rng = np.random.default_rng(seed)
        self.layers = requests.layers[:, timed]
        totals = requests.totals[timed]
        self.n = len(totals)
        if self.n < FEWEST:
            raise UserError(f"{name!r} has {self.n} requests with this metric; at least {FEWEST} are needed")
        parts = with_rest(totals, self.layers)
        self.quantiles = np.array([totals.mean(), *(hd_quantile(totals, x) for x in qs)])
        self.means = parts.mean(axis=1)
        self.composition = compose(totals, self.layers, q)
        order = np.argsort(totals, kind="stable")
        ranked, ranked_parts = totals[order], parts[:, order]
        mass = {x: hd_rank_mass(self.n, x) for x in {*qs, q}}

        def statistic(counts: Floats) -> Floats:
            counts = counts[:, order]
            weights = {x: hd_resampled_weights(counts, mass[x]) for x in mass}
            return np.column_stack(
                [
                    counts @ ranked / self.n,
                    *(weights[x] @ ranked for x in qs),
                    counts @ ranked_parts.T / self.n,
                    weights[q] @ ranked_parts.T,
                ]
            )

        drawn = replicate(totals, statistic, count, self.rng)
        borders = np.cumsum([1 + len(qs), len(parts)])
        self.in_quantiles, self.in_means, self.in_composition = np.split(drawn, borders, axis=1)

    def share(self, column: str) -> tuple[float, Floats, int, int] | None:
        """Ratio of sums column / prompt where both are known, its replicates, tokens and requests; None if nowhere."""
        part, whole = self.requests.tokens[column], self.requests.tokens["prompt_tokens"]
        known = np.isfinite(part) & np.isfinite(whole) & (whole > 0)
        if not known.any():
            return None
        part, whole = part[known], whole[known]

        def statistic(counts: Floats) -> Floats:
            return ((counts @ part) / (counts @ whole))[:, None]

        replicates = replicate(part / whole, statistic, self.count, self.rng)[:, 0]
        return float(part.sum() / whole.sum()), replicates, int(part.sum()), len(part)


def build(
    names: tuple[str, str],
    a: Requests,
    b: Requests,
    metric: str,
    q: float,
    counters: list[CounterLine],
    asked: str = "--a A --b B",
    seed: int = 0,
) -> Report:
    """Compare set b with set a; raises UserError when a set has too few requests with the metric.

    asked: the options that asked for this, for the commands the report proposes.
    """
    qs = sorted({*QUANTILES, q})
    count = min(resamples(a.n), resamples(b.n))
    left, right = Side(names[0], a, qs, q, count, seed), Side(names[1], b, qs, q, count, seed + 1)
    labels = ["mean", *(f"P{100 * p:g}" for p in qs)]
    quantiles = _compare(
        labels, left, right, (left.quantiles, left.in_quantiles), (right.quantiles, right.in_quantiles)
    )
    quantiles[1:] = [_within_reach(c, x) for c, x in zip(quantiles[1:], qs, strict=True)]
    layers = _layers(metric, q, left, right)
    tokens = _tokens(left, right)
    sets = (_set_line(names[0], left), _set_line(names[1], right))
    chosen = quantiles[1 + qs.index(q)]
    return Report(
        metric=metric,
        quantile=q,
        a=sets[0],
        b=sets[1],
        answer=answer(METRICS[metric][2], chosen, layers, tokens),
        quantiles=quantiles,
        layers=layers,
        tokens=tokens,
        counters=counters,
        warnings=warnings(sets, q, layers),
        next_steps=next_steps(metric, tokens, sets, asked),
    )


def _compare(
    names: Sequence[str], left: Side, right: Side, a: tuple[Floats, Floats], b: tuple[Floats, Floats]
) -> list[Comparison]:
    return [
        _comparison(name, a[0][i], a[1][:, i], left.n, b[0][i], b[1][:, i], right.n)
        for i, name in enumerate(names)
    ]


def _comparison(
    name: str,
    a: float,
    in_a: Floats,
    n_a: int,
    b: float,
    in_b: Floats,
    n_b: int,
    source: Provenance = "measured",
) -> Comparison:
    change = Estimate(float(b - a), *interval(in_b - in_a), min(n_a, n_b))
    ends = (Estimate(float(a), *interval(in_a), n_a), Estimate(float(b), *interval(in_b), n_b))
    return Comparison(name, *ends, change, source)


def _within_reach(c: Comparison, q: float) -> Comparison:
    """Without the intervals that so few requests beyond the quantile cannot carry."""

    def bare(e: Estimate) -> Estimate:
        return Estimate(e.value, None, None, e.n)

    short = [e.n * min(q, 1 - q) < FEWEST for e in (c.a, c.b)]
    return replace(
        c,
        a=bare(c.a) if short[0] else c.a,
        b=bare(c.b) if short[1] else c.b,
        change=bare(c.change) if any(short) else c.change,
    )


def _layers(metric: str, q: float, left: Side, right: Side) -> list[LayerLine]:
    names = [layer.name for layer in METRICS[metric][1]]
    if not names:
        return []
    names.append(UNATTRIBUTED)
    means = _compare(names, left, right, (left.means, left.in_means), (right.means, right.in_means))
    parts = _compare(
        names, left, right, (left.composition, left.in_composition), (right.composition, right.in_composition)
    )
    lines = []
    for i, name in enumerate(names):
        known = [int(np.isfinite(s.layers[i]).sum()) if name != UNATTRIBUTED else s.n for s in (left, right)]
        told = any(known) if name != UNATTRIBUTED else abs(parts[i].a.value) + abs(parts[i].b.value) > 5e-4
        if told:
            source: Provenance = "derived" if name in DERIVED else "measured"
            mean, part = (Comparison(c.name, c.a, c.b, c.change, source) for c in (means[i], parts[i]))
            lines.append(LayerLine(name, mean, _within_reach(part, q), known[0], known[1]))
    return lines


def _tokens(left: Side, right: Side) -> list[TokenLine]:
    lines = []
    for source in (TokenSource.CACHED, TokenSource.DEVICE, TokenSource.HOST, TokenSource.REMOTE):
        a, b = left.share(f"{source}_tokens"), right.share(f"{source}_tokens")
        if a and b:
            share = _comparison(source, a[0], a[1], a[3], b[0], b[1], b[3])
            lines.append(TokenLine(source, a[2], b[2], share))
    if lines and lines[0].source == TokenSource.CACHED:
        lines.append(_computed(lines[0], left, right))
    return lines


def _computed(cached: TokenLine, left: Side, right: Side) -> TokenLine:
    """What the cached tokens leave of the prompts they are known for."""

    def complement(e: Estimate, one: float) -> Estimate:
        low, high = (None if v is None else one - v for v in (e.high, e.low))
        return Estimate(one - e.value, low, high, e.n)

    s = cached.share
    share = Comparison(
        TokenSource.COMPUTED, complement(s.a, 1.0), complement(s.b, 1.0), complement(s.change, 0.0), "derived"
    )
    totals = []
    for side in (left, right):
        both = np.isfinite(side.requests.tokens["cached_tokens"]) & np.isfinite(
            side.requests.tokens["prompt_tokens"]
        )
        totals.append(int(side.requests.tokens["prompt_tokens"][both].sum()))
    return TokenLine(TokenSource.COMPUTED, totals[0] - cached.tokens_a, totals[1] - cached.tokens_b, share)


def _set_line(name: str, side: Side) -> SetLine:
    r = side.requests
    unknown = int(np.isnan(r.tokens["cached_tokens"]).sum())
    times = [t.isoformat(timespec="milliseconds") + "Z" for t in (r.begin, r.end)]
    return SetLine(name, r.n, times[0], times[1], r.servers, unknown, int(math.fsum(~np.isfinite(r.totals))))
