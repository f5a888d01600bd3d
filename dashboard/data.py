"""What the pages ask analysis, kept for a short while so that a click that changes nothing else costs nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import streamlit as st

from analysis.choices import Choices, RequestLine
from analysis.misses.report_model import Explanation, MissReport
from analysis.over_time import Course, Marker
from analysis.report.metrics import METRICS
from analysis.report.model import Report
from dashboard.answers import Answers
from dashboard.question import QUANTILES, Question
from dashboard.source import reader

REPORT_S, CHOICES_S = 60, 60
MOST_KEPT = 64
_SOON_S, _LOOK_S = 0.3, 0.1  # what is there soon needs no words; how often it is looked for


@st.cache_data(ttl=CHOICES_S, show_spinner=False)
def choices() -> Choices:
    """What there is to choose from."""
    from analysis.choices import choices as read

    with reader() as client:
        return read(client)


@st.cache_data(ttl=CHOICES_S, show_spinner=False)
def labels() -> list[str]:
    """Names of all labels there are; raises UserError."""
    from analysis.report.reader import label_names

    with reader() as client:
        return label_names(client)


@st.cache_resource
def _answers() -> Answers:
    """Of all who look: one process shows one store, so that filters alone tell answers apart."""
    return Answers(REPORT_S, MOST_KEPT)


def miss_report(selection: str, by: str) -> tuple[MissReport, datetime]:
    """The report and when it was made; raises UserError.

    A long one is worked out beside the page, which says so meanwhile: every word of it is a place at which Streamlit
    lets go of the page when a filter is changed.
    """

    def work() -> tuple[MissReport, datetime]:
        from analysis.misses.report import build

        now = datetime.now(UTC)
        with reader() as client:
            return build(client, selection, by=by, now=now), now

    waiting = (
        "Reading requests, their prompts and what the caches held: {} s. Many requests take a while; filters can be "
        "changed meanwhile."
    )
    found: tuple[MissReport, datetime] = waited(("misses", selection, by), work, waiting)
    return found


def report(question: Question, begun: Callable[[Report], None]) -> Report:
    """The comparison that a question asks for, with its attribution; raises UserError. begun: draws the report as it
    stands before that, if it is worked out now; what it draws is gone when the answer is there."""
    early: list[Report] = []

    def work() -> Report:
        from analysis.report.compare import Asked, compare

        asked = Asked(question.metric, QUANTILES[question.quantile], early=early.append)
        with reader() as client:
            return compare(client, question.a, question.b, asked)

    def ready() -> Callable[[], None] | None:
        return partial(begun, early[0]) if early else None

    waiting = "Looking for causes: comparing, replaying and resampling, {} s. The question can be changed meanwhile."
    found: Report = waited(("report", question), work, waiting, ready)
    return found


@st.cache_data(ttl=REPORT_S, max_entries=MOST_KEPT, show_spinner=False)
def course(metric: str, begin: datetime, end: datetime) -> Course:
    """The metric over time."""
    from analysis.over_time import latency

    with reader() as client:
        return latency(client, METRICS[metric], begin, end)


@st.cache_data(ttl=CHOICES_S, show_spinner=False)
def markers() -> list[Marker]:
    """Deployments that were marked."""
    from analysis.over_time import markers as read

    with reader() as client:
        return read(client)


def waited(
    key: Hashable,
    work: Callable[[], Any],
    words: str,
    ready: Callable[[], Callable[[], None] | None] = lambda: None,
) -> Any:
    """The answer, worked out beside the page. words: shown meanwhile, {} being the seconds gone by; ready: tells how to
    draw what there is before the answer, once there is something."""
    words_at, drawn_at = st.empty(), st.empty()
    drawn = False

    def meanwhile(seconds: float) -> None:
        nonlocal drawn
        if seconds >= _SOON_S:
            words_at.info(words.format(f"{seconds:.0f}"), icon="spinner")
            if not drawn and (draw := ready()):
                with drawn_at.container():
                    draw()
                drawn = True
        time.sleep(_LOOK_S)

    try:
        return _answers().get(key, work, meanwhile)
    finally:
        words_at.empty()
        drawn_at.empty()


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
    _answers().forget()
