"""Tables for a terminal and for Markdown. What telemetry or a user named is shown as text, whatever it holds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.report.tables import TextTable
from cachemodel.printable import printable

PAGE_WIDTH = 110  # of text in a file
_MARKDOWN = re.compile(r"[\\`*<>|\[\]]")


STRONG = "\N{BLACK CIRCLE}"
"""Marks a row where nothing is bold."""


def terminal_table(
    table: TextTable, *, detail: bool, last: Sequence[RenderableType] | None = None, marks: bool = False
) -> Table:
    """detail: whether columns of detail are there. last: cells of one more column. marks: strong rows have a sign."""
    shown = [i for i, column in enumerate(table.columns) if detail or not column.detail]
    result = Table(
        title=shown_text(table.title),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in (table.columns[i] for i in shown):
        heading = shown_text(column.heading)
        result.add_column(heading, justify="right" if column.number else "left", overflow="fold")
    if last is not None:
        result.add_column("", no_wrap=True)
    for at, (row, strong) in enumerate(zip(table.rows, table.strong, strict=True)):
        more = [] if last is None else [last[at]]
        cells = [f"{row[i]} {STRONG}" if marks and strong and i == shown[0] else row[i] for i in shown]
        result.add_row(*map(shown_text, cells), *more, style="bold" if strong else None)
    return result


def fits(table: Table, console: Console) -> bool:
    """Whether a table has room without folding."""
    return needs(table, console) <= console.width


def needs(table: Table, console: Console) -> int:
    """Columns of a terminal that a table takes without folding."""
    return console.measure(table, options=console.options.update_width(10_000)).maximum


def markdown_table(table: TextTable) -> list[str]:
    """Its lines."""

    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    rule = ["---:" if column.number else "---" for column in table.columns]
    rows = [
        [f"**{cell}**" if strong and cell else cell for cell in map(escaped, row)]
        for row, strong in zip(table.rows, table.strong, strict=True)
    ]
    return [line([escaped(column.heading) for column in table.columns]), line(rule), *map(line, rows)]


def coloured(console: Console) -> bool:
    """Whether parts can be told by their colours: a terminal under NO_COLOR has none."""
    return bool(console.color_system) and not console.no_color


def shown_text(text: str, style: str = "") -> Text:
    """Text that a terminal shows as it is, on one line."""
    return Text(printable(text, lines=False), style=style)


def escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    return _MARKDOWN.sub(r"\\\g<0>", printable(text, lines=False))
