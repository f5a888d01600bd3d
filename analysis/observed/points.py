"""Points of counters in SQL: whose they are, from when to when, and each moment told once. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cachemodel.observed import PID

LONGEST_US = 11_000_000
"""Of a point: between two readings of the slowest probe, and some."""


def is_pid(key: str) -> str:
    """SQL condition on an attribute of a resource: a sender that is no probe of ours may say anything."""
    return f"match(ResourceAttributes['{key}'], '^[0-9]{{1,9}}$')"


IS_PID = is_pid(PID)
IS_COUNT = "isFinite(Value) AND Value >= 0 AND StartTimeUnix < TimeUnix"


def after(column: str) -> str:
    """SQL of a point in time as microseconds after {begin:Int64}."""
    return f"(toUnixTimestamp64Nano({column}) - 1000 * {{begin:Int64}}) / 1000"


def told_until(series: Sequence[str]) -> str:
    """SQL of the moment up to which earlier points of the series tell already, 0 for none: what a point adds begins
    there. Two probes beside one process, a clock that is set back and a point that came twice count nothing twice.

    Columns of a row: start and till.
    """
    return f"""max(till) OVER (PARTITION BY {", ".join(series)} ORDER BY start, till
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"""
