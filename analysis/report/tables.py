"""Comparisons as rows of text, the same for the terminal, for Markdown and for a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from analysis.numbers import quantile_name
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
    """strong: rows whose change is clear. notes: sentences below it; without rows they are all there is to say."""

    title: str
    columns: list[Column]
    rows: list[list[str]]
    strong: list[bool]
    notes: list[str] = field(default_factory=list)


def composition(report: Report) -> Iterator[TextTable]:
    """The chosen quantile split over the layers."""
    if report.layers:
        parts = [(_marked(line.layer, line.part), line.part) for line in report.layers if _any(line.mean)]
        yield _compared(f"What {quantile_name(report.quantile)} is made of, ms", parts, _number)


def load(report: Report) -> Iterator[TextTable]:
    """Where prompt tokens came from, and how large requests are."""
    if report.tokens:
        told = [t for t in report.tokens if _any(t.share)]
        shares = [(_marked(t.source, t.share), t.share) for t in told]
        totals = [[f"{t.tokens_a:,}", f"{t.tokens_b:,}"] for t in told]
        extra = [Column("tokens A"), Column("tokens B")]
        yield _compared("Prompt tokens by source, % of the prompt", shares, _percent, extra, totals)
    if report.workload:
        loads = [(c.name, c) for c in report.workload]
        yield _compared("Tokens of a request, mean", loads, _number)


def figures(report: Report) -> Iterator[TextTable]:
    """Every quantile, and the mean of each layer."""
    yield _compared(f"{report.metric}, ms", [(_marked(c.name, c), c) for c in report.quantiles], _number)
    if report.layers and report.quantile is not None:
        means = [(_marked(line.layer, line.mean), line.mean) for line in report.layers if _any(line.mean)]
        yield _compared("Mean of each layer, ms", means, _number)


def counters(report: Report) -> Iterator[TextTable]:
    """What the servers counted meanwhile."""
    if report.counters:
        columns = [
            Column("server", number=False),
            Column("counter", number=False),
            Column("source", number=False),
        ]
        cells = [[c.server, c.metric, c.labels, _count(c.a), _count(c.b)] for c in report.counters]
        title = "Server counters while these requests ran, others included"
        yield TextTable(title, [*columns, Column("A"), Column("B")], cells, [False] * len(cells))


def _any(c: Comparison) -> bool:
    """Whether there is anything: a tier that served nothing in either set is not worth a row."""
    return c.a.value != 0 or c.b.value != 0


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
