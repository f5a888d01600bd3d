"""The report for a terminal and as Markdown. What telemetry or a user named is shown as text, whatever it holds."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from analysis.report.model import Report, SetLine
from analysis.report.paper import escaped, fits, markdown_table, shown_text, terminal_table
from analysis.report.tables import tables
from cachemodel.printable import printable

FOOTNOTE = "* derived, not told by a server. Bold: the interval of the change leaves zero out."


def to_terminal(report: Report, console: Console) -> None:
    """Print the report; `console` decides width and colour. Where there is little room, the intervals of A and B are
    left out and the rest is folded, never cut."""
    console.print(shown_text(report.answer, "bold"), Text(), sep="\n")
    for side, line in (("A", report.a), ("B", report.b)):
        console.print(shown_text(_describe(side, line)))
    shown = [terminal_table(table, detail=True) for table in tables(report)]
    if not all(fits(table, console) for table in shown):
        shown = [terminal_table(table, detail=False) for table in tables(report)]
    for table in shown:
        console.print(Text(), table, sep="\n")
    console.print(Text(), shown_text(FOOTNOTE, "dim"), shown_text(report.method, "dim"), sep="\n")
    if report.warnings:
        console.print(Text(), Text("Be wary", style="bold"), sep="\n")
    for warning in report.warnings:
        console.print(Padding(shown_text(warning), (0, 0, 0, 2), expand=False))
    console.print(Text(), Text("Next", style="bold"), sep="\n")
    for step in report.next_steps:
        console.print(shown_text(f"  {step}"), soft_wrap=True)  # a command stays whole, to be copied


def to_markdown(report: Report) -> str:
    """A self-contained Markdown page."""
    lines = [
        f"# {escaped(report.a.name)} against {escaped(report.b.name)}",
        "",
        escaped(report.answer),
        "",
    ]
    lines += [f"* {escaped(_describe(side, line))}" for side, line in (("A", report.a), ("B", report.b))]
    for table in tables(report):
        lines += ["", f"## {escaped(table.title)}", "", *markdown_table(table)]
    lines += ["", escaped(FOOTNOTE), "", escaped(report.method)]
    if report.warnings:
        lines += ["", "## Be wary", "", *(f"* {escaped(warning)}" for warning in report.warnings)]
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
