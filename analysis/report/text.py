"""The report for a terminal and as Markdown."""

from __future__ import annotations

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analysis.report.model import Report, SetLine
from analysis.report.tables import TextTable, tables

WIDE = 100  # characters from which the intervals of A and B have room beside that of the change
FOOTNOTE = "* derived by subtraction. Bold: the interval of the change leaves zero out."


def to_terminal(report: Report, console: Console) -> None:
    """Print the report; `console` decides width and colour."""
    parts: list[Text | Table | Padding] = [Text(report.answer, style="bold"), Text()]
    parts += [Text(_describe(name, line)) for name, line in (("A", report.a), ("B", report.b))]
    for table in tables(report):
        parts += [Text(), _rich(table, console.width)]
    parts += [Text(), Text(FOOTNOTE, style="dim"), Text(report.method, style="dim")]
    for title, lines in (("Be wary", report.warnings), ("Next", report.next_steps)):
        if lines:
            parts += [
                Text(),
                Text(title, style="bold"),
                *(Padding(Text(line), (0, 0, 0, 2)) for line in lines),
            ]
    console.print(Group(*parts))


def to_markdown(report: Report) -> str:
    """A self-contained Markdown page."""
    lines = [f"# {report.a.name} against {report.b.name}", "", report.answer, ""]
    lines += [f"* {_describe(name, line)}" for name, line in (("A", report.a), ("B", report.b))]
    for table in tables(report):
        lines += ["", f"## {table.title}", "", *_markdown(table)]
    lines += ["", FOOTNOTE, "", report.method]
    for title, items in (("Be wary", report.warnings), ("Next", report.next_steps)):
        if items:
            lines += ["", f"## {title}", "", *(f"* {item}" for item in items)]
    return "\n".join(lines) + "\n"


def _describe(side: str, s: SetLine) -> str:
    return f"{side}: {s.name}, n = {s.n:,}, {s.begin} to {s.end}, {', '.join(s.servers)}"


def _rich(table: TextTable, width: int) -> Table:
    result = Table(
        title=table.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    shown = [i for i, column in enumerate(table.columns) if width >= WIDE or not column.detail]
    for column in (table.columns[i] for i in shown):
        result.add_column(column.heading, justify="right" if column.number else "left", no_wrap=True)
    for row, strong in zip(table.rows, table.strong, strict=True):
        result.add_row(*(Text(row[i]) for i in shown), style="bold" if strong else None)
    return result


def _markdown(table: TextTable) -> list[str]:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    rule = ["---:" if column.number else "---" for column in table.columns]
    rows = [
        [f"**{c}**" if strong and c else c for c in (cell.replace("|", "\\|") for cell in row)]
        for row, strong in zip(table.rows, table.strong, strict=True)
    ]
    return [line([column.heading for column in table.columns]), line(rule), *map(line, rows)]
