"""A report as JSON: the dataclass, key by key."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any


def to_json(report: Any) -> str:
    """Indented JSON of a dataclass; a number that cannot be is null, never NaN. Characters that would steer a terminal
    are written as their escapes: the same to whoever reads it as JSON."""
    text = json.dumps(as_data(report), indent=2, ensure_ascii=False, allow_nan=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in text)


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 1 << 16 else json.dumps(char)[1:-1]


def as_data(report: Any) -> dict[str, Any]:
    """The same as JSON would be read."""
    data: dict[str, Any] = _clean(dataclasses.asdict(report))
    return data


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
