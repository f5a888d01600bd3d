"""Requests worth a look of their own: the slowest, the latest, those whose threads faulted most."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from clickhouse_connect.driver.client import Client

from analysis.observed.words import MAJOR, MINOR
from analysis.selection import Selection

_MAJOR = f"if(mapContains(observed, '{MAJOR}'), observed['{MAJOR}'], NULL)"
_MINOR = f"if(mapContains(observed, '{MINOR}'), observed['{MINOR}'], NULL)"
ORDERS = {
    "slowest": "e2e_us DESC NULLS LAST, time DESC",
    "latest": "time DESC",
    "page faults": "major DESC NULLS LAST, minor DESC NULLS LAST, e2e_us DESC NULLS LAST",
}
"""How they are put in order: the first of each are those worth a look."""


@dataclass(frozen=True, slots=True)
class RequestLine:
    """time: UTC. Milliseconds, tokens, page faults of its own threads: None where nothing tells."""

    request_id: str
    server: str
    time: datetime
    e2e_ms: float | None
    ttft_ms: float | None
    prompt: int | None
    cached: int | None
    major: float | None
    minor: float | None


def worth_a_look(client: Client, selection: Selection, order: str, most: int = 20) -> list[RequestLine]:
    """The first of a selection in one of ORDERS."""
    rows = client.query(
        f"SELECT request_id, server, toTimeZone(time, 'UTC'), e2e_us / 1000, ttft_us / 1000, prompt_tokens,"
        f" cached_tokens, {_MAJOR} AS major, {_MINOR} AS minor"
        f" FROM requests WHERE {selection.condition}"
        f" ORDER BY {ORDERS[order]}, request_id LIMIT {int(most)}",
        parameters=selection.parameters,
    ).result_rows
    return [RequestLine(*row) for row in rows]
