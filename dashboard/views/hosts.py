"""Hosts: the processes and GPUs that probes watched, over time."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime

import plotly.graph_objects as go
import streamlit as st

from analysis.choices import Choices
from analysis.misses.bins import iso
from analysis.observed.figures import FIGURES, OF_GPUS, OF_PROCESSES
from analysis.observed.watched import Hosts, Key, Lanes, Watched
from analysis.report.json import to_json
from analysis.selection import parse_time
from cachemodel.errors import UserError
from dashboard import address, data
from dashboard.charts.hosts import MOST_LINES, small_charts, stacked
from dashboard.export import csv_of_table, to_html
from dashboard.filter_bar import OWN, STATE, Own, chosen, one_of, own_value, set_filters, times, write_address
from dashboard.filters import Filters
from dashboard.source import reader
from dashboard.text import plain
from dashboard.views.across import to_requests
from dashboard.views.hosts_tables import as_rows, gpus, processes
from dashboard.views.link import link
from dashboard.words import moment

CHART = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}
_PROCESS = "process"  # in the address: HOST:PID of the one that is looked at
_KEPT_S, _SECOND_US = 60, 1_000_000


def page() -> None:
    """The whole page."""
    st.title("Hosts", anchor=False)
    try:
        choices, labels = data.choices(), data.labels()
    except UserError as error:
        st.error(plain(str(error)), icon=":material/database_off:")
        return
    # which processes there are is known later: whichever the address asks for may be one
    own = {_PROCESS: tuple(dict.fromkeys(["", st.query_params.get(_PROCESS, "")]))}
    filters = _filters(choices, labels, own)
    try:
        found, begin, end, made = _hosts(filters)
    except UserError as error:
        st.error(plain(str(error)))
        return
    left, right = st.columns([7, 2], vertical_alignment="center")
    left.caption(f"{moment(iso(begin))} to {moment(iso(end))}, read {made:%H:%M:%S}")
    link(right, made, filters)
    if not (found.processes or found.gpus):
        _nothing()
        return
    _show(found, filters)


def _filters(choices: Choices, labels: list[str], own: Own) -> Filters:
    """Time and server: what else there is to choose is about requests."""
    filters = chosen(choices, labels, own)
    with st.sidebar:
        st.markdown("**hitmap**")
        changes = times(filters, choices)
        changes["server"] = one_of("Server", "server", filters.server, choices.servers)
    filters = dataclasses.replace(filters, **changes)  # type: ignore[arg-type] # all are texts
    st.session_state[STATE] = filters
    write_address(own)
    return filters


def _hosts(filters: Filters) -> tuple[Hosts, int, int, datetime]:
    """What was watched, in which time, and when that was read; raises UserError."""

    def work() -> tuple[Hosts, int, int, datetime]:
        from analysis.observed.hosts import hosts

        now = datetime.now(UTC)
        begin, end = (int(1e6 * parse_time(text, now).timestamp()) for text in (filters.begin, filters.end))
        with reader() as client:
            return hosts(client, begin, end), begin, end, now

    words = "Reading what probes counted: {} s."
    found: tuple[Hosts, int, int, datetime] = data.waited(("hosts", filters.begin, filters.end), work, words)
    return found


def _lanes(whose: Sequence[Watched], begin: int, end: int, server: str = "") -> Lanes:
    """Their figures over time; raises UserError."""

    def work() -> Lanes:
        from analysis.observed.hosts import lanes

        with reader() as client:
            return lanes(client, whose, begin, end, server)

    key = ("lanes", tuple(one.key for one in whose), begin, end, server)
    found: Lanes = data.waited(key, work, "Reading figures over time: {} s.")
    return found


@st.cache_data(ttl=_KEPT_S, show_spinner=False)
def _last_told() -> tuple[int, int] | None:
    from analysis.observed.hosts import last_told

    with reader() as client:
        return last_told(client)


def _nothing() -> None:
    """Which command to run; and where there is something, a button that goes to its last hour."""
    st.info("No probe told of a process or a GPU in this time.")
    if told := _last_told():
        first, last = told[0], told[1] + _SECOND_US
        st.caption(f"The store has what probes told from {moment(iso(told[0]))} to {moment(iso(told[1]))}.")
        st.button(
            "Show the last of it",
            type="primary",
            on_click=lambda: set_filters(
                begin=iso(max(first, last - 3600 * _SECOND_US)), end=iso(last), server=""
            ),
        )
    st.caption("Beside the server, as root; `hitmap doctor` says what that host can tell:")
    st.code("sudo hitmap probe --port 8000\nsudo hitmap doctor", language=None)
    st.caption("Where the collector is on another machine, `--to HOST:PORT` names it.")


def _show(found: Hosts, filters: Filters) -> None:
    server = filters.server
    shown = [one for one in found.processes if not server or one.server == server]
    figures: dict[str, go.Figure] = {}
    _probes(found)
    if shown:
        st.subheader("Processes", anchor=False)
        processes(shown, _choose)
        st.caption(
            "Means over the time in which they were watched; memory is the most. Tick one to see it over time."
        )
    elif found.processes:
        st.info(
            f"No process is known to work for {plain(server)}: of {len(found.processes):,} nothing tells that."
        )
    one = _looked_at(found.processes)
    if one:
        _one(one, found, filters, figures)
    elif shown:
        _many("Processes over time", shown, found, [figure.name for figure in OF_PROCESSES], figures)
    if found.gpus:
        st.subheader("GPUs", anchor=False)
        gpus(found.gpus)
        _many(
            "GPUs over time",
            found.gpus,
            found,
            [figure.name for figure in OF_GPUS if figure.name != "limit"],
            figures,
        )
    _hints(found)
    _downloads(found, figures)


def _choose(key: Key | None) -> None:
    address.chose()
    st.session_state[OWN][_PROCESS] = f"{key[0]}:{key[1]}" if key else ""


def _looked_at(watched: Sequence[Watched]) -> Watched | None:
    """The process that the address names; says so where there is none."""
    asked = own_value(_PROCESS)
    found = next((one for one in watched if f"{one.host}:{one.pid}" == asked), None)
    if asked and not found:
        st.warning(
            plain(f"process={asked[:80]} in the address: no such process was watched in this time"),
            icon=":material/link_off:",
        )
    return found


def _one(one: Watched, found: Hosts, filters: Filters, figures: dict[str, go.Figure]) -> None:
    """A process over time, with the requests of its server."""
    heading = f"{one.name} on {one.host}"
    left, right = st.columns([5, 2], vertical_alignment="bottom")
    left.subheader(plain(heading), anchor=False)
    right.button("All processes", on_click=_choose, args=(None,), width="stretch")
    to_requests(one, filters)
    told = _lanes([one], found.begin, found.end, one.server)
    moved = {lane.figure for lane in told.lanes if any(lane.values)}
    names = [figure.name for figure in OF_PROCESSES if figure.name in moved]
    if not one.server:
        st.caption(
            "Whose work it does is not known, so no requests are shown: start its probe with `--server NAME` or "
            "`--port PORT`, or have the server send its spans."
        )
    figures[heading] = stacked(told, one.key, names, one.server)
    st.plotly_chart(figures[heading], config=CHART, key="chart.one", alt=heading)
    _still({lane.figure for lane in told.lanes} - moved)


def _many(
    heading: str, whose: Sequence[Watched], found: Hosts, names: Sequence[str], figures: dict[str, go.Figure]
) -> None:
    """Small charts of the first ones; processes are in order of their CPU time."""
    drawn = whose[:MOST_LINES]
    told = _lanes(drawn, found.begin, found.end)
    moved = {lane.figure for lane in told.lanes if any(lane.values)}
    several = len({one.host for one in drawn}) > 1
    called = {one.key: f"{one.name}, {one.host}" if several else one.name for one in drawn}
    st.subheader(heading, anchor=False)
    figures[heading] = small_charts(told, called, [name for name in names if name in moved])
    st.plotly_chart(figures[heading], config=CHART, key=f"chart.{heading}", alt=heading)
    if len(whose) > MOST_LINES:
        st.caption(f"The first {MOST_LINES} of {len(whose):,} are drawn.")
    _still({lane.figure for lane in told.lanes} - moved)


def _still(names: set[str]) -> None:
    """What was counted and was none."""
    labels = [figure.label.removesuffix("/s") for name, figure in FIGURES.items() if name in names]
    if labels:
        st.caption(f"Counted, and 0 all the time: {'; '.join(labels)}.")


def _probes(found: Hosts) -> None:
    """What the probes took, and what they lost: what is lost is in no figure."""
    for one in found.probes:
        cpu, lost = one.figures.get("probe_cpu"), one.figures.get("probe_lost")
        if cpu is not None:
            st.caption(f"The probe on {plain(one.host)} took {100 * cpu:.1f} % of a core.")
        if lost:
            st.warning(
                f"The probe on {plain(one.host)} lost {lost:,.0f} points: where these are missing, so are the figures. "
                "The terminal it runs in says why."
            )


def _hints(found: Hosts) -> None:
    """What else would tell, and which limits were passed."""
    names = {name for one in (*found.processes, *found.gpus) for name in one.figures}
    lacks = [
        (not found.processes, "processes", "--port PORT"),
        (not names & {"shootdowns", "flushes"}, "TLB flushes", "--kernel"),
        (not names & {"dtlb", "llc", "l1d"}, "misses of the CPU's caches", "--pmu"),
        (not found.gpus, "GPUs", "--gpu"),
    ]
    missing = [f"{what} ({option})" for lacking, what, option in lacks if lacking and found.processes]
    if missing:
        st.subheader("Not known", anchor=False)
        st.markdown(plain(f"Nothing tells of {', '.join(missing)}."))
        st.caption("`hitmap doctor` on that host says what it can tell, and what each missing piece needs.")
    st.subheader("Alerts", anchor=False)
    st.caption("Which limits were passed in this time, of faults, shootdowns and all else:")
    st.code(
        shlex.join(["hitmap", "alerts", "--from", iso(found.begin), "--to", iso(found.end)]), language=None
    )


def _downloads(found: Hosts, figures: dict[str, go.Figure]) -> None:
    csv, json, html, _ = st.columns([1, 1, 1, 4])
    csv.download_button(
        "CSV",
        lambda: csv_of_table(as_rows(found)),
        "hosts.csv",
        "text/csv",
        on_click="ignore",
        width="stretch",
    )
    json.download_button(
        "JSON", lambda: to_json(found), "hosts.json", "application/json", on_click="ignore", width="stretch"
    )
    html.download_button(
        "HTML",
        lambda: to_html("Hosts", f"{iso(found.begin)} to {iso(found.end)}", figures),
        "hosts.html",
        "text/html",
        on_click="ignore",
        width="stretch",
        help="the charts in one file that needs no network",
    )
