"""What there is to choose from: servers, models, labels, times, and the requests that computed most."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from clickhouse_connect.driver.client import Client

from analysis.selection import NUMBER_COLUMNS, TEXT_COLUMNS, Selection

MOST_PAIRS = 200  # of labels and their values
SEEN_FOR_LABELS = 200_000  # requests that are looked at
_NAME = re.compile(r"[A-Za-z_][\w.\-]*")


@dataclass(frozen=True, slots=True)
class Choices:
    """begin, end: of all requests and KV events, None when there are none. requests, events: whether there are any.
    labels: names; conditions: `name=value` as a selection takes them, the most frequent first."""

    servers: list[str]
    models: list[str]
    labels: list[str]
    conditions: list[str]
    begin: datetime | None
    end: datetime | None
    requests: bool
    events: bool


@dataclass(frozen=True, slots=True)
class RequestLine:
    """A request to look at. cached, computed: tokens, None where nothing tells. time: UTC."""

    request_id: str
    server: str
    model: str
    time: datetime
    prompt: int
    cached: int | None
    computed: int | None


def choices(client: Client) -> Choices:
    """What the store has. Label values are those of some requests, not of all."""
    pairs = client.query(
        f"SELECT DISTINCT server, model FROM requests ORDER BY server, model LIMIT {10 * MOST_PAIRS}"
    ).result_rows
    of_events = client.query("SELECT DISTINCT server FROM kv_events ORDER BY server").result_rows
    span = client.query(
        "SELECT toTimeZone(min(t0), 'UTC'), toTimeZone(max(t1), 'UTC'), sum(n) FROM ("
        " SELECT min(time) AS t0, max(time) AS t1, count() AS n FROM requests HAVING n > 0"
        " UNION ALL SELECT min(time), max(time), count() AS n FROM kv_events HAVING n > 0)"
    ).result_rows[0]
    labels = client.query(
        "SELECT pair.1 AS name, pair.2 AS value FROM ("
        f" SELECT arrayJoin(CAST(labels, 'Array(Tuple(String, String))')) AS pair FROM ("
        f"  SELECT labels FROM requests WHERE notEmpty(labels) LIMIT {SEEN_FOR_LABELS}))"
        f" WHERE value != '' GROUP BY name, value ORDER BY count() DESC, name, value LIMIT {MOST_PAIRS}"
    ).result_rows
    usable = [(str(n), str(v)) for n, v in labels if _NAME.fullmatch(str(n))]
    return Choices(
        servers=sorted({str(s) for s, _ in pairs} | {str(row[0]) for row in of_events}),
        models=sorted({str(m) for _, m in pairs if m}),
        labels=sorted({_label(name) for name, _ in usable}),
        conditions=[f"{_label(name)}={value.replace(',', '*')}" for name, value in usable],
        begin=span[0].replace(tzinfo=UTC) if span[2] else None,
        end=span[1].replace(tzinfo=UTC) if span[2] else None,
        requests=bool(pairs),
        events=bool(of_events),
    )


def most_computed(client: Client, selection: Selection, most: int = 20) -> list[RequestLine]:
    """The requests of a selection that computed most prompt tokens, those of unknown hits by their prompt, last."""
    rows = client.query(
        "SELECT request_id, server, model, toTimeZone(time, 'UTC'), prompt_tokens, cached_tokens,"
        " prompt_tokens - cached_tokens AS computed"
        f" FROM requests WHERE {selection.condition} AND prompt_tokens IS NOT NULL"
        f" ORDER BY computed DESC NULLS LAST, prompt_tokens DESC, request_id LIMIT {int(most)}",
        parameters=selection.parameters,
    ).result_rows
    return [RequestLine(*row) for row in rows]


def _label(name: str) -> str:
    """A label called as a column is needs its full name."""
    return f"label.{name}" if name in (*TEXT_COLUMNS, *NUMBER_COLUMNS) else name
