"""Two sets of requests as columns, the split of a change between them, and what is said of it.

Times are milliseconds, points in time seconds since 1970 (UTC), counts are tokens. NaN is unknown, never 0. A change is
always B minus A. `q` is a quantile, 0 < q < 1, or None for the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from analysis.quantiles import Floats

Ints = NDArray[np.int64]
Provenance = Literal["measured", "derived", "simulated"]
Kind = Literal["composition", "linear", "shows", "caused"]
NOT_TOLD = -1
"""Index of a server or template that is not known."""


@dataclass(frozen=True)
class Side:
    """One of the two sets: n requests in order of arrival.

    arrival: seconds (n,). totals: the metric, ms (n,). layers: names of the k layers; times: (k, n) ms, whose sum and a
    signed rest make `totals`. prompt, completion: tokens (n,). sources: names of the s places that prompt tokens came
    from: tiers that served them (cachemodel.layers.TokenSource), then causes for which they were computed
    (cachemodel.causes.MissCause); tokens: (s, n), which add up to `prompt` where known. template, server: (n,) indices,
    NOT_TOLD where not known; servers: names by index. sampled: one in how many requests is here.
    begin, end: seconds; of the window asked for, so that no request in it counts as no arrivals. beside: (n,) ms of
    times that are no part of the metric, by name: other layers, `ttft`, `e2e`. observed: (n,), what the threads that
    served them counted, by the names of cachemodel.observed.SPAN_COUNTERS, those that any request tells. notes: what to
    know of how it was read, one sentence each.
    """

    name: str
    arrival: Floats
    totals: Floats
    layers: tuple[str, ...]
    times: Floats
    prompt: Floats
    completion: Floats
    sources: tuple[str, ...]
    tokens: Floats
    template: Ints
    server: Ints
    servers: tuple[str, ...]
    begin: float
    end: float
    sampled: int = 1
    beside: Mapping[str, Floats] = field(default_factory=dict)
    observed: Mapping[str, Floats] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """How many requests."""
        return len(self.totals)

    def time(self, name: str) -> Floats:
        """(n,) ms of a layer, whether it is part of the metric or beside it; NaN where nothing tells."""
        if name in self.layers:
            return np.asarray(self.times[self.layers.index(name)])
        return np.asarray(self.beside.get(name, np.full(self.n, np.nan)))

    def of_server(self, name: str) -> Side:
        """The requests of one of its servers, as a side of their own."""
        mine = self.subset(self.server == self.servers.index(name))
        return replace(
            mine, name=f"{self.name} on {name}", servers=(name,), server=np.zeros(mine.n, np.int64)
        )

    def subset(self, rows: Ints | NDArray[np.bool_]) -> Side:
        """Some of its requests, in the order given; window and names stay."""
        by_row = ("arrival", "totals", "times", "prompt", "completion", "tokens", "template", "server")
        picked = {name: getattr(self, name)[..., rows] for name in by_row}
        beside = {name: times[rows] for name, times in self.beside.items()}
        observed = {name: counts[rows] for name, counts in self.observed.items()}
        return replace(self, beside=beside, observed=observed, **picked)


@dataclass(frozen=True)
class Resampling:
    """One set of block-bootstrap resamples, shared by all splits of a comparison.

    block_a, block_b: the block of each request (n,), blocks being runs of consecutive requests; counts_a, counts_b:
    (r, blocks), how often each block is in each resample. paired: blocks are windows that both sides have, drawn
    together (counts_a is counts_b). length_s: of a block, seconds, as the data asked for; effective_a, effective_b: how
    many independent observations of a mean the sides are worth. degrees: of freedom of a spread over these blocks;
    widen: what the spread of replicates is to be multiplied by, because few blocks that resemble each other vary less
    than the truth does; refused: why no interval can be had, empty where one can.
    """

    block_a: Ints
    block_b: Ints
    counts_a: Floats
    counts_b: Floats
    paired: bool
    length_s: float
    effective_a: float
    effective_b: float
    degrees: float = math.inf
    widen: float = 1.0
    refused: str = ""


@dataclass(frozen=True)
class Split:
    """A change split over m names: what the estimators give and the gate judges.

    values: ms (m,); replicates: (r, m), the same on r block-bootstrap resamples (r = 0: none could be had). change: of
    the estimate of q itself; residual: change minus the sum of `values`, which is the method's own error and is shown;
    change_replicates, residual_replicates: (r,). notes: what to know of it (dropped mass, open bins, dependence),
    one sentence each.
    """

    kind: Kind
    q: float | None
    names: tuple[str, ...]
    values: Floats
    replicates: Floats
    change: float
    change_replicates: Floats
    residual: float
    residual_replicates: Floats
    provenance: Provenance
    method: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refused:
    """A split that could not be made, and why, in a sentence that says what would help."""

    kind: Kind
    reason: str


class Verdict(StrEnum):
    """NAMED: past the family-wise gate, its own input changed by more than 3 sigma, and large enough to matter. SLIGHT:
    the same, but less than that. NOISE: its interval holds what chance alone gives. UNDECIDED: none of these, or too
    few requests to tell."""

    NAMED = "named"
    SLIGHT = "slight"
    NOISE = "noise"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Share:
    """What one name has of a change. low, high: 95 % interval, None where there is none. own: how much its own input
    changed, in words with its unit ("hits 81 % -> 52 %"), empty where nothing is known; own_sigmas: in sigmas of that
    change. sigmas: of the share itself, as the gate counts them (normal); None where there is no interval. Shares of a
    view and its residual add up to the change.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    own: str
    own_sigmas: float | None
    verdict: Verdict
    sigmas: float | None = None

    @property
    def told_from_chance(self) -> bool:
        """Whether it is past the gate, large enough to be named or not."""
        return self.verdict in (Verdict.NAMED, Verdict.SLIGHT)


