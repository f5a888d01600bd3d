"""What a run found, and its form in the table `findings`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

ORIGIN = "canary"
_COLUMNS = (
    *("time", "origin", "run", "server", "name", "subject", "value", "low", "high", "unit", "samples"),
    *("inputs", "detail"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure. value: None where it could not be told; detail says it in a sentence, or why not. low, high: bounds
    within which it lies. unit: as UCUM spells it. samples: measurements it rests on. inputs: what was sent and seen."""

    name: str
    value: float | None
    unit: str
    samples: int
    detail: str
    subject: str = ""
    low: float | None = None
    high: float | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)


def untold(name: str, unit: str, why: str, samples: int = 0, **more: Any) -> Finding:
    """A figure that could not be had."""
    return Finding(name, None, unit, samples, why, **more)


def store(
    client: Client, time: datetime, run: str, server: str, findings: Iterable[Finding], origin: str = ORIGIN
) -> None:
    """Insert the findings of one run. time: an aware one."""
    rows = [
        [
            *(time, origin, run, server, found.name, found.subject, found.value, found.low, found.high),
            *(found.unit, found.samples, json.dumps(found.inputs), found.detail),
        ]
        for found in findings
    ]
    if rows:
        client.insert("findings", rows, column_names=_COLUMNS)
