"""Runs the rules over what servers told in a time range. SQL does the work: one query a rule, all servers at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from analysis.sanity.model import SEVERITIES, Cause, Examination, Finding, Rule, Unanswered, Value
from analysis.sanity.table import rules
from analysis.sanity.versions import is_within
from analysis.sanity.views import metrics_of, with_views

_SERVER, _SAID, _CORRECTED = "server", "said", "corrected"


def examine(
    client: Client,
    servers: Sequence[str],
    begin: datetime,
    end: datetime,
    table: Iterable[Rule] | None = None,
) -> Examination:
    """What the rules find about these servers from `begin` to before `end`; one that the store cannot answer does not
    keep the others from it.

    table: the rules to go by, all of them by default.
    """
    if not servers:
        return Examination()
    parameters = parameters_of(servers, begin, end)
    known = _known(client, parameters)
    found: list[Finding] = []
    unanswered: list[Unanswered] = []
    for rule in rules() if table is None else table:
        try:
            found += _apply(client, rule, parameters, known)
        except DatabaseError as error:
            unanswered.append(Unanswered(rule, " ".join(str(error).split())[:300]))
    order = {server: number for number, server in enumerate(servers)}
    found.sort(key=lambda f: (order[f.server], SEVERITIES.index(f.rule.severity)))
    return Examination(tuple(found), tuple(unanswered))


def parameters_of(servers: Sequence[str], begin: datetime, end: datetime) -> dict[str, Any]:
    """The parameters that all views share."""
    return {"servers": list(servers), "from": _utc(begin), "to": _utc(end)}


def _apply(
    client: Client, rule: Rule, parameters: dict[str, Any], known: dict[str, tuple[str, str]]
) -> list[Finding]:
    """One rule's findings, of the servers that it is about."""
    asked = [server for server in parameters["servers"] if _concerns(rule, *known.get(server, ("", "")))]
    if not asked:
        return []
    result = client.query(
        with_views(rule.sql),
        parameters={**parameters, "servers": asked, "metrics": metrics_of(rule.sql, rule.metrics)},
    )
    rows = (dict(zip(result.column_names, row, strict=True)) for row in result.result_rows)
    return [_finding(rule, row, *known.get(str(row[_SERVER]), ("", ""))) for row in rows]


def _concerns(rule: Rule, kind: str, version: str) -> bool:
    if rule.dialects and kind not in rule.dialects:
        return False
    return not (rule.before or rule.since) or is_within(version, rule.since, rule.before)


def _finding(rule: Rule, row: dict[str, Value], kind: str, version: str) -> Finding:
    server, said, corrected = (row.pop(name, None) for name in (_SERVER, _SAID, _CORRECTED))
    return Finding(
        rule=rule,
        server=str(server),
        said=_number(said),
        corrected=_possible(_number(corrected), rule.unit),
        evidence=row,
        causes=tuple(cause for cause in rule.causes if _explains(cause, kind, version)),
    )


def _explains(cause: Cause, kind: str, version: str) -> bool:
    """Whether a cause is one of this server's. Of a server that hides its version every cause of its kind may be."""
    if cause.dialect not in ("", kind):
        return False
    return not version or is_within(version, cause.since, cause.before)


def _known(client: Client, parameters: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Kind and version by server."""
    rows = client.query(
        with_views("SELECT server, kind, version FROM told"), parameters=parameters
    ).result_rows
    return {str(server): (str(kind), str(version)) for server, kind, version in rows}


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _possible(corrected: float | None, unit: str) -> float | None:
    """A corrected figure; unknown where it cannot be true: one wrong figure is no better than another."""
    if corrected is None or not math.isfinite(corrected):
        return None
    return None if unit == "ratio" and not 0 <= corrected <= 1 else corrected


def _utc(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
