"""Heatmap: where in the prompts caches are read, and where rewriting pays."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from analysis.heatmap.model import BY, LAYERS, Cell, Heatmap, tells
from analysis.heatmap.png import to_png
from analysis.heatmap.text import describe
from analysis.heatmap.words import percent, spread
from analysis.report.json import to_json
from cachemodel.errors import UserError
from cachemodel.printable import printable
from dashboard import data
from dashboard.charts import heatmap as charts
from dashboard.export import csv_of_table
from dashboard.filter_bar import bar, own_value, pick
from dashboard.filters import Filters
from dashboard.source import reader
from dashboard.text import plain
from dashboard.views import hints
from dashboard.views.link import link

CHART = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}
MOST_MARKS = 200
_OWN = {"rows": BY, "layer": tuple(LAYERS)}  # what an address may say here beside the filters
_KEPT_S, _MOST_KEPT = 60, 64


def page() -> None:
    """The whole page."""
    st.title("Heatmap", anchor=False)
    try:
        choices, labels = data.choices(), data.labels()
    except UserError as error:
        st.error(plain(str(error)), icon=":material/database_off:")
        return
    filters = bar(choices, labels, _OWN, lambda: pick(st.radio, "rows", _OWN["rows"], label="Rows"))
    if not choices.requests:
        hints.nothing_at_all()
        return
    try:
        found, made = _read(filters.selection, own_value("rows"))
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


def _show(found: Heatmap, made: datetime, filters: Filters) -> None:
    layer = own_value("layer")
    left, right = st.columns([5, 2], vertical_alignment="center")
    with left:
        pick(
            st.segmented_control,
            "layer",
            _OWN["layer"],
            label="Layer",
            required=True,
            label_visibility="collapsed",
        )
    link(right, made, filters, f"hitmap heatmap {shlex.quote(filters.selection)} --by {found.by}")
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
    _treatments(found)
    if found.warnings:
        st.warning("\n".join(f"- {plain(warning)}" for warning in found.warnings))
    _downloads(found, layer)


def _lacks(layer: str) -> str:
    if layer == "stability":
        return "No responses are kept: spans hold them where the collector runs with --capture full."
    return "No server of these requests tells how many tokens it served from a cache."


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


def _treatments(found: Heatmap) -> None:
    """Ways to ask that the zones call for; a template shows how requests are written then."""
    if not found.treatments:
        return
    st.subheader("What the zones call for", anchor=False)
    for one in found.treatments:
        with st.expander(f"{one.zone}: {one.name}"):
            st.markdown(plain(f"Where {one.when}: {one.what}."))
            st.code(one.template, language=None)
            st.caption(plain(f"What the model sees: {one.differs}."))


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
