"""The report for a terminal and as Markdown. What telemetry or a user named is shown as text, whatever it holds."""

from __future__ import annotations

import re

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analysis.report.model import Report, SetLine
from analysis.report.tables import TextTable, tables
from cachemodel.printable import printable

PAGE_WIDTH = 110  # of text in a file
FOOTNOTE = "* derived, not told by a server. Bold: the interval of the change leaves zero out."
_MARKDOWN = re.compile(r"[\\`*<>|\[\]]")


def to_terminal(report: Report, console: Console) -> None:
    """Print the report; `console` decides width and colour. Where there is little room, the intervals of A and B are
    left out and the rest is folded, never cut."""
    console.print(_text(report.answer, "bold"), Text(), sep="\n")
    for side, line in (("A", report.a), ("B", report.b)):
        console.print(_text(_describe(side, line)))
    shown = [_rich(table, detail=True) for table in tables(report)]
    unbounded = console.options.update_width(10_000)
    if any(console.measure(table, options=unbounded).maximum > console.width for table in shown):
        shown = [_rich(table, detail=False) for table in tables(report)]
    for table in shown:
        console.print(Text(), table, sep="\n")
    console.print(Text(), _text(FOOTNOTE, "dim"), _text(report.method, "dim"), sep="\n")
    if report.warnings:
        console.print(Text(), Text("Be wary", style="bold"), sep="\n")
    for warning in report.warnings:
        console.print(Padding(_text(warning), (0, 0, 0, 2), expand=False))
    console.print(Text(), Text("Next", style="bold"), sep="\n")
    for step in report.next_steps:
        console.print(_text(f"  {step}"), soft_wrap=True)  # a command stays whole, to be copied


def to_markdown(report: Report) -> str:
    """A self-contained Markdown page."""
    lines = [
        f"# {_escaped(report.a.name)} against {_escaped(report.b.name)}",
        "",
        _escaped(report.answer),
        "",
    ]
    lines += [f"* {_escaped(_describe(side, line))}" for side, line in (("A", report.a), ("B", report.b))]
    for table in tables(report):
        lines += ["", f"## {_escaped(table.title)}", "", *_markdown(table)]
    lines += ["", _escaped(FOOTNOTE), "", _escaped(report.method)]
    if report.warnings:
        lines += ["", "## Be wary", "", *(f"* {_escaped(warning)}" for warning in report.warnings)]
    lines += [
        "",
        "## Next",
        "",
        "```sh",
        *(printable(step, lines=False) for step in report.next_steps),
        "```",
    ]
    return "\n".join(lines) + "\n"


def _describe(side: str, s: SetLine) -> str:
    return f"{side}: {s.name}, n = {s.n:,}, {s.begin} to {s.end}, {', '.join(s.servers)}"


def _rich(table: TextTable, *, detail: bool) -> Table:
    shown = [i for i, column in enumerate(table.columns) if detail or not column.detail]
    result = Table(
        title=table.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for column in (table.columns[i] for i in shown):
        result.add_column(column.heading, justify="right" if column.number else "left", overflow="fold")
    for row, strong in zip(table.rows, table.strong, strict=True):
        result.add_row(*(_text(row[i]) for i in shown), style="bold" if strong else None)
    return result


def _markdown(table: TextTable) -> list[str]:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    rule = ["---:" if column.number else "---" for column in table.columns]
    rows = [
        [f"**{cell}**" if strong and cell else cell for cell in map(_escaped, row)]
        for row, strong in zip(table.rows, table.strong, strict=True)
    ]
    return [line([column.heading for column in table.columns]), line(rule), *map(line, rows)]


def _text(text: str, style: str = "") -> Text:
    return Text(printable(text, lines=False), style=style)


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    return _MARKDOWN.sub(r"\\\g<0>", printable(text, lines=False))