@dataclass(frozen=True, slots=True)
class View:
    """One way to look at the change, judged. Empty `shares` where `refused` says why it could not be made. least: a
    share of fewer ms is not named, but slight; gate: sigmas that a share has to pass; None where the view names nobody.
    """

    kind: Kind
    shares: list[Share]
    change: float
    change_low: float | None
    change_high: float | None
    residual: float
    residual_low: float | None
    residual_high: float | None
    provenance: Provenance
    method: str
    notes: list[str] = field(default_factory=list)
    refused: str = ""
    least: float | None = None
    gate: float | None = None


@dataclass(frozen=True, slots=True)
class Placebo:
    """The same report over pairs of windows in which nothing was deployed. pairs: how many were tried; blamed: in how
    many of them a cause was named; rate: blamed / pairs with its 95 % binomial interval, None without pairs. critical:
    the sigmas that a cause has to pass; window_s: their length. why: where there are none, what it would take."""

    pairs: int
    blamed: int
    rate: float | None
    low: float | None
    high: float | None
    critical: float
    window_s: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class Onset:
    """When a layer or cause began to differ. at: ISO time, UTC; low, high: 95 % bounds of it; step: its size there, in
    `unit` (ms, or the share of prompt tokens). confidence: that there is one, 0 to 1. deploy: the nearest marker, empty
    where none is near; deploy_s: seconds from the marker to the onset, signed."""

    name: str
    at: str
    low: str
    high: str
    step: float
    unit: str
    confidence: float
    deploy: str = ""
    deploy_s: float | None = None


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How well the twin reproduces a side. figure: "P99", "mean queue", ...; real, twin: ms; bound: how far apart they
    may be, ms. held: whether what is asked rests on it: further out in the tail it does not."""

    side: str
    figure: str
    real: float
    twin: float
    bound: float
    held: bool = True

    @property
    def ok(self) -> bool:
        """Whether it is within its bound."""
        return abs(self.twin - self.real) <= self.bound


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnosis: what it looks like, on which evidence (name, value with unit, n), what to do, what would confirm
    it."""

    rule: str
    title: str
    evidence: list[str]
    remedy: str
    confirm: str


@dataclass(frozen=True, slots=True)
class Attribution:
    """All that is said of one change. headline: the answer in a sentence or two. caused.refused says why where only
    "where it shows" can be trusted. paired: whether windows were compared side by side (two arms at one time). notes:
    what to know of how the two sets were read."""

    headline: str
    metric: str
    q: float | None
    composition: View
    linear: View
    shows: View
    caused: View
    placebo: Placebo
    fidelity: list[Fidelity]
    onsets: list[Onset]
    findings: list[Finding]
    paired: bool
    seed: int
    notes: list[str] = field(default_factory=list)
