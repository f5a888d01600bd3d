"""How `hitmap canary` shows what it would send and what it found."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cachemodel.printable import printable
from collector.canary import Budget, Finding, Report


def print_rehearsal(url: str, report: Report, budget: Budget, as_json: bool) -> None:
    """What a rehearsal sent to nobody."""
    cost = report.cost
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
        table.add_row(course.measure, *counts, course.stopped)
    total = (f"{report.requests:,}", f"{report.tokens:,}", f"{report.seconds:.0f}")
    table.add_row("in all", *total, "" if cost is None else f"cost {cost:.4g}")
    console = Console(highlight=False)
    console.print(f"Nothing was sent. To {url} would go:", markup=False)
    console.print(table)
    console.print(
        "alignment and tiers follow the answers: shown is what a server takes whose blocks have 16 tokens and whose "
        "device never fills. Repeats where it is busy, and other courses, stay within the budget: "
        f"{budget.requests:,} requests, {budget.tokens:,} tokens, {budget.seconds:g} s, {budget.rate:g} a second.",
        markup=False,
    )


def print_report(name: str, report: Report, budget: Budget, as_json: bool, *, stored: bool) -> None:
    """What a run found and spent. stored: whether it is in the store as well."""
    if as_json:
        told = asdict(report) | {"server": name, "budget": asdict(budget), "stored": stored}
        click.echo(json.dumps(told, indent=2, default=str))
        return
    console = Console(highlight=False)
    console.print(printable(f"{name}: {report.model}", lines=False), markup=False, style="bold")
    for found in report.findings:
        figure = f"{found.name} ({found.subject})" if found.subject else found.name
        cells = (f"{figure:<32}", _value(found), _bounds(found))
        console.print(printable("  ".join(filter(None, cells)), lines=False), markup=False)
        detail = Text(printable(found.detail, lines=False), style="dim")
        console.print(Padding(detail, (0, 0, 0, 4)))
    cost = "" if report.cost is None else f", cost {report.cost:.4g}"
    console.print(
        f"{report.requests:,} requests, {report.tokens:,} tokens, {report.seconds:.1f} s{cost}"
        + (f"; run {report.run} in the store" if stored else ""),
        markup=False,
    )
    for course in report.courses:
        if course.stopped:
            console.print(printable(f"{course.measure} broken off: {course.stopped}"), markup=False)
    if report.failures:
        console.print(
            printable(f"{len(report.failures)} requests failed, the last one: {report.failures[-1]}"),
            markup=False,
        )
    for note in report.notes:
        console.print(printable(f"mind: {note}", lines=False), markup=False)
    if report.dropped:
        console.print(
            printable(f"left out, since the server refuses it: {', '.join(report.dropped)}"), markup=False
        )


def _value(found: Finding) -> str:
    unit = {"1": "", "{token}": " tokens", "{cache}": ""}.get(found.unit, f" {found.unit}").replace(
        "{token}", "token"
    )
    return "not told" if found.value is None else f"{found.value:.4g}{unit}"


def _bounds(found: Finding) -> str:
    if found.low is None and found.high is None:
        return ""
    low, high = ("" if bound is None else f"{bound:.4g}" for bound in (found.low, found.high))
    return f"({low} to {high})" if low and high else f"(from {low})" if low else f"(up to {high})"
