"""What a perturbation check finds."""

from __future__ import annotations

from dataclasses import dataclass, field

FEWEST_DELAYED = 30
"""Requests of all turns of a layer, for a figure."""


@dataclass(frozen=True, slots=True)
class Turn:
    """layer: which one was delayed, empty for none; begin, end: seconds since 1970, of arrivals that count."""

    layer: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """By how many ms a quantile moves for each ms of delay of every passage of a layer.

    n: requests that arrived while it was delayed. measured, with its 95 % interval; linear: what the linear rule makes
    of how much longer the layer took; twin: what the scheduler twin says. None where it cannot be told.
    """

    layer: str
    n: int
    measured: float
    low: float | None
    high: float | None
    linear: float | None
    twin: float | None


@dataclass(frozen=True, slots=True)
class Perturbed:
    """value: of the quantile without a delay, ms, of n requests. q: None for the mean. notes: what to know of it."""

    server: str
    metric: str
    q: float | None
    delay_ms: float
    value: float
    n: int
    layers: list[Sensitivity]
    notes: list[str] = field(default_factory=list)
