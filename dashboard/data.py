"""What the pages ask analysis, kept for a short while so that a click that changes nothing else costs nothing."""

from __future__ import annotations

from datetime import UTC, datetime

import streamlit as st

from analysis.choices import Choices, RequestLine
from analysis.misses.report_model import Explanation, MissReport
from dashboard.source import reader

REPORT_S, CHOICES_S = 30, 60
MOST_KEPT = 64


@st.cache_data(ttl=CHOICES_S, show_spinner=False)
def choices() -> Choices:
    """What there is to choose from."""
    from analysis.choices import choices as read

    with reader() as client:
        return read(client)


@st.cache_data(ttl=REPORT_S, max_entries=MOST_KEPT, show_spinner="Reading the store")
def miss_report(selection: str, by: str) -> tuple[MissReport, datetime]:
    """The report and when it was made; raises UserError."""
    from analysis.misses.report import build

    now = datetime.now(UTC)
    with reader() as client:
        return build(client, selection, by=by, now=now), now


@st.cache_data(ttl=REPORT_S, max_entries=MOST_KEPT, show_spinner=False)
def most_computed(selection: str, labels: tuple[str, ...]) -> list[RequestLine]:
    """Requests worth a look; raises UserError."""
    from analysis.choices import most_computed as read
    from analysis.selection import parse_set

    chosen = parse_set(
        selection, now=datetime.now(UTC), labels=[n.removeprefix("label.") for n in labels], prefix="w"
    )
    with reader() as client:
        return read(client, chosen)


@st.cache_data(ttl=REPORT_S, max_entries=MOST_KEPT, show_spinner="Reading the request")
def explanation(request_id: str, server: str) -> Explanation:
    """The token map of one request; raises UserError."""
    from analysis.misses.explain import explain

    with reader() as client:
        return explain(client, request_id, server)


def forget() -> None:
    """Read anew from now on."""
    st.cache_data.clear()
