"""A figure and how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """value, and the bounds of its 95 % interval; None where there is too little data for one."""

    value: float
    low: float | None
    high: float | None

    def holds(self, value: float) -> bool | None:
        """Whether a value lies inside, rounding of sums aside; None where there is no interval."""
        if self.low is None or self.high is None:
            return None
        slack = 1e-6 * max(1.0, abs(value))
        return self.low - slack <= value <= self.high + slack
