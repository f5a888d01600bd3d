"""Fields of a record: by their places, as texts, numbers and times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

MAX_TEXT = 256  # characters of an id or a name: longer ones are content
Record = Mapping[str, Any]


def field(record: Record, place: str) -> Any:
    """The value in a place, names joined by dots; None where there is no such place."""
    value: Any = record
    for name in _path(place):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


@cache
def _path(place: str) -> tuple[str, ...]:
    return tuple(place.split("."))


def name_of(value: object) -> str:
    """A text or a number of believable length for a name; nothing for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) < 1 << 64 else ""
    return value if isinstance(value, str) and len(value) <= MAX_TEXT else ""


def first_text(record: Record, places: Iterable[str]) -> str:
    """The first of some places that holds a text of believable length."""
    for place in places:
        value = field(record, place) if "." in place else record.get(place)
        if isinstance(value, str) and 0 < len(value) <= MAX_TEXT:
            return value
    return ""


def number(value: object) -> float | None:
    """A JSON number as a float; None for what is none, or is beyond the range of one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        told = float(value)
    except OverflowError:
        return None
    return told if math.isfinite(told) else None


def moment(value: object) -> float | None:
    """Unix seconds of a time: a number of them, of milli-, micro- or nanoseconds, or ISO 8601."""
    if (told := number(value)) is not None:
        unit = next((unit for unit in (1e9, 1e6, 1e3) if abs(told) >= 1e8 * unit), 1.0)
        return told / unit
    if not isinstance(value, str):
        return None
    try:
        written = datetime.fromisoformat(value)
        return (written if written.tzinfo else written.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def nanoseconds(value: object) -> float | None:
    """Unix seconds of Unix nanoseconds, a number or, as OTLP has it, a text of digits."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 25:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value and number(value) is not None:
        return value // 1000 / 1e6  # in whole microseconds first: a float cannot tell Unix nanoseconds apart
    return None
