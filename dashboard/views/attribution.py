"""Attribution: two sets of requests, what caused the change between them and where it shows."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

import streamlit as st

from analysis.attribution.model import Attribution, Finding
from analysis.numbers import quantile_name
from analysis.report.attributed import (
    TITLES,
    false_blame_line,
    fidelity_table,
    finding_lines,
    onset_table,
    view_table,
)
from analysis.report.json import to_json
from analysis.report.model import Report
from analysis.report.page import described, details, method
from analysis.report.tables import TextTable, composition, load
from cachemodel.errors import UserError
from dashboard import data
from dashboard.charts import attribution as charts
from dashboard.export import csv_of_table
from dashboard.question import QUANTILES, Question
from dashboard.text import plain
from dashboard.views import hints, two_sets

CHART = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}

STRONG = "●"
# Pixels: what a window of 1,280 leaves for a table; the least of a column of words; of a cell beside its text, of a
# character, of a line of text and of what lies around the lines of a row.
ROOM, LEAST, CELL, CHARACTER, LINE, AROUND = 840, 150, 22, 6.6, 21, 14


def page() -> None:
    """The whole page."""
    st.title("Attribution", anchor=False)
    try:
        choices, labels = data.choices(), data.labels()
    except UserError as error:
        st.error(plain(str(error)), icon=":material/database_off:")
        return
    if not choices.requests:
        hints.nothing_at_all()
        return
    question = two_sets.chosen(choices, labels)
    if question is None:
        return
    try:
        report = data.report(question, _begun)
    except UserError as error:
        st.error(plain(str(error)))
        return
    _answer(report, question)


def _begun(report: Report) -> None:
    """What is there before its causes are."""
    st.markdown(f"**{plain(report.answer)}**")
    _made_of(report, "begun")


def _answer(report: Report, question: Question) -> None:
    st.markdown(f"**{plain(report.answer)}**")
    for side, line in (("A", report.a), ("B", report.b)):
        st.caption(plain(described(side, line)))
    found = report.attribution
    if found:
        _views(found)
        st.caption(plain(false_blame_line(found.placebo)))
        _findings(found.findings)
    if report.warnings:
        st.warning("\n".join(f"- {plain(warning)}" for warning in report.warnings))
    _made_of(report, "chart")
    for table in (*composition(report), *load(report)):
        _table(table)
    for table in onset_table(found.onsets) if found else ():
        _table(table)
    with st.expander("What this rests on"):
        for table in details(report):
            _table(table)
        for text in method(report):
            st.caption(_as_marked(text))
    _downloads(report, question)
    for step in report.next_steps:
        st.code(step, language=None, wrap_lines=True)


def _made_of(report: Report, key: str) -> None:
    if not report.layers:
        return
    st.subheader(f"What {quantile_name(report.quantile)} is made of; not a cause", anchor=False)
    figure = charts.composition(report.layers, (report.a.name, report.b.name))
    st.plotly_chart(figure, config=CHART, key=f"{key}.composition", alt="composition")


def _views(found: Attribution) -> None:
    """The figures beside each other, and below them in full width what they are drawn from."""
    both = (found.caused, found.shows)
    for view, column in zip(both, st.columns(2), strict=True):
        with column:
            st.subheader(TITLES[view.kind], anchor=False)
            if view.refused:
                st.info(plain(view.refused))
            else:
                figure = charts.waterfall(view)
                st.plotly_chart(figure, config=CHART, key=f"chart.{view.kind}", alt=TITLES[view.kind])
    for view in both:
        if not view.refused:
            _table(view_table(view, found.q))
    if found.caused.refused:
        for table in fidelity_table(found.fidelity):
            _table(table)


def _findings(found: list[Finding]) -> None:
    for finding in found:
        lines = "\n".join(f"- {plain(line)}" for line in finding_lines(finding))
        st.info(f"**{plain(finding.title)}**\n{lines}", icon=":material/troubleshoot:")


def _table(table: TextTable) -> None:
    """As text: its numbers carry their signs and intervals as everywhere else."""
    st.markdown(f"**{plain(table.title)}**")
    if table.rows:
        names = _distinct([column.heading for column in table.columns])
        rows = [
            [f"{row[0]} {STRONG}" if strong else row[0], *row[1:]]
            for row, strong in zip(table.rows, table.strong, strict=True)
        ]
        columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        widths, lines = fitted(
            [max(map(len, [name, *columns[name]])) for name in names],
            [not column.number for column in table.columns],
        )
        aligned = {
            name: st.column_config.TextColumn(alignment="right" if column.number else "left", width=width)
            for name, column, width in zip(names, table.columns, widths, strict=True)
        }
        st.dataframe(
            columns,
            hide_index=True,
            width="content",
            height="content",
            row_height=AROUND + lines * LINE if lines > 1 else None,
            column_config=aligned,
            key=f"table.{table.title}",
        )
    if table.notes:
        st.caption("\n".join(f"- {_as_marked(note)}" for note in table.notes))


def fitted(characters: Sequence[int], words: Sequence[bool]) -> tuple[list[int], int]:
    """Pixels of each column, and the lines of a row: Streamlit measures the first rows only, and cuts the rest.

    characters: of the longest cell of each column. words: which columns hold words; the widest of them break their
    lines where the table would not fit beside the filters, so that no figure is out of sight.
    """
    whole = [CELL + math.ceil(CHARACTER * count) for count in characters]
    text = sorted(width for width, broken in zip(whole, words, strict=True) if broken)
    room, widest = ROOM + sum(text) - sum(whole), ROOM
    for at, width in enumerate(text):
        widest = max(LEAST, room // (len(text) - at))
        room -= width
        if width > widest:
            break
    widths = [min(own, widest) if broken else own for own, broken in zip(whole, words, strict=True)]
    # a word that does not fit begins a line, and leaves the rest of the one before empty
    lines = [
        1.15 * (own - CELL) / (width - CELL) for own, width in zip(whole, widths, strict=True) if own > width
    ]
    return widths, math.ceil(max(lines, default=1))


def _as_marked(note: str) -> str:
    """A note on what is bold elsewhere: cells of a data frame cannot be."""
    return plain(note.replace("Bold or marked:", f"{STRONG}:"))


def _distinct(headings: list[str]) -> list[str]:
    """A data frame wants a name of its own for each column: `95%` becomes `A 95%`, or gets a space more."""
    found: list[str] = []
    for at, heading in enumerate(headings):
        name = f"{headings[at - 1]}, 95%" if heading == "95%" and at else heading
        while name in found:
            name += " "
        found.append(name)
    return found


def _downloads(report: Report, question: Question) -> None:
    csv, json, html, _ = st.columns([1, 1, 1, 4])
    csv.download_button(
        "CSV",
        lambda: csv_of_table(_flat(report)),
        "attribution.csv",
        "text/csv",
        on_click="ignore",
        width="stretch",
    )
    json.download_button(
        "JSON",
        lambda: to_json(report),
        "attribution.json",
        "application/json",
        on_click="ignore",
        width="stretch",
        help="a baseline for hitmap gate, too",
    )
    html.download_button(
        "HTML",
        lambda: _page(report),
        "attribution.html",
        "text/html",
        on_click="ignore",
        width="stretch",
        help="the whole report in one file that needs no network",
    )
    words = ["--a", question.a, "--b", question.b, "--metric", question.metric]
    words += ["--quantile", str(QUANTILES[question.quantile] or "mean")]
    st.caption("The same on a terminal:")
    st.code(f"hitmap report {shlex.join(words)}", language=None, wrap_lines=True)


def _page(report: Report) -> str:
    from dashboard.report_page import to_html

    return to_html(report)


def _flat(report: Report) -> list[dict[str, object]]:
    """A row a share of each view."""
    found = report.attribution
    views = (found.caused, found.shows, found.composition, found.linear) if found else ()
    return [
        {
            "view": view.kind,
            "name": share.name,
            "ms": share.value,
            "low": share.low,
            "high": share.high,
            "verdict": share.verdict.value,
            "own": share.own,
            "sigmas": share.own_sigmas,
            "change_ms": view.change,
            "provenance": view.provenance,
        }
        for view in views
        for share in view.shares
    ]
