"""One prompt taken apart: a strip of tokens by where each came from."""

from __future__ import annotations

from typing import Any

import streamlit as st

from analysis.choices import Choices, RequestLine
from analysis.misses.report_model import Explanation, TokenRun
from cachemodel.errors import UserError
from cachemodel.printable import printable
from dashboard import data
from dashboard.charts.prompt import MOST_RUNS, span, strip
from dashboard.colours import part_of
from dashboard.filter_bar import follow, set_filters, widget
from dashboard.filters import Filters
from dashboard.text import in_browser, one_line, plain
from dashboard.words import moment

_TABLE = "table.requests"
MOST_WRAPPED = 60  # runs


def section(filters: Filters, choices: Choices) -> None:
    """Requests to choose from, and the one that is chosen."""
    st.subheader("One request", anchor=False)
    left, _ = st.columns([2, 3])
    with left:
        widget(
            st.text_input,
            "request",
            filters.request,
            label="Request id",
            placeholder="its first characters are enough",
            on_change=follow("request", request_server=""),
        )
    try:
        _candidates(data.most_computed(filters.selection, tuple(choices.labels)))
    except UserError as error:
        st.error(plain(str(error)))
    if not filters.request:
        st.caption("Tick a row or type an id to see where each token of its prompt came from.")
        return
    try:
        found = data.explanation(filters.request, filters.request_of)
    except UserError as error:
        st.error(plain(in_browser(str(error))))
        return
    _show(found)


def _candidates(requests: list[RequestLine]) -> None:
    if not requests:
        st.caption("No request in this range tells its prompt tokens.")
        return

    def pick() -> None:
        rows = st.session_state[_TABLE].selection.rows
        if rows and rows[0] < len(requests):
            set_filters(request=requests[rows[0]].request_id, request_server=requests[rows[0]].server)

    st.dataframe(
        {
            "computed most": [printable(r.request_id, lines=False) for r in requests],
            "server": [printable(r.server, lines=False) for r in requests],
            "time, UTC": [f"{r.time:%Y-%m-%d %H:%M:%S}" for r in requests],
            "prompt": [r.prompt for r in requests],
            "cached": [r.cached for r in requests],
            "computed": [r.computed for r in requests],
        },
        column_config={
            **{
                name: st.column_config.NumberColumn(format="localized")
                for name in ("prompt", "cached", "computed")
            },
            "computed most": st.column_config.TextColumn(width=250),
            "server": st.column_config.TextColumn(width=160),
        },
        hide_index=True,
        height=min(38 + 35 * len(requests), 248),
        key=_TABLE,
        on_select=pick,
        selection_mode="single-row",
    )


def _show(found: Explanation) -> None:
    served = "hits unknown" if found.cached is None else f"{found.cached:,} served"
    estimate = " (an estimate: its server tells none)" if found.derived else ""
    st.markdown(
        f"**{plain(found.request_id)}** on {plain(found.server)}, {plain(found.model)}, "
        f"{moment(found.time)}: {found.prompt:,} prompt tokens, {served}{estimate}"
    )
    in_common(found)
    st.plotly_chart(
        strip(found), config={"displaylogo": False}, key="chart.strip", alt="where each token came from"
    )
    if len(found.runs) > MOST_RUNS:
        st.caption(f"The first {MOST_RUNS:,} of {len(found.runs):,} runs are drawn.")
    _runs(found.runs[:MOST_RUNS])
    facts = [f"blocks of {found.block_size:,} tokens"] if found.block_size else []
    facts += [plain(text) for text in (found.alignment, f"prompt told by {found.told_by}") if text]
    facts += [f"{name} {ms:,.1f} ms" for name, ms in found.layers.items()]
    if found.recomputed:
        facts.append(f"{found.recomputed:,} tokens computed again after a preemption")
    st.caption("; ".join(facts))
    notes(found)


def in_common(found: Explanation) -> None:
    """The earlier request that says most of it."""
    if found.earlier:
        st.markdown(plain(f"{found.earlier[0].upper()}{found.earlier[1:]}."))


def notes(found: Explanation) -> None:
    """What weakens it, and what to do about its largest causes."""
    for note in found.notes:
        st.caption(plain(note))
    commands = [step for step in found.next_steps if step.startswith("hitmap ")]
    said = [step for step in found.next_steps if step not in commands]
    if said:
        st.markdown("\n".join(["Next:", *(f"- {plain(step)}" for step in said)]))
    if commands:
        st.code("\n".join(commands), language=None)


def _runs(shown: list[TokenRun]) -> None:
    """A row a run. A table of a page shows all of a text, over several lines; of many rows it would be slow."""
    few = len(shown) <= MOST_WRAPPED
    text = plain if few else _cell
    rows: dict[str, list[Any]] = {
        "tokens": [text(span(run)) for run in shown],
        "count": [f"{run.end - run.start:,}" if few else run.end - run.start for run in shown],
        "came from": [text(part_of(run.part).label) for run in shown],
        "evidence": [text(run.evidence) for run in shown],
        "text": [text(run.text) for run in shown],
    }
    if not any(rows["text"]):
        del rows["text"]
    if few:
        st.table(rows, hide_index=True)
    else:
        st.dataframe(rows, hide_index=True, key="table.runs")
        st.caption("A double click on a cell shows all of it.")


def _cell(text: str) -> str:
    return printable(one_line(text), lines=False)
