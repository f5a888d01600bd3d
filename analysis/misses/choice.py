"""What a person asks `hitmap misses` for: which requests, grouped by what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from clickhouse_connect.driver.client import Client

from analysis.misses.reader import Group
from analysis.report.reader import inventory
from analysis.selection import TEXT_COLUMNS, TIME, Selection, parse_set, shortened, some_of, text_of
from cachemodel.errors import UsageError, UserError

LATEST = timedelta(hours=1)
BY_CHAIN = ("template", "isolation")
"""What stands with a request's chain rather than with the request."""


def selected(client: Client, text: str, now: datetime, labels: Sequence[str]) -> Selection:
    """The requests that `text` asks for; an empty one asks for the last hour, or the last in which any came, or else KV
    events."""
    if text.strip():
        return _parsed(client, text, now, labels)
    latest, what = _latest(client, now)
    end = now if latest > now - LATEST else latest
    name = f"{'the last hour' if end is now else f'the last hour with {what}'}, up to {end:%Y-%m-%d %H:%M:%S} UTC"
    return Selection(
        name,
        f"(time > {{since:{TIME}}} AND time <= {{upto:{TIME}}})",
        {"since": _utc(end - LATEST), "upto": _utc(end)},
    )


def group_of(by: str, labels: Sequence[str]) -> Group:
    """What requests are grouped by; raises UsageError for what they do not have."""
    if by in BY_CHAIN:
        return Group()
    name = by
    if by == "tenant" and "tenant" not in labels:
        raise UsageError("no request has a label 'tenant'; --by isolation groups by salt and adapter")
    if by not in TEXT_COLUMNS and by.removeprefix("label.") not in labels:
        columns = ", ".join(("server", "model", *BY_CHAIN))
        raise UsageError(
            f"requests cannot be grouped by {shortened(by)!r}: {columns}, or a label ({some_of(labels, by)})"
        )
    if by == "request_id":
        raise UsageError("every request is a group of its own by request_id; hitmap explain takes one apart")
    sql, parameters = text_of(name, "grouped_by")
    return Group(sql, parameters)


def _parsed(client: Client, text: str, now: datetime, labels: Sequence[str]) -> Selection:
    try:
        return parse_set(text, now=now, labels=labels, prefix="m")
    except UsageError as error:
        # without requests there are no labels: that is what is wrong then, not the name of one
        if labels or client.query("SELECT count() FROM requests").result_rows[0][0]:
            raise
        alone = client.query("SELECT count() FROM kv_events").result_rows[0][0]
        events = f" ({alone:,} KV events have come: ask for a server or a time)" if alone else ""
        raise UserError(f"{inventory(client)}{events}; {error}") from None


def _latest(client: Client, now: datetime) -> tuple[datetime, str]:
    """When the last thing came that misses can be told of, and what it was; raises UserError where nothing came."""
    for table, what in (("requests", "requests"), ("kv_events", "KV events")):
        time, count = client.query(
            f"SELECT max(toTimeZone(time, 'UTC')), count() FROM {table} WHERE time <= {{now:{TIME}}}",
            parameters={"now": _utc(now)},
        ).result_rows[0]
        if count:
            return time.replace(tzinfo=UTC), what
    raise UserError(inventory(client))


def _utc(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
