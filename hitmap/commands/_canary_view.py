"""How `hitmap canary` shows what it would send and what it found."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cachemodel.printable import printable
from collector.canary import Finding, Report
from collector.canary.measures.base import BROKEN_OFF
from collector.canary.run import Course
from hitmap.commands._canary_remedy import Remedy
from hitmap.commands._canary_store import Kept


def print_rehearsal(url: str, report: Report, remedy: Remedy, as_json: bool) -> None:
    """What a rehearsal sent to nobody."""
    cost, budget = report.cost, remedy.budget
    if as_json:
        told: dict[str, Any] = {
            "url": url,
            "requests": report.requests,
            "tokens": report.tokens,
            "cost": cost,
        }
        told |= {"seconds_at_least": round(report.seconds, 3), "budget": asdict(budget)}
        click.echo(json.dumps(told | {"measures": [asdict(course) for course in report.courses]}, indent=2))
        return
    table = Table("measurement", "requests", "tokens", "seconds at least", "", box=None, pad_edge=False)
    for course in report.courses:
        counts = (f"{course.requests:,}", f"{course.tokens:,}", f"{course.seconds:.0f}")
        table.add_row(course.measure, *counts, "broken off" if course.stopped else "")
    total = (f"{report.requests:,}", f"{report.tokens:,}", f"{report.seconds:.0f}")
    table.add_row("in all", *total, "" if cost is None else f"cost {cost:.4g}")
    console = Console(highlight=False)
    console.print(f"Nothing was sent. To {url} would go:", markup=False)
    console.print(table)
    _print_broken_off(report.courses, remedy, console)
    console.print(
        "alignment and tiers follow the answers: shown is what a server takes whose blocks have 16 tokens and whose "
        "device never fills. Repeats where it is busy, and other courses, stay within the budget: "
        f"{budget.requests:,} requests, {budget.tokens:,} tokens, {budget.seconds:g} s, {budget.rate:g} a second.",
        markup=False,
    )


def print_report(name: str, report: Report, remedy: Remedy, as_json: bool, *, stored: bool) -> None:
    """What a run found and spent. stored: whether it is in the store as well."""
    if as_json:
        told = asdict(report) | {"server": name, "budget": asdict(remedy.budget), "stored": stored}
        click.echo(json.dumps(told, indent=2, default=str))
        return
    console = Console(highlight=False)
    console.print(printable(f"{name}: {report.model}", lines=False), markup=False, style="bold")
    said = {BROKEN_OFF + course.stopped for course in report.courses}
    _print_findings(report.findings, console, said)
    cost = "" if report.cost is None else f", cost {report.cost:.4g}"
    console.print(
        f"{report.requests:,} requests, {report.tokens:,} tokens, {report.seconds:.1f} s{cost}"
        + (
            f"; run {report.run} in the store, to be seen by: hitmap canary --stored {name}" if stored else ""
        ),
        markup=False,
    )
    _print_broken_off(report.courses, remedy, console)
    if report.failures:
        last = report.failures[-1]
        words = "1 request failed" if len(report.failures) == 1 else f"{len(report.failures)} requests failed"
        if not any(last in course.stopped for course in report.courses):
            words += f", the last one: {last}"
        console.print(printable(words), markup=False)
    for note in report.notes:
        console.print(printable(f"mind: {note}", lines=False), markup=False)
    if report.dropped:
        console.print(
            printable(f"left out, since the server refuses it: {', '.join(report.dropped)}"), markup=False
        )


def print_kept(kept: Sequence[Kept], as_json: bool) -> None:
    """What earlier runs found."""
    if as_json:
        click.echo(json.dumps([asdict(run) for run in kept], indent=2, default=str))
        return
    console = Console(highlight=False)
    for run in kept:
        head = f"{run.server}: run {run.run} of {run.time:%Y-%m-%d %H:%M:%S} UTC"
        console.print(printable(head, lines=False), markup=False, style="bold")
        _print_findings(run.findings, console)


def _print_findings(findings: Iterable[Finding], console: Console, said: Container[str] = ()) -> None:
    """Figures, each sentence below those that it is of. said: why some were broken off, where that stands elsewhere."""
    for detail, group in groupby(findings, lambda found: found.detail):
        for found in group:
            figure = f"{found.name} ({found.subject})" if found.subject else found.name
            value = "broken off" if detail in said else _value(found)
            cells = (f"{figure:<32}", value, _bounds(found))
            console.print(printable("  ".join(filter(None, cells)), lines=False), markup=False)
        if detail not in said:
            console.print(Padding(Text(printable(detail, lines=False), style="dim"), (0, 0, 0, 4)))


def _print_broken_off(courses: Sequence[Course], remedy: Remedy, console: Console) -> None:
    """Why measurements did not come to their end, each reason once, with what would let them."""
    reasons: dict[str, list[Course]] = {}
    for course in courses:
        if course.stopped:
            reasons.setdefault(course.spent or course.stopped, []).append(course)
    for broken in reasons.values():
        names, first = [course.measure for course in broken], broken[0]
        words = f"{', '.join(names)} {BROKEN_OFF}{first.stopped}"
        if first.spent:
            words += f"; give {remedy.of(first.spent, names)}"
        console.print(printable(words), markup=False)


def _value(found: Finding) -> str:
    if found.value is None:
        return "not told"
    if found.name == "salt.isolates":
        return "yes" if found.value else "no"
    if found.name == "replicas.hit_share":
        return f"{found.value:.1%}"
    unit = {"1": "", "{token}": " tokens", "{cache}": ""}.get(found.unit, f" {found.unit}")
    return _figure(found.value) + unit.replace("{token}", "token")


def _figure(value: float) -> str:
    """Four digits, and all of a larger number."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _bounds(found: Finding) -> str:
    if found.low is None and found.high is None:
        return ""
    low, high = ("" if bound is None else _figure(bound) for bound in (found.low, found.high))
    return f"({low} to {high})" if low and high else f"(from {low})" if low else f"(up to {high})"
