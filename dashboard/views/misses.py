"""Misses: where prompt tokens came from and why the rest was computed."""

from __future__ import annotations

import shlex
from datetime import datetime

import plotly.graph_objects as go
import streamlit as st

from analysis.misses.report_model import MissReport
from analysis.report.json import to_json
from cachemodel.errors import UserError
from dashboard import data, words
from dashboard.charts import misses as charts
from dashboard.export import to_csv, to_html
from dashboard.filter_bar import bar, follow, widget
from dashboard.filters import UNITS, Filters
from dashboard.text import plain
from dashboard.views import hints, prompt, tables
from dashboard.views.link import link
from dashboard.words import moment

_BARS, _CEILINGS = "Prompt tokens by {}", "What each server could have served"
CHART = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}


def page() -> None:
    """The whole page."""
    st.title("Misses", anchor=False)
    try:
        choices, labels = data.choices(), data.labels()
    except UserError as error:
        st.error(plain(str(error)), icon=":material/database_off:")
        return
    filters = bar(choices, labels)
    if not (choices.requests or choices.events):
        hints.nothing_at_all()
        return
    try:
        report, made = data.miss_report(filters.selection, filters.by)
    except UserError as error:
        st.error(plain(str(error)))
        hints.elsewhere(choices)
        return
    _controls(report, made, filters)
    if not report.total.requests and not report.events_alone:
        hints.nothing_in(filters, choices)
        return
    st.markdown(f"**{plain(report.answer)}**")
    hints.next_steps(report, filters, choices)
    if report.total.requests:
        _tiles(report)
    if report.warnings:
        st.warning("\n".join(f"- {plain(warning)}" for warning in report.warnings))
    if report.total.requests:
        _told(report, filters)
    _events_alone(report)
    if report.total.requests:
        prompt.section(filters, choices)


def _told(report: MissReport, filters: Filters) -> None:
    if words.computed(report.total) == report.total.parts.get("unknown"):
        hints.no_prompts()
    figures = _figures(report, filters)
    for heading, figure in figures.items():
        st.subheader(plain(heading), anchor=False)
        st.plotly_chart(figure, config=CHART, key=f"chart.{heading}", alt=heading)
        if heading == _BARS.format(report.by):
            _first_of(len(report.lines), "")
    if report.ceilings:
        if _CEILINGS in figures:
            _first_of(len(report.ceilings), "servers")
        else:
            st.subheader(_CEILINGS, anchor=False)
            st.info(
                "Nothing was served, and nothing could have been: no prompt shares a whole unit of its server's cache "
                "with an earlier one, as far as is known."
            )
        tables.ceilings(report.ceilings)
    st.subheader("In numbers", anchor=False)
    tables.lines(report)
    _downloads(report, figures)
    hints.unknown(report)
    tables.legend()


def _figures(report: MissReport, filters: Filters) -> dict[str, go.Figure]:
    figures = {_BARS.format(report.by): charts.groups(report.lines, filters.unit)}
    if report.trend:
        figures["Over time"] = charts.trend(report.trend, filters.unit)
    if any(line.achieved or line.reachable or line.attainable for line in report.ceilings):
        figures[_CEILINGS] = charts.ceilings(report.ceilings)
    return figures


def _first_of(count: int, what: str) -> None:
    """Says that a chart leaves some out."""
    if count > charts.MOST_BARS:
        of = f"{count:,} {what}".strip()
        st.caption(f"The first {charts.MOST_BARS} of {of}; the table has all.")


def _controls(report: MissReport, made: datetime, filters: Filters) -> None:
    left, middle, right = st.columns([5, 2, 2], vertical_alignment="center")
    left.caption(
        f"{moment(report.begin)} to {moment(report.end)}, "
        f"read {made:%H:%M:%S}"
        + (f"; one request in {report.sampled} was read" if report.sampled > 1 else "")
    )
    with middle:
        widget(
            st.segmented_control,
            "unit",
            filters.unit,
            label="Bars show",
            options=list(UNITS),
            required=True,
            label_visibility="collapsed",
            on_change=follow("unit"),
        )
    link(
        right, made, filters, f"hitmap misses {shlex.quote(filters.selection)} --by {shlex.quote(filters.by)}"
    )


def _tiles(report: MissReport) -> None:
    total = report.total
    attainable, reachable, prompts = words.ceiling_sums(report)
    computed, unknown = words.computed(total), total.parts.get("unknown", 0)
    tiles = st.columns(6)
    tiles[0].metric(
        "Served",
        words.served(total),
        help=f"{words.hits(total):,} of {total.prompt:,} prompt tokens came from a cache"
        + (f"; nothing tells whether {total.untold:,} did" if total.untold else ""),
    )
    tiles[1].metric(
        "Attainable",
        words.share(attainable, prompts),
        help="with every prompt that was ever sent before still held, at the server's alignment",
    )
    tiles[2].metric(
        "Reachable",
        words.share(reachable, prompts),
        help="with what all replicas held at that moment, at the server's alignment; KV events tell it",
    )
    known = computed - total.untold
    tiles[3].metric(
        "Computed",
        words.tokens(known) if known or not total.untold else "unknown",
        help=f"{known:,} prompt tokens"
        + (f"; nothing tells whether {total.untold:,} more were" if total.untold else ""),
    )
    tiles[4].metric(
        "Unknown",
        words.share(unknown, computed),
        help=f"{unknown:,} of the tokens that are not known to be hits have no cause: what would tell is below",
    )
    tiles[5].metric(
        "Requests",
        words.tokens(total.requests),
        help=f"{total.placed:,} of {total.requests:,} were taken through the ladder of causes",
    )
    if total.recomputed:
        st.caption(f"{total.recomputed:,} tokens more were computed again after a preemption, beside these.")


def _downloads(report: MissReport, figures: dict[str, go.Figure]) -> None:
    csv, json, html, _ = st.columns([1, 1, 1, 4])
    every = [report.total, *report.lines, *report.trend]
    csv.download_button(
        "CSV", lambda: to_csv(every), "misses.csv", "text/csv", on_click="ignore", width="stretch"
    )
    json.download_button(
        "JSON", lambda: to_json(report), "misses.json", "application/json", on_click="ignore", width="stretch"
    )
    html.download_button(
        "HTML",
        lambda: to_html("Misses", report.answer, figures),
        "misses.html",
        "text/html",
        on_click="ignore",
        width="stretch",
        help="the charts in one file that needs no network",
    )


def _events_alone(report: MissReport) -> None:
    st.subheader("From KV events alone", anchor=False)
    if not report.events_alone:
        hints.no_events()
        return
    st.caption(
        "Of blocks that were stored, by why they had to be. KV events carry no request ids and hits leave no trace in "
        "them, so this is told by window and not by request."
        + (
            f" What was stored before {moment(report.events_since)} is not known."
            if report.events_since
            else ""
        )
    )
    st.plotly_chart(charts.stored(report.events_alone), config=CHART, key="chart.stored", alt="stored blocks")
    tables.events(report.events_alone)
