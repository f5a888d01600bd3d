"""Milliseconds, durations and quantiles as the reports write them."""

from __future__ import annotations


def ms(value: float) -> str:
    """`130 ms`, `56.1 ms`; what rounds to nothing has no sign."""
    return f"{digits(value)} ms"


def signed(value: float | None) -> str:
    """`+73.5 ms`, or `unknown`."""
    return "unknown" if value is None else f"{digits(value, '+')} ms"


def digits(value: float, sign: str = "") -> str:
    """The number alone; sign is "+" for a change."""
    text = f"{value:{sign}z,.0f}" if abs(value) >= 100 else f"{value:{sign}z,.1f}"
    return "0.0" if text == "+0.0" else text  # what rounds to nothing went neither up nor down


def quantile_name(q: float | None, mean: str = "the mean") -> str:
    """`P99`; None is the mean."""
    return mean if q is None else f"P{100 * q:g}"


def duration(seconds: float) -> str:
    """`90 s`, `5 min`, `2 h`, `3 days`."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
