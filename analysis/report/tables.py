"""The report's tables as rows of text, the same for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from analysis.report.model import Comparison, Estimate, Report


class Show(Protocol):
    """How to write a number: sign is "+" for a change."""

    def __call__(self, value: float, sign: str = "") -> str: ...


@dataclass(frozen=True, slots=True)
class Column:
    """number: align right. detail: left out where there is little room."""

    heading: str
    number: bool = True
    detail: bool = False


@dataclass(frozen=True, slots=True)
class TextTable:
    """strong: rows whose change is clear."""

    title: str
    columns: list[Column]
    rows: list[list[str]]
    strong: list[bool]


def tables(report: Report) -> Iterator[TextTable]:
    """In the order a reader needs them."""
    yield _compared(f"{report.metric}, ms", [(_marked(c.name, c), c) for c in report.quantiles], _number)
    if report.layers:
        label = f"P{100 * report.quantile:g}"
        parts = [(_marked(line.layer, line.part), line.part) for line in report.layers]
        yield _compared(f"Where it shows: what {label} is made of, ms", parts, _number)
        means = [(_marked(line.layer, line.mean), line.mean) for line in report.layers]
        yield _compared("Mean of each layer, ms", means, _number)
    if report.tokens:
        shares = [(_marked(t.source, t.share), t.share) for t in report.tokens]
        totals = [[f"{t.tokens_a:,}", f"{t.tokens_b:,}"] for t in report.tokens]
        extra = [Column("tokens A"), Column("tokens B")]
        yield _compared("Prompt tokens by source, % of the prompt", shares, _percent, extra, totals)
    if report.workload:
        loads = [(c.name, c) for c in report.workload]
        yield _compared("Tokens of a request, mean", loads, _number)
    if report.counters:
        columns = [
            Column("server", number=False),
            Column("counter", number=False),
            Column("source", number=False),
        ]
        cells = [[c.server, c.metric, c.labels, _count(c.a), _count(c.b)] for c in report.counters]
        title = "Server counters while these requests ran, others included"
        yield TextTable(title, [*columns, Column("A"), Column("B")], cells, [False] * len(cells))


def _compared(
    title: str,
    rows: Sequence[tuple[str, Comparison]],
    show: Show,
    extra: Sequence[Column] = (),
    extra_cells: Sequence[list[str]] = (),
) -> TextTable:
    columns = [Column("", number=False), *extra]
    columns += [Column("A"), Column("95%", detail=True), Column("B"), Column("95%", detail=True)]
    columns += [Column("change"), Column("95%")]
    cells = [
        [name, *more, *_cells(c.a, show), *_cells(c.b, show), *_cells(c.change, lambda v: show(v, "+"))]
        for (name, c), more in zip(rows, extra_cells or [[] for _ in rows], strict=True)
    ]
    return TextTable(title, columns, cells, [c.clear for _, c in rows])


def _cells(estimate: Estimate, show: Callable[[float], str]) -> list[str]:
    if estimate.low is None or estimate.high is None:
        return [show(estimate.value), "too few"]
    return [show(estimate.value), f"{show(estimate.low)} to {show(estimate.high)}"]


def _marked(name: str, comparison: Comparison) -> str:
    return f"{name} *" if comparison.provenance == "derived" else name


def _number(value: float, sign: str = "") -> str:
    rounded = round(value, 1) or 0.0
    return f"{rounded:{sign if rounded else ''},.{0 if abs(rounded) >= 1000 else 1}f}"


def _percent(value: float, sign: str = "") -> str:
    return _number(100 * value, sign)


def _count(value: float | None) -> str:
    return "not sampled" if value is None else f"{value:,.0f}"
