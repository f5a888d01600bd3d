"""A report as rows of the table `findings`, with what it takes to make it again."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from clickhouse_connect.driver.client import Client

from analysis.attribution.model import Attribution, Share, View
from analysis.attribution.words import change_bounds
from analysis.numbers import quantile_name
from analysis.report.compare import Asked
from analysis.report.model import Report

ORIGIN = "report"
_COLUMNS = (
    *("time", "origin", "run", "server", "name", "subject", "value", "low", "high", "unit", "samples"),
    *("inputs", "detail"),
)


@dataclass(frozen=True, slots=True)
class _Line:
    """name, subject, value, low, high, detail: as in the table."""

    name: str
    subject: str
    value: float | None
    low: float | None
    high: float | None
    detail: str
    unit: str = "ms"


def save(client: Client, report: Report, asked: Asked, layers: Path | None = None) -> str:
    """Insert a report: its headline, each share of each view, the gate and the findings; the id of the run.

    layers: the file that describes its chain, None where it is of an LLM server. The `inputs` of each row are what
    `hitmap report` was asked, with times that stay: the same call gives the same report while the requests are kept.
    """
    run, now = uuid.uuid4().hex, datetime.now(UTC)
    told: dict[str, object] = {name: getattr(asked, name) for name in ("past", "seed", "rounds")}
    told |= {"metric": report.metric, "quantile": report.quantile, "layers": str(layers) if layers else None}
    told |= {"a": report.a.asked, "b": report.b.asked, "n_a": report.a.n, "n_b": report.b.n}
    told |= {"schema": report.schema}
    servers = ",".join(sorted({*report.a.servers, *report.b.servers}))
    inputs, samples = json.dumps(told), min(report.a.n, report.b.n)
    rows = [
        [
            *(now, ORIGIN, run, servers, line.name, line.subject, line.value, line.low, line.high, line.unit),
            *(samples, inputs, line.detail),
        ]
        for line in _lines(report)
    ]
    client.insert("findings", rows, column_names=_COLUMNS)
    return run


def _lines(report: Report) -> Iterator[_Line]:
    label = quantile_name(report.quantile, "mean")
    change = next(c for c in report.quantiles if c.name == label).change
    found = report.attribution
    low, high = change_bounds((found.caused, found.shows)) if found else (change.low, change.high)
    yield _Line("report.change", label, change.value, low, high, report.answer)
    if found:
        yield from _of(found)


def _of(found: Attribution) -> Iterator[_Line]:
    for view in (found.caused, found.shows, found.composition, found.linear):
        yield from _of_view(view)
    placebo = found.placebo
    why = placebo.why or f"{placebo.blamed} of {placebo.pairs} pairs"
    yield _Line("report.false_blame", "", placebo.rate, placebo.low, placebo.high, why, "1")
    for finding in found.findings:
        detail = f"{finding.title}: {'; '.join(finding.evidence)}"
        yield _Line("report.finding", finding.rule, None, None, None, detail, "")


def _of_view(view: View) -> Iterator[_Line]:
    name = f"report.{view.kind}"
    if view.refused:
        yield _Line(name, "", None, None, None, view.refused)
        return
    for share in view.shares:
        yield _Line(name, share.name, share.value, share.low, share.high, _detail(share))
    yield _Line(name, "(not explained)", view.residual, view.residual_low, view.residual_high, view.method)


def _detail(share: Share) -> str:
    return f"{share.verdict.value}{f'; {share.own}' if share.own else ''}"
