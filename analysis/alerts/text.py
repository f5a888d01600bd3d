"""Alerts for a terminal. What telemetry named is shown as text, whatever it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analysis.alerts.model import Alert, Report, Rule, Verdict
from cachemodel.printable import printable

_STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "bold"}
_SIGNS = {"above": ">", "below": "<"}
_MOST_SILENT = 5  # subjects that are named in one line


def to_terminal(report: Report, console: Console) -> None:
    """Print what fired and what explains it, then the rules that say nothing and why."""
    alerts = report.alerts
    count = f"{len(alerts):,} alert{'' if len(alerts) == 1 else 's'}" if alerts else "No alerts"
    console.print(_text(f"{count} from {_date(report.begin)} to {_date(report.end)}", "bold"))
    if alerts:
        console.print(_table(alerts, detail=console.width >= 130))
        for alert in alerts:
            console.print(_text(f"{alert.rule.id}, {about(alert.labels)}: {alert.rule.means}"))
            for command in alert.look:
                console.print(_text(f"    {command}", "dim"), soft_wrap=True)
    _put(console, "Not told", [*_unanswered(report), *_without_data(report), *_silent(report)])
    quiet = [v.rule.id for v in report.verdicts if v.subjects and not v.alerts and not v.error]
    if quiet:
        _put(console, "Judged, and no alert", [", ".join(quiet)])


def headline(alert: Alert) -> str:
    """An alert in one line."""
    rule = alert.rule
    limit = f"{_SIGNS[rule.breach]} {quantity(rule.threshold, rule.unit)}"
    lasted = f"{alert.windows:,} window{'' if alert.windows == 1 else 's'} of {rule.window_s} s"
    seen = f"{rule.value} {quantity(alert.worst, rule.unit)} {limit} at worst ({_date(alert.worst_at)})"
    during = f"{lasted} from {_date(alert.start)} to {_date(alert.end)}"
    return f"{rule.severity}: {rule.id} of {about(alert.labels)}: {seen}, {during}, {alert.state}"


def about(labels: Mapping[str, str]) -> str:
    """Whom an alert is about."""
    return ", ".join(f"{name} {value}" for name, value in labels.items()) or "nobody in particular"


def quantity(value: float, unit: str) -> str:
    """A number with its unit."""
    if unit == "ratio":
        return f"{value:.3f}"
    number = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.3g}"
    return f"{number}/s" if unit == "1/s" else f"{number} {unit}"


def _table(alerts: tuple[Alert, ...], *, detail: bool) -> Table:
    """detail: also whom each is about, which is said below the table anyway, and what it rests on."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "rule", *(["about"] if detail else []), "from, UTC", "until"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("", "rule"))
    for heading in ("worst", "limit", *(["windows", "samples"] if detail else [])):
        table.add_column(heading, justify="right", overflow="fold")
    for alert in alerts:
        rule = alert.rule
        cells = [rule.id, _date(alert.start), f"{alert.end:%H:%M:%S}, {alert.state}"]
        cells += [
            quantity(alert.worst, rule.unit),
            f"{_SIGNS[rule.breach]} {quantity(rule.threshold, rule.unit)}",
        ]
        if detail:
            cells.insert(1, about(alert.labels))
            cells += [f"{alert.windows:,} x {rule.window_s} s", f"{alert.samples:,.0f} {rule.of}"]
        table.add_row(_text(rule.severity, _STYLES[rule.severity]), *map(_text, cells))
    return table


def _unanswered(report: Report) -> Iterator[str]:
    for verdict in report.verdicts:
        if verdict.error:
            yield f"{verdict.rule.id}: not answered: {verdict.error}"


def _without_data(report: Report) -> Iterator[str]:
    for verdict in report.verdicts:
        if verdict.no_data:
            yield f"{verdict.rule.id}: no data: {verdict.no_data}"


def _silent(report: Report) -> Iterator[str]:
    """Of rules that had data: whom they have not judged since long before the end."""
    for verdict in report.verdicts:
        names = [
            about(subject.labels)
            for subject in verdict.subjects
            if subject.last < _judged_until(report, verdict)
        ]
        if names:
            more = f" and {len(names) - _MOST_SILENT:,} more" if len(names) > _MOST_SILENT else ""
            yield f"{verdict.rule.id}: no data at the end of the range: {'; '.join(names[:_MOST_SILENT])}{more}"


def _judged_until(report: Report, verdict: Verdict) -> datetime:
    rule: Rule = verdict.rule
    return report.end - timedelta(seconds=rule.gap_s + rule.delay_s + 2 * rule.window_s)


def _put(console: Console, title: str, lines: list[str]) -> None:
    if lines:
        console.print(_text(f"\n{title}"))
    for line in lines:
        console.print(Padding(_text(line), (0, 0, 0, 2)))


def _text(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


def _date(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"
