"""Request: one request in all observation layers, aligned in time."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from analysis.choices import Choices
from analysis.misses.report_model import Explanation
from analysis.observed import words
from analysis.observed.model import Trace
from analysis.observed.worth import ORDERS, RequestLine
from analysis.report.json import to_json
from cachemodel.errors import UserError
from cachemodel.printable import printable
from dashboard import data
from dashboard.charts import counters
from dashboard.charts.prompt import MOST_RUNS, strip
from dashboard.charts.waterfall import MOST_ROWS, waterfall
from dashboard.export import csv_of_table, to_html
from dashboard.filter_bar import bar, follow, own_value, pick, set_filters, widget
from dashboard.filters import Filters
from dashboard.source import reader
from dashboard.text import in_browser, plain
from dashboard.views import hints
from dashboard.views.across import to_hosts
from dashboard.views.link import link
from dashboard.views.prompt import in_common, notes
from dashboard.views.request_tables import as_rows, observed

CHART = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}
_OWN = {"order": tuple(ORDERS)}  # what an address may say here beside the filters
_TABLE = "table.worth"
_KEPT_S, _MOST_KEPT = 60, 64


def page() -> None:
    """The whole page."""
    st.title("Request", anchor=False)
    try:
        choices, labels = data.choices(), data.labels()
    except UserError as error:
        st.error(plain(str(error)), icon=":material/database_off:")
        return
    filters = bar(choices, labels, _OWN, lambda: None)
    if not choices.requests:
        hints.nothing_at_all()
        return
    _search(filters)
    if not filters.request:
        _choose(filters, choices)
        return
    try:
        trace, explained, made = _read(filters.request, filters.request_of)
    except UserError as error:
        st.error(plain(in_browser(str(error))))
        _choose(filters, choices)
        return
    _show(trace, explained, made, filters)


@st.cache_data(ttl=_KEPT_S, max_entries=_MOST_KEPT, show_spinner="Reading the request")
def _read(request_id: str, server: str) -> tuple[Trace, Explanation | str, datetime]:
    """The trace, where its prompt came from or why that is not known, and when it was read; raises UserError."""
    from analysis.misses.columns import together
    from analysis.misses.explain import explain
    from analysis.observed.request import trace

    with reader() as client:

        def explained() -> Explanation | str:
            try:
                return explain(client, request_id, server)
            except UserError as error:
                return str(error)

        found = together(lambda: trace(client, request_id, server), explained)
    return found[0], found[1], datetime.now(UTC)


@st.cache_data(ttl=_KEPT_S, max_entries=_MOST_KEPT, show_spinner=False)
def _worth(selection: str, order: str, labels: tuple[str, ...]) -> tuple[list[RequestLine], datetime]:
    """Requests to choose from and when they were read; raises UserError."""
    from analysis.observed.worth import worth_a_look
    from analysis.selection import parse_set

    names = [name.removeprefix("label.") for name in labels]
    now = datetime.now(UTC)
    chosen = parse_set(selection, now=now, labels=names, prefix="w")
    with reader() as client:
        return worth_a_look(client, chosen, order), now


def _search(filters: Filters) -> None:
    box, button, _ = st.columns([4, 2, 3], vertical_alignment="bottom")
    with box:
        widget(
            st.text_input,
            "request",
            filters.request,
            label="Request id",
            placeholder="its first characters are enough",
            on_change=follow("request", request_server=""),
        )
    if filters.request:
        button.button("Choose another", on_click=lambda: set_filters(request="", request_server=""))


def _choose(filters: Filters, choices: Choices) -> None:
    """Requests of the time that are worth a look."""
    left, right = st.columns([7, 2], vertical_alignment="center")
    with left:
        pick(
            st.segmented_control,
            "order",
            _OWN["order"],
            label="Order",
            required=True,
            label_visibility="collapsed",
        )
    order = own_value("order")
    try:
        found, made = _worth(filters.selection, order, tuple(choices.labels))
    except UserError as error:
        st.error(plain(str(error)))
        hints.elsewhere(choices)
        return
    link(right, made, filters)
    if not found:
        hints.nothing_in(filters, choices)
        return
    st.caption("Tick a row or type an id to see its spans and what was counted meanwhile.")
    _candidates(found)
    if order == "page faults" and all(one.major is None for one in found):
        st.info(
            "No server of these requests counts the page faults of each. `hitmap engine` does; what a process counts "
            "in all is on the page Hosts, where a probe watches it."
        )


def _candidates(found: list[RequestLine]) -> None:
    def picked() -> None:
        rows = st.session_state[_TABLE].selection.rows
        if rows and rows[0] < len(found):
            set_filters(request=found[rows[0]].request_id, request_server=found[rows[0]].server)

    rows: dict[str, list[Any]] = {
        "request": [printable(r.request_id, lines=False) for r in found],
        "server": [printable(r.server, lines=False) for r in found],
        "time, UTC": [f"{r.time:%m-%d %H:%M:%S}" for r in found],
        "ms": [None if r.e2e_ms is None else round(r.e2e_ms, 1) for r in found],
        "to first token": [None if r.ttft_ms is None else round(r.ttft_ms, 1) for r in found],
        "prompt": [r.prompt for r in found],
        "cached": [r.cached for r in found],
        "major faults": [None if r.major is None else round(r.major) for r in found],
        "minor": [None if r.minor is None else round(r.minor) for r in found],
    }
    for name in ("major faults", "minor"):
        if all(value is None for value in rows[name]):
            del rows[name]
    st.dataframe(
        rows,
        hide_index=True,
        height="content",
        column_config={
            "request": st.column_config.TextColumn(width=215),
            **{name: st.column_config.NumberColumn(format="localized") for name in list(rows)[3:]},
        },
        key=_TABLE,
        on_select=picked,
        selection_mode="single-row",
    )


def _show(trace: Trace, explained: Explanation | str, made: datetime, filters: Filters) -> None:
    left, right = st.columns([7, 2], vertical_alignment="top")
    left.markdown(f"**{plain(words.answer(trace))}**")
    left.caption("  \n".join(plain(line) for line in words.described(trace)))
    link(right, made, filters, shlex.join(["hitmap", "trace", trace.request_id, "--server", trace.server]))
    to_hosts(trace, filters)
    figures = {}
    strips = counters.strips(trace)
    moved = [one for one in strips if one.highest > 0]
    if trace.spans:
        figures["Its spans, and what was counted meanwhile"] = waterfall(trace, moved)
        _chart(figures, "chart.trace")
        _below(trace, strips)
    if isinstance(explained, str):
        st.caption(plain(f"Its prompt: {explained}"))
    elif explained.prompt:
        figures["Its prompt, token by token"] = strip(explained)
        _chart(figures, "chart.prompt")
        in_common(explained)
        if len(explained.runs) > MOST_RUNS:
            st.caption(f"The first {MOST_RUNS:,} of {len(explained.runs):,} runs are drawn.")
        notes(explained)
    st.subheader("Everything observed", anchor=False)
    observed(trace)
    _unknown(trace)
    _downloads(trace, figures)


def _chart(figures: dict[str, Any], key: str) -> None:
    """The last of them."""
    heading = list(figures)[-1]
    st.subheader(heading, anchor=False)
    st.plotly_chart(figures[heading], config=CHART, key=key, alt=heading)


def _below(trace: Trace, strips: list[counters.Strip]) -> None:
    """What the figure leaves out, and how to read it."""
    still = [plain(one.title.removesuffix("/s")) for one in strips if not one.highest]
    lines = []
    if len(trace.spans) > MOST_ROWS:
        lines.append(
            f"{MOST_ROWS} of {len(trace.spans):,} spans are drawn: its own, and those nearest in time; JSON has all."
        )
    if still:
        lines.append(f"0 all the time: {', '.join(still)}.")
    if any(line.name.endswith(counters.PROCESS) for one in strips for line in one.lines):
        lines.append(
            "*Process*: all that its server's processes counted then, of other requests too. *Its thread*: what the "
            "threads that worked for this request counted meanwhile. A bar's area is what was counted."
        )
    if lines:
        st.caption("  \n".join(lines))


def _unknown(trace: Trace) -> None:
    """What nothing tells, and what would."""
    if not (trace.missing or trace.notes):
        return
    st.subheader("Not known", anchor=False)
    st.markdown("\n".join(f"- {plain(line)}" for line in [*words.missing(trace), *trace.notes]))


def _downloads(trace: Trace, figures: dict[str, Any]) -> None:
    csv, json, html, _ = st.columns([1, 1, 1, 4])
    csv.download_button(
        "CSV",
        lambda: csv_of_table(as_rows(trace)),
        "request.csv",
        "text/csv",
        on_click="ignore",
        width="stretch",
        help="everything observed, a row each",
    )
    json.download_button(
        "JSON",
        lambda: to_json(trace),
        "request.json",
        "application/json",
        on_click="ignore",
        width="stretch",
        help="as hitmap trace --json",
    )
    html.download_button(
        "HTML",
        lambda: to_html(trace.request_id, words.answer(trace), figures),
        "request.html",
        "text/html",
        on_click="ignore",
        width="stretch",
        help="the charts in one file that needs no network",
    )
