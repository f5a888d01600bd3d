"""The time at which a line of a log was written, where the line has a date but no zone."""

from __future__ import annotations

from datetime import datetime

_LATEST_S = 4_000_000_000  # 2096: what is later, or before 1970, is no time of a log


def local_time_s(date: str, milliseconds: str | None = None) -> float | None:
    """Unix seconds of `YYYY-MM-DD HH:MM:SS` in the zone of this machine; None where there is no such time."""
    try:
        time_s = datetime.fromisoformat(date).timestamp() + int(milliseconds or 0) / 1e3
    except (ValueError, OverflowError, OSError):
        return None
    return time_s if 0 <= time_s < _LATEST_S else None
