"""The report's tables as titled rows of text, the same for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from analysis.report.model import Comparison, Estimate, Report


@dataclass(frozen=True, slots=True)
class TextTable:
    """columns: (heading, whether numbers). strong: rows whose change is clear."""

    title: str
    columns: list[tuple[str, bool]]
    rows: list[list[str]]
    strong: list[bool]


def tables(report: Report) -> Iterator[TextTable]:
    """In the order a reader needs them."""
    yield _compared(f"{report.metric}, ms", [(c.name, c) for c in report.quantiles], _number)
    if report.layers:
        label = f"P{100 * report.quantile:g}"
        rows = [(_marked(line.layer, line.part), line.part) for line in report.layers]
        yield _compared(f"Where it shows: what {label} is made of, ms", rows, _number)
        rows = [(_marked(line.layer, line.mean), line.mean) for line in report.layers]
        yield _compared("Mean of each layer, ms", rows, _number)
    if report.tokens:
        rows = [
            (_marked(f"{t.source} ({t.tokens_a:,} / {t.tokens_b:,})", t.share), t.share)
            for t in report.tokens
        ]
        yield _compared("Prompt tokens by source (tokens A / B), % of the prompt", rows, _percent)
    if report.counters:
        columns = [("server", False), ("counter", False), ("source", False), ("A", True), ("B", True)]
        cells = [[c.server, c.metric, c.labels, _count(c.a), _count(c.b)] for c in report.counters]
        yield TextTable(
            "Server counters while these requests ran, others included", columns, cells, [False] * len(cells)
        )


def _compared(title: str, rows: list[tuple[str, Comparison]], show: Callable[[float], str]) -> TextTable:
    columns = [
        ("", False),
        ("A", True),
        ("95 %", True),
        ("B", True),
        ("95 %", True),
        ("change", True),
        ("95 %", True),
    ]
    cells = [
        [name, *_cells(c.a, show), *_cells(c.b, show), *_cells(c.change, lambda v: _sign(show, v))]
        for name, c in rows
    ]
    return TextTable(title, columns, cells, [c.clear for _, c in rows])


def _cells(estimate: Estimate, show: Callable[[float], str]) -> list[str]:
    if estimate.low is None or estimate.high is None:
        return [show(estimate.value), ""]
    return [show(estimate.value), f"{show(estimate.low)} to {show(estimate.high)}"]


def _marked(name: str, comparison: Comparison) -> str:
    return f"{name} *" if comparison.provenance == "derived" else name


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:,.1f}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _sign(show: Callable[[float], str], value: float) -> str:
    shown = show(value)
    return (
        f"+{shown}"
        if value > 0 and shown.strip("0.,")
        else shown.replace("-0.0", "0.0")
        if not value
        else shown
    )


def _count(value: float | None) -> str:
    return "not sampled" if value is None else f"{value:,.0f}"
