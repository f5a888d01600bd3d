"""Two sets of requests in, one Report out: pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.attribution.binned import Blocks, resampled
from analysis.attribution.certainty.intervals import Drawn, drawn_for
from analysis.attribution.certainty.resampling import resampling
from analysis.attribution.compose import parts_of
from analysis.bootstrap import supports
from analysis.composition import UNATTRIBUTED, with_rest
from analysis.numbers import quantile_name
from analysis.quantiles import Floats, hd_quantile
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
from cachemodel.causes import UNKNOWN_COLOUR
from cachemodel.errors import UserError
from cachemodel.layers import Layer, TokenSource

QUANTILES = (0.5, 0.9, 0.95, 0.99)
FEWEST = 3
# Layers that are what the others leave: computed by subtraction, not told by a server.
DERIVED = ("frontend", "other", UNATTRIBUTED)
_REST = Layer(UNATTRIBUTED, "what the layers leave; signed", UNKNOWN_COLOUR, in_ttft=True)
_NOTHING_MS = 5e-4  # half a microsecond: below what a server tells


@dataclass(frozen=True)
class Figure:
    """A number of one set and its replicates (r,), None where n is too small for an interval. low, high: what it can be
    at all."""

    value: float
    replicates: Floats | None
    n: int
    low: float = -math.inf
    high: float = math.inf


class TooFew(UserError):
    """Not enough requests of a set have the metric."""

    def __init__(self, message: str, requests: Requests) -> None:
        super().__init__(message)
        self.requests = requests


class Side:
    """One set: its times and their split over the layers, as figures with replicates."""

    def __init__(
        self, requests: Requests, layers: Sequence[int], q: float | None, of: Blocks, *, intervals: bool
    ) -> None:
        """layers: which of the metric's are taken; q: the quantile that is split over them; of: the resamples of the
        requests; intervals: whether any can be had."""
        timed = np.isfinite(requests.totals)
        told = requests.layers[layers][:, timed]
        self.requests, self.of, self.intervals = requests, of, intervals
        self.n = int(timed.sum())
        self.known = np.isfinite(told).sum(axis=1)
        self._totals, self._of_timed = requests.totals[timed], of.subset(np.flatnonzero(timed))
        parts = with_rest(self._totals, told)
        self._least = np.where((parts < 0).any(axis=1), -math.inf, 0.0)
        self._parts = {which: parts_of(self._totals, parts, which, self._of_timed) for which in {None, q}}

    def total(self, q: float | None) -> Figure:
        """The q-quantile, None: the mean."""
        value = float(self._totals.mean()) if q is None else hd_quantile(self._totals, q)
        return self._figure(q, value, resampled(self._totals, q, self._of_timed).replicates, 0.0)

    def part(self, q: float | None, part: int) -> Figure:
        """What one part contributes to the quantile that is split, or to the mean."""
        value, *replicates = self._parts[q][:, part]
        return self._figure(q, float(value), np.array(replicates), float(self._least[part]))

    def ratio(self, above: str, below: str | None = None) -> Figure | None:
        """Sum of a token column by the sum of another, or by their number, where both are known; None if nowhere."""
        top = self.requests.tokens[above]
        bottom = self.requests.tokens[below] if below else np.ones_like(top)
        both = self.known_tokens(above, below or above) & (bottom > 0)
        n = int(both.sum())
        if not n:
            return None
        top, bottom = np.where(both, top, 0.0), np.where(both, bottom, 0.0)
        tops, bottoms = (self.of.resampled(column)[:, 0] for column in (top, bottom))
        drawn = np.divide(tops, bottoms, out=np.full(len(tops), np.nan), where=bottoms > 0)
        enough = self.intervals and supports(n, 0.5)
        value, most = float(top.sum() / bottom.sum()), 1.0 if below else math.inf
        return Figure(value, drawn if enough else None, n, 0.0, most)

    def known_tokens(self, *columns: str) -> NDArray[np.bool_]:
        """Which requests (n,) tell of all these columns."""
        known = np.isfinite([self.requests.tokens[column] for column in columns])
        return np.asarray(known.all(axis=0))

    def _figure(self, q: float | None, value: float, replicates: Floats, low: float) -> Figure:
        enough = self.intervals and supports(self.n, 0.5 if q is None else q)
        return Figure(value, replicates if enough else None, self.n, low)


def build(
    metric: Metric,
    q: float | None,
    names: tuple[str, str],
    sets: tuple[Requests, Requests],
    counters: list[CounterLine],
    asked: str,
    windows: tuple[str, str] = ("", ""),
    drawn: Drawn | None = None,
) -> Report:
    """Compare the second set with the first; raises TooFew when one has too few requests with the metric.

    q: None takes the mean apart. asked: the options that asked for this, for the commands the report proposes; windows:
    the two sets with times that stay. drawn: resamples of these requests, as the attribution has them; None to draw
    some.
    """
    check_enough(metric, names, sets)
    drawn = drawn or _drawn(names, sets)
    told = [_told(requests) for requests in sets]
    shared = np.flatnonzero(told[0] & told[1]).tolist()
    qs = sorted({*QUANTILES, *([] if q is None else [q])})
    left, right = (
        Side(requests, shared, q, of, intervals=not drawn.refused)
        for requests, of in zip(sets, (drawn.a, drawn.b), strict=True)
    )
    compared = Compared(drawn)
    quantiles = [
        compared(quantile_name(p, "mean"), left.total(p), right.total(p), metric.provenance)
        for p in (None, *qs)
    ]
    chosen = quantiles[0 if q is None else 1 + qs.index(q)]
    layers = _layers([metric.layers[i] for i in shared], q, left, right, compared) if metric.layers else []
    tokens, workload = _tokens(left, right, compared), _workload(left, right, compared)
    lines = (_set_line(names[0], windows[0], left), _set_line(names[1], windows[1], right))
    alone = [(metric.layers[i].name, names[int(told[1][i])]) for i in np.flatnonzero(told[0] != told[1])]
    return Report(
        metric=metric.name,
        quantile=q,
        a=lines[0],
        b=lines[1],
        answer=answer(metric.meaning, chosen, layers, tokens),
        quantiles=quantiles,
        layers=layers,
        tokens=tokens,
        workload=workload,
        counters=counters,
        warnings=[
            *warnings(lines, q, layers, alone, workload),
            *([f"no intervals: {drawn.refused}"] if drawn.refused else []),
        ],
        next_steps=next_steps(metric, lines, asked),
    )


def check_enough(metric: Metric, names: tuple[str, str], sets: tuple[Requests, Requests]) -> None:
    """Raise TooFew when a set has too few requests with the metric."""
    for name, requests in zip(names, sets, strict=True):
        if (n := int(np.isfinite(requests.totals).sum())) < FEWEST:
            raise TooFew(
                f"{len(requests.totals):,} requests are {name!r}, {n} of them with {metric.name}; at least {FEWEST} are"
                f" needed (--metric takes {', '.join(METRICS)})",
                requests,
            )


@dataclass(frozen=True)
class Compared:
    """Makes a comparison of two figures. drawn: the resamples that their replicates are of."""

    drawn: Drawn

    def __call__(self, name: str, a: Figure, b: Figure, provenance: Provenance = "measured") -> Comparison:
        both = None if a.replicates is None or b.replicates is None else b.replicates - a.replicates
        change = Figure(b.value - a.value, both, min(a.n, b.n), a.low - b.high, b.high - a.low)
        of_a, of_b = self.drawn.a, self.drawn.b
        ends = self._estimate(a, of_a), self._estimate(b, of_b), self._estimate(change, of_a, of_b)
        return Comparison(name, *ends, provenance)

    def _estimate(self, figure: Figure, *of: Blocks) -> Estimate:
        half = math.nan if figure.replicates is None else self.drawn.half(figure.replicates, of)
        if math.isnan(half):
            return Estimate(figure.value, None, None, figure.n)
        low, high = max(figure.value - half, figure.low), min(figure.value + half, figure.high)
        return Estimate(figure.value, low, high, figure.n)


def _drawn(names: tuple[str, str], sets: tuple[Requests, Requests]) -> Drawn:
    """Resamples of these requests alone."""
    sides = tuple(requests.side(name) for name, requests in zip(names, sets, strict=True))
    drawn = resampling(sides[0], sides[1], np.random.default_rng(0))
    return drawn_for(drawn, (sides[0], sides[1]), (sets[0].arrival, sets[1].arrival))


def _told(requests: Requests) -> NDArray[np.bool_]:
    """Which layers (k,) any timed request of the set tells of."""
    known = np.isfinite(requests.layers[:, np.isfinite(requests.totals)])
    return np.asarray(known.any(axis=1))


def _layers(
    told: Sequence[Layer], q: float | None, left: Side, right: Side, compared: Compared
) -> list[LayerLine]:
    lines = []
    for i, layer in enumerate([*told, _REST]):
        provenance: Provenance = "derived" if layer.name in DERIVED else "measured"
        mean, part = (compared(layer.name, left.part(p, i), right.part(p, i), provenance) for p in (None, q))
        known = (left.n, right.n) if layer is _REST else (int(left.known[i]), int(right.known[i]))
        if layer is not _REST or any(abs(e.value) > _NOTHING_MS for c in (mean, part) for e in (c.a, c.b)):
            lines.append(LayerLine(layer.name, mean, part, *known, layer.colour))
    return lines


def _tokens(left: Side, right: Side, compared: Compared) -> list[TokenLine]:
    lines = []
    for source in (TokenSource.CACHED, TokenSource.DEVICE, TokenSource.HOST, TokenSource.REMOTE):
        column = f"{source}_tokens"
        a, b = (side.ratio(column, "prompt_tokens") for side in (left, right))
        if a and b:
            lines.append(TokenLine(source, _sum(left, column), _sum(right, column), compared(source, a, b)))
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


def _workload(left: Side, right: Side, compared: Compared) -> list[Comparison]:
    """How large requests are: a change of the load explains a change of latency before any cache does."""
    lines = []
    for name in ("prompt", "completion"):
        a, b = (side.ratio(f"{name}_tokens") for side in (left, right))
        if a and b:
            lines.append(compared(name, a, b))
    return lines


def _set_line(name: str, asked: str, side: Side) -> SetLine:
    r = side.requests
    begin, end = (t.isoformat(timespec="milliseconds") + "Z" for t in (r.begin, r.end))
    unknown = int(r.n - side.known_tokens("cached_tokens").sum())
    return SetLine(name, r.n, r.sampled, begin, end, r.servers, unknown, r.n - side.n, asked)
