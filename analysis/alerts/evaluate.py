"""Asks the store which windows breach a rule, and makes alerts of them. SQL does the work: one query a rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from analysis.alerts.look import commands, servers_of, slowest_requests
from analysis.alerts.model import Alert, Report, Rule, State, Subject, Verdict
from analysis.alerts.table import rules
from analysis.alerts.views import with_views
from analysis.sanity.sources import known_servers

MOST_ROWS = 20_000
"""Alerts and subjects of one rule; beyond that its answer is refused, not cut short."""
_ERROR_CHARS = 300

# A run is what is between two windows that do not breach, or that are further apart than `gap` allows. Runs that do not
# last are counted with the windows that do not breach. thin: with too little in them to be judged.
_RUNS = """
SELECT {by}, kind, min(at) AS first, max(at) AS last, countIf(at >= {{judged_from:Int64}} OR kind = 'fired') AS windows,
       sum(samples) AS samples, {extreme}(value) AS worst, {at_extreme}(at, value) AS worst_at,
       argMax(next_at, at) AS next
FROM
(
    SELECT *, multiIf(thin, 'thin', breached AND count() OVER one * {{window:Int64}} >= {{hold:Int64}}, 'fired',
                      'clear') AS kind
    FROM
    (
        SELECT *, sum(begins) OVER (PARTITION BY {by}, thin ORDER BY at) AS run
        FROM
        (
            SELECT *, leadInFrame(at, 1, 0) OVER near AS next_at,
                   NOT breached OR NOT lagInFrame(breached, 1, 0) OVER near
                       OR at - lagInFrame(at, 1, 0) OVER near > {{window:Int64}} + {{gap:Int64}} AS begins
            FROM
            (
                SELECT {texts}, toInt64(at) AS at, toFloat64(ifNull(value, nan)) AS value,
                       toFloat64(ifNull(samples, 0)) AS samples,
                       NOT isFinite(value) OR samples < {{minimum:Float64}} OR samples = 0 AS thin,
                       value {breach} {{threshold:Float64}} AS breached
                FROM told_by_rule
                WHERE at >= {{first:Int64}} AND at < {{past:Int64}}
            )
            WINDOW near AS (
                PARTITION BY {by}, thin ORDER BY at ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
        )
    )
    WINDOW one AS (PARTITION BY {by}, thin, run)
)
GROUP BY {by}, kind, if(kind = 'fired', run, 0)
HAVING windows > 0
ORDER BY first, {by}
LIMIT {most}
"""


def evaluate(
    client: Client,
    begin: datetime,
    end: datetime,
    table: Iterable[Rule] | None = None,
    *,
    now: datetime | None = None,
) -> Report:
    """What the rules say of the windows that end after `begin` and not after `end`, so that each window is in one of
    adjoining ranges. Windows begin at whole multiples of their length since the epoch, and those that ended less than
    the rule's `delay` before `now` are left for later, since not all of them may be in the store.

    An alert may have begun before `begin`, by the rule's `for` at most. table: all rules by default. Nothing that the
    store cannot answer is raised: it stands in the rule's verdict.
    """
    now = now or datetime.now(UTC)
    servers = known_servers(client)
    asked = [rule for rule in (rules() if table is None else table) if rule.enabled]
    verdicts = [_verdict(client, rule, servers, begin, end, now) for rule in asked]
    return Report(begin, end, _explained(client, verdicts))


def _verdict(
    client: Client, rule: Rule, servers: Sequence[str], begin: datetime, end: datetime, now: datetime
) -> Verdict:
    """What came of one rule, without the commands that explain it."""
    window = rule.window_s
    judged_from = int(begin.timestamp() // window) * window
    past = int(min(end, now - timedelta(seconds=rule.delay_s)).timestamp() // window) * window
    if judged_from >= past:
        why = f"no window of {window} s ended in this range"
        return Verdict(rule, no_data=why + (f" {rule.delay_s} s ago or earlier" if rule.delay_s else ""))
    first = judged_from - -(-rule.hold_s // window) * window
    parameters = {
        **{"from": _text(first), "to": _text(past), "first": first, "judged_from": judged_from, "past": past},
        **{"window": window, "hold": rule.hold_s, "gap": rule.gap_s},
        **{"minimum": rule.minimum, "threshold": rule.threshold},
        **{"servers": list(servers), "metrics": list(rule.metrics)},
    }
    try:
        result = client.query(_sql(rule), parameters=parameters)
    except DatabaseError as error:
        return Verdict(rule, error=_said(error))
    rows = [dict(zip(result.column_names, row, strict=True)) for row in result.result_rows]
    if len(rows) >= MOST_ROWS:
        return Verdict(rule, error=f"more than {MOST_ROWS:,} alerts and subjects: ask for a shorter time")
    return _of_rows(rule, rows, judged_from, past)


def _sql(rule: Rule) -> str:
    above = rule.breach == "above"
    runs = _RUNS.format(
        by=", ".join(rule.by),
        texts=", ".join(f"toString({name}) AS {name}" for name in rule.by),
        breach=">" if above else "<",
        extreme="max" if above else "min",
        at_extreme="argMax" if above else "argMin",
        most=MOST_ROWS,
    )
    return with_views(rule.sql, runs)


def _of_rows(rule: Rule, rows: Sequence[Mapping[str, Any]], judged_from: int, past: int) -> Verdict:
    alerts: list[Alert] = []
    counted: dict[tuple[str, ...], tuple[int, int]] = {}  # by subject: windows judged, begin of the newest
    thin = 0
    for row in rows:
        if row["kind"] == "thin":
            thin += row["windows"]
            continue
        subject = tuple(row[name] for name in rule.by)
        windows, last = counted.get(subject, (0, 0))
        counted[subject] = windows + row["windows"], max(last, row["last"])
        if row["kind"] == "fired" and row["last"] >= judged_from:
            alerts.append(_alert(rule, row, past))
    subjects = tuple(
        Subject(_labels(rule, subject), windows, _time(last + rule.window_s))
        for subject, (windows, last) in sorted(counted.items())
    )
    return Verdict(rule, tuple(alerts), subjects, thin, "" if subjects else _why_nothing(rule, thin))


def _alert(rule: Rule, row: Mapping[str, Any], past: int) -> Alert:
    allowed = rule.window_s + rule.gap_s  # between the begins of two windows
    state: State = "no data"
    if row["next"] and row["next"] - row["last"] <= allowed:
        state = "resolved"  # had that window breached, it would be part of this alert
    elif not row["next"] and past - row["last"] <= allowed:
        state = "firing"
    return Alert(
        rule=rule,
        labels=_labels(rule, [row[name] for name in rule.by]),
        start=_time(row["first"]),
        end=_time(row["last"] + rule.window_s),
        worst=row["worst"],
        worst_at=_time(row["worst_at"]),
        windows=row["windows"],
        samples=row["samples"],
        state=state,
    )


def _explained(client: Client, verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts, their alerts with the commands that tell more."""
    found = list(verdicts)
    alerts = [alert for verdict in found for alert in verdict.alerts]
    servers = servers_of(client, alerts)
    slowest = slowest_requests(client, alerts, servers)
    return tuple(
        replace(verdict, alerts=tuple(replace(a, look=commands(a, slowest, servers)) for a in verdict.alerts))
        for verdict in found
    )


def _why_nothing(rule: Rule, thin: int) -> str:
    if thin:
        return f"{thin:,} window{'s' if thin > 1 else ''}, none with {rule.minimum:,.0f} {rule.of}"
    return f"it takes {rule.needs}"


def _labels(rule: Rule, values: Iterable[str]) -> dict[str, str]:
    return {name: value for name, value in zip(rule.by, values, strict=True) if value}


def _time(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def _text(second: int) -> str:
    return _time(second).strftime("%Y-%m-%d %H:%M:%S")


def _said(error: DatabaseError) -> str:
    """What the store says of a query, on one line."""
    said = str(error).partition("server response: ")[2] or str(error)
    return " ".join(said.partition(" (for url")[0].split())[:_ERROR_CHARS]
