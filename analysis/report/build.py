"""Two sets of requests in, one Report out: pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.bootstrap import interval, replicate, resamples, supports
from analysis.composition import UNATTRIBUTED, compose, compose_resamples, with_rest
from analysis.quantiles import Floats
from analysis.report.metrics import METRICS, Metric
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
from analysis.report.reader import Requests
from analysis.report.words import answer, next_steps, warnings
from cachemodel.errors import UserError
from cachemodel.layers import TokenSource

QUANTILES = (0.5, 0.9, 0.95, 0.99)
FEWEST = 3
# Layers that are what the others leave: computed by subtraction, not told by a server.
DERIVED = ("frontend", "other", UNATTRIBUTED)
_NOTHING_MS = 5e-4  # half a microsecond: below what a server tells


@dataclass(frozen=True)
class Drawn:
    """A number of one set and its bootstrap replicates (count,), None where n is too small for an interval."""

    value: float
    replicates: Floats | None
    n: int

    @property
    def estimate(self) -> Estimate:
        """With the 95% interval."""
        return _estimate(self.value, self.replicates, self.n)


class TooFew(UserError):
    """Not enough requests of a set have the metric."""

    def __init__(self, message: str, requests: Requests) -> None:
        super().__init__(message)
        self.requests = requests


class Side:
    """One set: its times and their split over the layers, as estimates with replicates."""

    def __init__(
        self,
        requests: Requests,
        layers: Sequence[int],
        qs: Sequence[float],
        rng: np.random.Generator,
        count: int,
    ) -> None:
        timed = np.isfinite(requests.totals)
        totals, told = requests.totals[timed], requests.layers[layers][:, timed]
        parts = with_rest(totals, told)
        self.requests, self.qs, self.rng, self.count = requests, qs, rng, count
        self.n = int(timed.sum())
        self.known = np.isfinite(told).sum(axis=1)
        self._values = compose(totals, parts, qs)
        self._replicates = compose_resamples(totals, parts, qs, count, rng)

    def total(self, row: int) -> Drawn:
        """Row 0: the mean; row i: the quantile qs[i - 1]."""
        return self._drawn(row, float(self._values[row].sum()), self._replicates[:, row].sum(axis=1))

    def part(self, row: int, part: int) -> Drawn:
        """What one part contributes to a total."""
        return self._drawn(row, float(self._values[row, part]), self._replicates[:, row, part])

    def ratio(self, above: str, below: str | None = None) -> Drawn | None:
        """Sum of a token column by the sum of another, or by their number, where both are known; None if nowhere."""
        top = self.requests.tokens[above]
        bottom = self.requests.tokens[below] if below else np.ones_like(top)
        both = self.known_tokens(above, below or above) & (bottom > 0)
        n = int(both.sum())
        if not n:
            return None
        top, bottom = top[both], bottom[both]

        def statistic(counts: Floats) -> Floats:
            return np.asarray((counts @ top) / (counts @ bottom))

        drawn = replicate(top / bottom, statistic, self.count, self.rng) if supports(n, 0.5) else None
        return Drawn(float(top.sum() / bottom.sum()), drawn, n)

    def known_tokens(self, *columns: str) -> NDArray[np.bool_]:
        """Which requests (n,) tell of all these columns."""
        known = np.isfinite([self.requests.tokens[column] for column in columns])
        return np.asarray(known.all(axis=0))

    def _drawn(self, row: int, value: float, replicates: Floats) -> Drawn:
        enough = supports(self.n, self.qs[row - 1] if row else 0.5)
        return Drawn(value, replicates if enough else None, self.n)


def build(
    metric: Metric,
    q: float | None,
    names: tuple[str, str],
    sets: tuple[Requests, Requests],
    counters: list[CounterLine],
    asked: str,
    windows: tuple[str, str] = ("", ""),
    seed: int = 0,
) -> Report:
    """Compare the second set with the first; raises TooFew when one has too few requests with the metric.

    q: None takes the mean apart. asked: the options that asked for this, for the commands the report proposes; windows:
    the two sets with times that stay.
    """
    for name, requests in zip(names, sets, strict=True):
        if (n := int(np.isfinite(requests.totals).sum())) < FEWEST:
            raise TooFew(
                f"{len(requests.totals):,} requests are {name!r}, {n} of them with {metric.name}; at least {FEWEST} are"
                f" needed (--metric takes {', '.join(METRICS)})",
                requests,
            )
    told = [_told(requests) for requests in sets]
    shared = np.flatnonzero(told[0] & told[1]).tolist()
    qs = sorted({*QUANTILES, *([] if q is None else [q])})
    rng, count = np.random.default_rng(seed), min(resamples(r.n) for r in sets)
    left, right = (Side(requests, shared, qs, rng, count) for requests in sets)
    labels = ["mean", *(f"P{100 * p:g}" for p in qs)]
    quantiles = [
        _compare(label, left.total(row), right.total(row), metric.provenance)
        for row, label in enumerate(labels)
    ]
    row = 0 if q is None else 1 + qs.index(q)
    layers = _layers([metric.layers[i].name for i in shared], row, left, right) if metric.layers else []
    tokens, workload = _tokens(left, right), _workload(left, right)
    lines = (_set_line(names[0], windows[0], left), _set_line(names[1], windows[1], right))
    alone = [(metric.layers[i].name, names[int(told[1][i])]) for i in np.flatnonzero(told[0] != told[1])]
    return Report(
        metric=metric.name,
        quantile=q,
        a=lines[0],
        b=lines[1],
        answer=answer(metric.meaning, quantiles[row], layers, tokens),
        quantiles=quantiles,
        layers=layers,
        tokens=tokens,
        workload=workload,
        counters=counters,
        warnings=warnings(lines, q, layers, alone, workload),
        next_steps=next_steps(metric, lines, asked),
    )


def _told(requests: Requests) -> NDArray[np.bool_]:
    """Which layers (k,) any timed request of the set tells of."""
    known = np.isfinite(requests.layers[:, np.isfinite(requests.totals)])
    return np.asarray(known.any(axis=1))


def _estimate(value: float, replicates: Floats | None, n: int) -> Estimate:
    low, high = (None, None) if replicates is None else interval(replicates)
    return Estimate(value, low, high, n)


def _compare(name: str, a: Drawn, b: Drawn, provenance: Provenance = "measured") -> Comparison:
    both = None if a.replicates is None or b.replicates is None else b.replicates - a.replicates
    change = _estimate(b.value - a.value, both, min(a.n, b.n))
    return Comparison(name, a.estimate, b.estimate, change, provenance)


def _layers(names: Sequence[str], row: int, left: Side, right: Side) -> list[LayerLine]:
    lines = []
    for i, name in enumerate([*names, UNATTRIBUTED]):
        provenance: Provenance = "derived" if name in DERIVED else "measured"
        mean, part = (_compare(name, left.part(r, i), right.part(r, i), provenance) for r in (0, row))
        if name != UNATTRIBUTED:
            lines.append(LayerLine(name, mean, part, int(left.known[i]), int(right.known[i])))
        elif any(abs(e.value) > _NOTHING_MS for c in (mean, part) for e in (c.a, c.b)):
            lines.append(LayerLine(name, mean, part, left.n, right.n))
    return lines


def _tokens(left: Side, right: Side) -> list[TokenLine]:
    lines = []
    for source in (TokenSource.CACHED, TokenSource.DEVICE, TokenSource.HOST, TokenSource.REMOTE):
        column = f"{source}_tokens"
        a, b = (side.ratio(column, "prompt_tokens") for side in (left, right))
        if a and b:
            lines.append(TokenLine(source, _sum(left, column), _sum(right, column), _compare(source, a, b)))
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
    whole = (_sum(side, "prompt_tokens", "cached_tokens") for side in (left, right))
    tokens_a, tokens_b = (a - b for a, b in zip(whole, (cached.tokens_a, cached.tokens_b), strict=True))
    return TokenLine(TokenSource.COMPUTED, tokens_a, tokens_b, share)


def _sum(side: Side, column: str, known: str = "prompt_tokens") -> int:
    return int(side.requests.tokens[column][side.known_tokens(column, known)].sum())


def _workload(left: Side, right: Side) -> list[Comparison]:
    """How large requests are: a change of the load explains a change of latency before any cache does."""
    lines = []
    for name in ("prompt", "completion"):
        a, b = (side.ratio(f"{name}_tokens") for side in (left, right))
        if a and b:
            lines.append(_compare(name, a, b))
    return lines


def _set_line(name: str, asked: str, side: Side) -> SetLine:
    r = side.requests
    begin, end = (t.isoformat(timespec="milliseconds") + "Z" for t in (r.begin, r.end))
    unknown = int(r.n - side.known_tokens("cached_tokens").sum())
    return SetLine(name, r.n, r.sampled, begin, end, r.servers, unknown, r.n - side.n, asked)
