"""What stands on a report's page and in which order, the same for the terminal, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.report import tables
from analysis.report.attributed import fidelity_table, method_lines, onset_table, view_table
from analysis.report.model import Report, SetLine

FOOTNOTE = (
    "* derived, not told by a server. Bold or marked: the interval of the change leaves zero out, or the gate is"
    " passed."
)


def answers(report: Report) -> Iterator[tables.TextTable]:
    """What answers the question: causes, where they show, what else differs, since when."""
    found = report.attribution
    if found:
        yield view_table(found.caused, found.q)
        yield view_table(found.shows, found.q)
    yield from tables.composition(report)
    yield from tables.load(report)
    if found:
        yield from onset_table(found.onsets)


def details(report: Report) -> Iterator[tables.TextTable]:
    """What the answers rest on."""
    yield from tables.figures(report)
    if found := report.attribution:
        yield view_table(found.linear, found.q)
        yield from fidelity_table(found.fidelity)
    yield from tables.counters(report)


def method(report: Report) -> list[str]:
    """How the figures came about."""
    found = report.attribution
    return [FOOTNOTE, *(method_lines(found) if found else []), report.method]


def described(side: str, s: SetLine) -> str:
    """One of the two sets on a line."""
    return f"{side}: {s.name}, n = {s.n:,}, {s.begin} to {s.end}, {', '.join(s.servers)}"
