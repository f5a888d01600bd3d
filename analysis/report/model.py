"""The report as data: what every reporter renders and JSON carries. Times are milliseconds, shares 0 to 1."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from analysis.attribution.model import Attribution

SCHEMA = 1
"""Of a report as JSON: grows when a key goes or changes its meaning, not when one is added."""
Provenance = Literal["measured", "derived"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, the number of requests behind it, and its 95% interval where these are enough for one."""

    value: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One quantity in both sets, and its change (B minus A)."""

    name: str
    a: Estimate
    b: Estimate
    change: Estimate
    provenance: Provenance = "measured"

    @property
    def clear(self) -> bool:
        """Whether the interval of the change leaves zero out."""
        low, high = self.change.low, self.change.high
        return low is not None and high is not None and (low > 0 or high < 0)


@dataclass(frozen=True, slots=True)
class LayerLine:
    """One layer that both sets tell of: its mean time, and its part of the chosen quantile.

    Means sum to the mean and parts to the quantile, in each set and in the change. known_a, known_b: requests that
    tell of the layer. colour: in figures, #RRGGBB.
    """

    layer: str
    mean: Comparison
    part: Comparison
    known_a: int
    known_b: int
    colour: str


@dataclass(frozen=True, slots=True)
class TokenLine:
    """Prompt tokens of one source among the requests where it is known: totals, and the share of their prompts."""

    source: str
    tokens_a: int
    tokens_b: int
    share: Comparison


@dataclass(frozen=True, slots=True)
class CounterLine:
    """Growth of a server's counter while each set's requests ran, others included. None: not sampled."""

    server: str
    metric: str
    labels: str
    unit: str
    a: float | None
    b: float | None


@dataclass(frozen=True, slots=True)
class SetLine:
    """One of the two sets. n: requests read, one in `sampled` of those that match. begin and end: ISO times, UTC.
    cached_unknown: requests of which nothing tells cached tokens. untimed: those without the metric. asked: the set as
    --a and --b take it, with times that stay."""

    name: str
    n: int
    sampled: int
    begin: str
    end: str
    servers: list[str]
    cached_unknown: int
    untimed: int
    asked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Two sets of requests compared by one metric at one quantile, None for the mean. workload: mean tokens of a
    request. attribution: what caused the change; None where nobody asked. shared: requests that both sets hold."""

    schema: int = SCHEMA
    metric: str
    quantile: float | None
    a: SetLine
    b: SetLine
    answer: str
    attribution: Attribution | None = None
    quantiles: list[Comparison]
    layers: list[LayerLine]
    tokens: list[TokenLine]
    workload: list[Comparison]
    counters: list[CounterLine]
    warnings: list[str] = field(default_factory=list)
    next_steps: list[str] = field(default_factory=list)
    shared: int = 0
    method: str = (
        "Harrell-Davis quantiles. All 95% intervals are of one kind: one set of resamples of blocks of time as long as"
        " the load has a memory, widened for what few blocks hide, Student's t. What a quantile is made of: its exact"
        " split over the layers; it says where the requests around the quantile spend their time, not what caused the"
        " change."
    )
