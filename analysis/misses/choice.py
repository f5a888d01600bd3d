"""What a person asks `hitmap misses` for: which requests, grouped by what."""

from __future__ import annotations

import re
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
_OF_CHAIN = re.compile(rf"\s*({'|'.join(BY_CHAIN)})\s*=\s*([0-9a-f]{{4,16}})\s*")


def selected(client: Client, text: str, now: datetime, labels: Sequence[str]) -> Selection:
    """The requests that `text` asks for; an empty one asks for the last hour, or the last in which any came, or else KV
    events."""
    if text.strip():
        return _parsed(client, text, now, labels)
    latest, what = _latest(client, now)
    end = now if latest > now - LATEST else latest
    name = f"{'the last hour' if end is now else f'the last hour with {what}'}, up to {end:%Y-%m-%d %H:%M:%S} UTC"
    asked = "-1h/now" if end is now else "/".join(f"{at:%Y-%m-%dT%H:%M:%S}" for at in _around(end))
    return Selection(
        name,
        f"(time > {{since:{TIME}}} AND time <= {{upto:{TIME}}})",
        {"since": _utc(end - LATEST), "upto": _utc(end)},
        asked=asked,
    )


def _around(end: datetime) -> tuple[datetime, datetime]:
    """Whole seconds that begin and end about where the hour up to a time does, which is among them."""
    return end - LATEST, end + timedelta(seconds=1)


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
    terms = text.split(",")
    chained = [found for term in terms if (found := _OF_CHAIN.fullmatch(term))]
    rest = ",".join(term for term in terms if not _OF_CHAIN.fullmatch(term))
    try:
        plain = parse_set(rest, now=now, labels=labels, prefix="m") if rest.strip(" ,") else Selection("", "")
        return _of_chains(plain, chained, text) if chained else plain
    except UsageError as error:
        # without requests there are no labels: that is what is wrong then, not the name of one
        if labels or client.query("SELECT count() FROM requests").result_rows[0][0]:
            raise
        alone = client.query("SELECT count() FROM kv_events").result_rows[0][0]
        events = f" ({alone:,} KV events have come: ask for a server or a time)" if alone else ""
        raise UserError(f"{inventory(client)}{events}; {error}") from None


def _of_chains(plain: Selection, terms: Sequence[re.Match[str]], text: str) -> Selection:
    """Of some requests those whose chains have a template or isolation that begins with these digits."""
    conditions, parameters = list(filter(None, [plain.condition])), dict(plain.parameters)
    for number, term in enumerate(terms):
        name, digits = term.groups()
        parameters[f"digits{number}"] = digits
        conditions.append(
            "(server, request_id) IN (SELECT server, request_id FROM request_chains"
            f" WHERE startsWith(leftPad(lower(hex({name})), 16, '0'), {{digits{number}:String}}))"
        )
    return Selection(
        text,
        " AND ".join(conditions),
        parameters,
        (*plain.texts, *(term[1] for term in terms)),
        plain.numbers,
        text,
    )


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
