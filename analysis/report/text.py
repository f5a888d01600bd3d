"""The report for a terminal and as Markdown. What telemetry or a user named is shown as text, whatever it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from analysis.attribution.model import Finding
from analysis.report.attributed import finding_lines
from analysis.report.model import Report
from analysis.report.page import answers, described, details, method
from analysis.report.paper import escaped, fits, markdown_table, needs, shown_text, terminal_table
from analysis.report.tables import TextTable
from cachemodel.printable import printable


def to_terminal(report: Report, console: Console) -> None:
    """Print the report; `console` decides width and colour. Where a table has little room, columns of
    detail are left out, which is said, and the rest is folded, never cut."""
    console.print(shown_text(report.answer, "bold"), Text(), sep="\n")
    for side, line in (("A", report.a), ("B", report.b)):
        console.print(shown_text(described(side, line)))
    _print_tables(answers(report), console)
    if report.attribution:
        _print_findings(report.attribution.findings, console)
    _print_tables(details(report), console)
    console.print(Text(), *(shown_text(line, "dim") for line in method(report)), sep="\n")
    if report.warnings:
        console.print(Text(), Text("Be wary", style="bold"), sep="\n")
    for warning in report.warnings:
        console.print(_indented(warning))
    print_steps(report.next_steps, console)


def print_steps(steps: Sequence[str], console: Console) -> None:
    """What to do next, each command whole, to be copied."""
    if steps:
        console.print(Text(), Text("Next", style="bold"), sep="\n")
    for step in steps:
        console.print(shown_text(f"  {step}"), soft_wrap=True)


def to_markdown(report: Report) -> str:
    """A self-contained Markdown page."""
    lines = [
        f"# {escaped(report.a.name)} against {escaped(report.b.name)}",
        "",
        escaped(report.answer),
        "",
    ]
    lines += [f"* {escaped(described(side, line))}" for side, line in (("A", report.a), ("B", report.b))]
    for table in answers(report):
        lines += _section(table)
    for finding in report.attribution.findings if report.attribution else []:
        lines += ["", f"## {escaped(finding.title)}", ""]
        lines += [f"* {escaped(line)}" for line in finding_lines(finding)]
    for table in details(report):
        lines += _section(table)
    for line in method(report):
        lines += ["", escaped(line)]
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


def _print_tables(tables: Iterable[TextTable], console: Console) -> None:
    for table in tables:
        if table.rows:
            marks = not console.is_terminal
            whole = terminal_table(table, detail=True, marks=marks)
            room = fits(whole, console)
            shown = whole if room else terminal_table(table, detail=False, marks=marks)
            console.print(Text(), shown, sep="\n")
            left_out = [column.heading for column in table.columns if column.detail]
            if left_out and not room:
                wider = f"{needs(whole, console)} columns show {', '.join(dict.fromkeys(left_out))}, too"
                console.print(_indented(wider, "dim"))
        else:
            console.print(Text(), shown_text(table.title, "bold"), sep="\n")
        for note in table.notes:
            console.print(_indented(note, "dim" if table.rows else ""))


def _print_findings(findings: Sequence[Finding], console: Console) -> None:
    if findings:
        console.print(Text(), Text("What it looks like", style="bold"), sep="\n")
    for finding in findings:
        console.print(_indented(finding.title, "bold"))
        for line in finding_lines(finding):
            console.print(Padding(shown_text(line), (0, 0, 0, 4), expand=False))


def _indented(text: str, style: str = "") -> Padding:
    return Padding(shown_text(text, style), (0, 0, 0, 2), expand=False)


def _section(table: TextTable) -> list[str]:
    rows = ["", *markdown_table(table)] if table.rows else []
    notes = ["", *(f"* {escaped(note)}" for note in table.notes)] if table.notes else []
    return ["", f"## {escaped(table.title)}", *rows, *notes]
