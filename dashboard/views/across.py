"""Links from a page to what another one shows of the same time and server; the filters stand in their address."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

import streamlit as st

from analysis.misses.bins import iso
from analysis.observed.model import Trace
from analysis.observed.watched import Watched
from dashboard.filters import Filters
from dashboard.text import plain

_AROUND = timedelta(seconds=10)  # before and after a request: the slowest probe reads as often


def to_hosts(trace: Trace, filters: Filters) -> None:
    """To what probes counted of its server while the request ran; none where no probe watched that."""
    if not trace.processes:
        return
    from dashboard.views.hosts import page  # pages link to each other

    query = hosts_at(trace, filters).query()
    if len(trace.processes) == 1:
        query["process"] = [f"{trace.processes[0].host}:{trace.processes[0].pid}"]
    st.page_link(
        st.Page(page, title="Hosts", url_path="hosts"),
        label="Its server's processes at that time",
        icon=":material/memory:",
        query_params=query,
    )


def hosts_at(trace: Trace, filters: Filters) -> Filters:
    """Whole seconds around the request, of its server; it stays the one that the page Request is about."""
    began = datetime.fromisoformat(trace.time)
    ended = began + timedelta(microseconds=trace.e2e_us or trace.ttft_us or 0.0)
    first = (began - _AROUND).replace(microsecond=0)
    last = (ended + _AROUND).replace(microsecond=0) + timedelta(seconds=1)
    begin, end = (iso(round(time.timestamp() * 1e6)) for time in (first, last))
    return dataclasses.replace(
        filters,
        begin=begin,
        end=end,
        server=trace.server,
        request=trace.request_id,
        request_server=trace.server,
    )


def to_requests(one: Watched, filters: Filters) -> None:
    """To the requests of a process's server in the time that is shown; none where nothing tells whose work it does."""
    if not one.server:
        return
    from dashboard.views.request import page

    there = dataclasses.replace(filters, server=one.server, request="", request_server="")
    st.page_link(
        st.Page(page, title="Request", url_path="request"),
        label=f"Requests of {plain(one.server)} in this time",
        icon=":material/view_timeline:",
        query_params=there.query(),
    )
