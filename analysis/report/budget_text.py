"""A decision for a terminal, and as Markdown for a comment under a change."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from analysis.numbers import digits, ms
from analysis.report.attributed import between
from analysis.report.budgets import Decision, Outcome
from analysis.report.page import answers, described, method
from analysis.report.paper import escaped, markdown_table, shown_text, terminal_table
from analysis.report.tables import Column, TextTable

SAID = {
    Outcome.WITHIN: "within budget",
    Outcome.EXCEEDED: "budget exceeded",
    Outcome.UNDECIDED: "not decided",
}


def to_terminal(decision: Decision, console: Console) -> None:
    """Print what was decided, and on what."""
    report = decision.report
    console.print(shown_text(f"hitmap gate: {SAID[decision.outcome]}", "bold"), Text(), sep="\n")
    console.print(shown_text(report.answer), Text(), sep="\n")
    for side, line in (("A", report.a), ("B", report.b)):
        console.print(shown_text(described(side, line)))
    console.print(Text(), terminal_table(_table(decision), detail=True), sep="\n")
    for warning in report.warnings:
        console.print(shown_text(f"  {warning}", "dim"))


def to_markdown(decision: Decision) -> str:
    """A comment: the decision, its budgets, and folded below them what they rest on."""
    report = decision.report
    lines = [f"### hitmap gate: {SAID[decision.outcome]}", "", escaped(report.answer), ""]
    lines += [*markdown_table(_table(decision)), ""]
    lines += ["<details><summary>What this rests on</summary>", ""]
    lines += [f"* {escaped(described(side, s))}" for side, s in (("A", report.a), ("B", report.b))]
    for table in answers(report):
        lines += ["", f"#### {escaped(table.title)}", ""]
        lines += markdown_table(table) if table.rows else []
        lines += ["", *(f"* {escaped(note)}" for note in table.notes)] if table.notes else []
    lines += ["", *(f"* {escaped(line)}" for line in (*method(report), *report.warnings))]
    return "\n".join([*lines, "", "</details>"]) + "\n"


def _table(decision: Decision) -> TextTable:
    columns = [Column("", number=False), Column("budget"), Column("is, ms"), Column("95%")]
    columns += [Column("outcome", number=False), Column("why", number=False)]
    rows = [
        [
            line.name,
            ms(line.limit),
            "unknown" if line.value is None else digits(line.value, "+"),
            between(line.low, line.high) if line.value else "",
            line.outcome.value,
            line.why,
        ]
        for line in decision.lines
    ]
    strong = [line.outcome is not Outcome.WITHIN for line in decision.lines]
    return TextTable("Budgets", columns, rows, strong)
