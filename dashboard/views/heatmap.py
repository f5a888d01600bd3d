"""Heatmap: where in the prompts caches are read, and where rewriting pays."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from analysis.choices import Choices
from analysis.heatmap.model import BY, LAYERS, Cell, Heatmap, tells
from analysis.heatmap.png import to_png
from analysis.heatmap.text import describe
from analysis.heatmap.words import percent, spread
from analysis.report.json import to_json
from analysis.selection import parse_time
from cachemodel.errors import UserError
from cachemodel.printable import printable
from dashboard import data, filter_bar
from dashboard.charts import heatmap as charts
from dashboard.export import csv_of_table
from dashboard.filter_bar import set_filters, widget
from dashboard.filters import Filters, from_query, known
from dashboard.source import reader
from dashboard.text import plain
from dashboard.views import hints

CHART = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}
MOST_MARKS = 200
_OWN = {
    "rows": BY,
    "layer": tuple(LAYERS),
}  # what an address may say here beside the filters; the first is the default
_VIEW = "heatmap.view"
_KEPT_S, _MOST_KEPT = 60, 64


def page() -> None:
    """The whole page."""
    st.title("Heatmap", anchor=False)
    try:
        choices, labels = data.choices(), data.labels()
    except UserError as error:
        st.error(plain(str(error)), icon=":material/database_off:")
        return
    filters = _bar(choices, labels)
    if not choices.requests:
        hints.nothing_at_all()
        return
    try:
        found, made = _read(filters.selection, st.session_state[_VIEW]["rows"])
    except UserError as error:
        st.error(plain(str(error)))
        hints.elsewhere(choices)
        return
    _show(found, made, filters)


@st.cache_data(ttl=_KEPT_S, max_entries=_MOST_KEPT, show_spinner="Reading prompts")
def _read(selection: str, by: str) -> tuple[Heatmap, datetime]:
    """The heatmap and when it was made; raises UserError."""
    from analysis.heatmap.build import build

    now = datetime.now(UTC)
    with reader() as client:
        return build(client, selection, by=by, now=now), now


def _bar(choices: Choices, labels: list[str]) -> Filters:
    """The filters that all pages share, rows and layer, from the sidebar and the address."""
    filters = _chosen(choices, labels)
    with st.sidebar:
        st.markdown("**hitmap**")
        changes = filter_bar.shared(filters, choices)
        _pick(st.radio, "rows", "Rows")
    filters = dataclasses.replace(filters, **changes)  # type: ignore[arg-type]
    st.session_state[filter_bar.STATE] = filters
    _write_address(filters)
    return filters


def _chosen(choices: Choices, labels: list[str]) -> Filters:
    """What the address asks for, unless it is what we wrote there; says where it asks for what cannot be."""
    state = st.session_state
    address = {name: st.query_params.get_all(name) for name in st.query_params}
    state.setdefault(_VIEW, {name: values[0] for name, values in _OWN.items()})
    if filter_bar.STATE not in state or (address and address != state.get(filter_bar.ADDRESS)):
        problems = _own(address)
        now = datetime.now(UTC)
        shared = {name: given for name, given in address.items() if name not in _OWN}
        state[filter_bar.STATE], more = from_query(shared, now)
        problems += more
        if choices.requests:
            state[filter_bar.STATE], missing = known(
                state[filter_bar.STATE], choices.servers, choices.models, labels, now
            )
            problems += missing
        for name in [name for name in state if str(name).startswith(filter_bar.WIDGET)]:
            del state[name]
        for problem in problems:
            st.warning(plain(problem), icon=":material/link_off:")
    filters: Filters = state[filter_bar.STATE]
    return filters


def _own(address: dict[str, list[str]]) -> list[str]:
    """Take rows and layer from the address; what is wrong with them."""
    problems, view = [], st.session_state[_VIEW]
    for name, values in _OWN.items():
        given = address.get(name, [values[0]])[-1]
        if given not in values:
            problems.append(
                f"{name}={given[:40]} in the address: it is {' or '.join(values)}; {values[0]} is shown"
            )
            given = values[0]
        view[name] = given
    return problems


def _write_address(filters: Filters) -> None:
    own = {
        n: [st.session_state[_VIEW][n]]
        for n, values in _OWN.items()
        if st.session_state[_VIEW][n] != values[0]
    }
    query = {**filters.query(), **own}
    if {name: st.query_params.get_all(name) for name in st.query_params} != query:
        st.query_params.from_dict(query)
    st.session_state[filter_bar.ADDRESS] = query


def _pick(kind: Any, name: str, label: str, **look: Any) -> None:
    """A choice of our own; the next run of the page has it."""
    view = st.session_state[_VIEW]

    def changed() -> None:
        view[name] = st.session_state[filter_bar.WIDGET + name]

    widget(kind, name, view[name], label=label, options=_OWN[name], on_change=changed, **look)


def _show(found: Heatmap, made: datetime, filters: Filters) -> None:
    layer = st.session_state[_VIEW]["layer"]
    left, right = st.columns([5, 2], vertical_alignment="center")
    with left:
        _pick(st.segmented_control, "layer", "Layer", required=True, label_visibility="collapsed")
    _link(right, found, made, filters)
    st.markdown(f"**{plain(found.answer)}**")
    st.caption(plain(f"{describe(found)}; read {made:%H:%M:%S}"))
    st.caption(plain(f"{layer}: {LAYERS[layer]}"))
    if not any(row.cells for row in found.rows):
        st.info("No prompt fills a block, so that there is no position to show.")
        return
    if not tells(found, layer):
        st.info(plain(_lacks(layer)))
    st.plotly_chart(
        charts.grid(found, layer), config=CHART, key=f"chart.heatmap.{layer}", alt=f"{layer} by position"
    )
    if found.rows_left:
        st.caption(f"{found.rows_left:,} templates more, of {found.requests_left:,} prompts, are not shown.")
    if (sampled := found.sampled[layer]) > 1:
        st.caption(f"One request in {sampled:,} was read for this layer; counts are estimates.")
    _marks(found)
    if found.warnings:
        st.warning("\n".join(f"- {plain(warning)}" for warning in found.warnings))
    _downloads(found, layer)


def _lacks(layer: str) -> str:
    if layer == "stability":
        return "No responses are kept: spans hold them where the collector runs with --capture full."
    return "No server of these requests tells how many tokens it served from a cache."


def _link(place: Any, found: Heatmap, made: datetime, filters: Filters) -> None:
    with place.popover("Link and refresh", width="stretch"):
        st.button("Read the store again", on_click=data.forget)
        st.button(
            "Fix these times in the link",
            help="A link with `-1h` shows the last hour of whoever opens it; this one will show what you see.",
            on_click=lambda: set_filters(
                begin=parse_time(filters.begin, made).isoformat(),
                end=parse_time(filters.end, made).isoformat(),
            ),
        )
        st.caption("The same on a terminal:")
        st.code(f"hitmap heatmap {shlex.quote(filters.selection)} --by {found.by}", language=None)


def _marks(found: Heatmap) -> None:
    st.subheader("Where rewriting pays", anchor=False)
    if not found.marks:
        st.caption("Nowhere: no position that most prompts of a row reach is computed anew most of the time.")
        return
    marks = found.marks[:MOST_MARKS]
    rows: dict[str, list[Any]] = {
        found.by: [printable(mark.key[:19].replace("T", " "), lines=False) for mark in marks],
        "tokens": [spread(mark.start, mark.end) for mark in marks],
        "come there": [percent(mark.frequency) for mark in marks],
        "reuse": [percent(mark.reuse) for mark in marks],
        "stability": [mark.stability for mark in marks],
        "varies most at": [spread(*mark.volatile) if mark.volatile else "" for mark in marks],
        "bits": [mark.bits for mark in marks],
        "tokens computed": [mark.computed for mark in marks],
        "ms": [None if mark.computed_ms is None else round(mark.computed_ms) for mark in marks],
    }
    for name in ("stability", "ms", "tokens computed"):
        if all(value is None for value in rows[name]):
            del rows[name]
    formats = {"tokens computed": "localized", "ms": "localized", "bits": "%.2f", "stability": "%.2f"}
    st.dataframe(
        rows,
        hide_index=True,
        column_config={n: st.column_config.NumberColumn(format=f) for n, f in formats.items() if n in rows},
        key="table.marks",
    )


def _downloads(found: Heatmap, layer: str) -> None:
    columns = st.columns([1, 1, 1, 1, 3])
    files: dict[str, tuple[Callable[[], str | bytes], str]] = {
        "CSV": (lambda: csv_of_table(_table(found)), "text/csv"),
        "JSON": (lambda: to_json(found), "application/json"),
        "HTML": (lambda: charts.to_html(found), "text/html"),
        "PNG": (lambda: to_png(found, layer), "image/png"),
    }
    for column, (kind, (make, mime)) in zip(columns, files.items(), strict=False):
        column.download_button(
            kind, make, f"heatmap.{kind.lower()}", mime, on_click="ignore", width="stretch"
        )


def _table(found: Heatmap) -> list[dict[str, object]]:
    """A line a cell."""
    names = [field.name for field in dataclasses.fields(Cell)]
    return [
        {found.by: row.key, **{name: getattr(cell, name) for name in names}}
        for row in found.rows
        for cell in row.cells
    ]
