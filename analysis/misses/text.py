"""A miss report for a terminal and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analysis.misses.parts import COLOURS, PARTS
from analysis.misses.report_model import MissReport
from analysis.misses.tables import BarTable, shown_time, tables
from analysis.misses.words import counted
from analysis.report.paper import coloured, escaped, fits, markdown_table, needs, shown_text, terminal_table
from cachemodel.printable import printable

BAR_WIDTH = 24
_CELL = "\N{FULL BLOCK}"
METHOD = (
    "Each computed token has one cause: that of the first of the ideal caches, each able to do one thing more than the"
    " one before, that would have served it (docs/misses.md)."
)


def to_terminal(report: MissReport, console: Console) -> None:
    """Print the report; `console` decides width and colour. Where there is little room columns of detail and bars are
    left out and the rest is folded, never cut; without colour a bar would say nothing."""
    console.print(shown_text(report.answer, "bold"), Text(), sep="\n")
    console.print(shown_text(describe(report)))
    if report.total.prompt and coloured(console):
        width = min(console.width, 100)
        console.print(
            Text(), bar(report.total.parts, report.total.prompt, width), legend(report.total.parts), sep="\n"
        )
    for table in tables(report):
        _print_table(table, console)
    console.print(Text(), shown_text(METHOD, "dim"), sep="\n")
    for title, sentences in _lists(report):
        print_sentences(title, sentences, console)


def print_sentences(title: str, sentences: Sequence[str], console: Console) -> None:
    """Each a paragraph; a command stays whole, to be copied."""
    console.print(Text(), Text(title, style="bold"), sep="\n")
    for sentence in sentences:
        if sentence.startswith("hitmap "):
            console.print(shown_text(f"  {sentence}"), soft_wrap=True)
        else:
            console.print(Padding(shown_text(sentence), (0, 0, 0, 2), expand=False))


def bullets(sentences: Sequence[str]) -> list[str]:
    """The same as Markdown."""
    return [f"* {_code(s)}" if s.startswith("hitmap ") else f"* {escaped(s)}" for s in sentences]


def to_markdown(report: MissReport) -> str:
    """A self-contained Markdown page."""
    lines = [
        f"# Misses: {escaped(report.name)}",
        "",
        escaped(report.answer),
        "",
        f"* {escaped(describe(report))}",
    ]
    for table in tables(report):
        lines += ["", f"## {escaped(table.table.title)}", "", *markdown_table(table.table)]
    lines += ["", escaped(METHOD)]
    for title, sentences in _lists(report):
        lines += ["", f"## {title}", ""]
        lines += bullets(sentences)
    return "\n".join(lines) + "\n"


def describe(report: MissReport) -> str:
    """Which requests these are."""
    total = report.total
    period = f"{shown_time(report.begin)} to {shown_time(report.end)} UTC"
    if not total.requests:
        return f"{report.name}: no requests, {period}"
    left = "" if total.placed == total.requests else f", {total.placed:,} of them placed"
    one = f", all of one {report.by}: {report.lines[0].key}" if len(report.lines) == 1 else ""
    return f"{report.name}: {counted(report)}{left}, {total.prompt:,} prompt tokens, {period}{one}"


def bar(parts: Mapping[str, int], whole: int, width: int) -> Text:
    """Parts of a whole side by side, each in its colour; what is too little for a cell of its own is not shown."""
    text, begun, drawn = Text(), 0, 0
    for name in PARTS:
        begun += parts.get(name, 0)
        upto = round(width * begun / whole) if whole else 0
        text.append(_CELL * (upto - drawn), COLOURS[name])
        drawn = upto
    return text.append(" " * (width - drawn))


def legend(parts: Mapping[str, int]) -> Text:
    """What the colours of a bar stand for."""
    text = Text()
    for name in (name for name in PARTS if parts.get(name)):
        text.append(f"{_CELL} ", COLOURS[name]).append(f"{name}  ")
    return text


def _code(text: str) -> str:
    """Text as Markdown's code on one line, whatever backticks are in it."""
    shown = printable(text, lines=False)
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    room = " " if "`" in shown else ""
    return f"{fence}{room}{shown}{room}{fence}"


def _print_table(table: BarTable, console: Console) -> None:
    drawn = table.bars if coloured(console) else []
    bars = [bar(parts, whole, BAR_WIDTH) for parts, whole in drawn] or None
    forms = [(True, bars), (False, bars), (False, None)]
    shown = [terminal_table(table.table, detail=detail, last=last) for detail, last in forms]
    console.print(
        Text(), next((t for t in shown if fits(t, console)), None) or folded(shown[-1], console), sep="\n"
    )


def folded(table: Table, console: Console) -> Table:
    """A table that is too wide, folded between words while there is room for its longest ones: what is left is given to
    the last column, which has the most words as a rule."""
    words = [
        max(cell_len(word) for cell in (column.header, *column.cells) for word in [*str(cell).split(), ""])
        for column in table.columns
    ]
    for column, width in zip(table.columns, words, strict=True):
        column.width = width
    if (spare := console.width - needs(table, console)) < 0:
        for column in table.columns:
            column.width = None
    else:
        table.columns[-1].width = words[-1] + spare
    return table


def _lists(report: MissReport) -> list[tuple[str, list[str]]]:
    """What follows the tables, each with its title; those that say nothing left out."""
    titled = [
        ("What would tell the unknown ones", report.unknown_needs),
        ("Be wary", report.warnings),
        ("Next", report.next_steps),
    ]
    return [(title, sentences) for title, sentences in titled if sentences]
