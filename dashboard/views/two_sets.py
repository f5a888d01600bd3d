"""Which two sets of requests: brushed over time, before and after a deployment, or two values of a label. The address
says which, and changes with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import streamlit as st

from analysis.choices import Choices
from analysis.report.metrics import METRICS
from analysis.selection import parse_duration
from cachemodel.errors import UserError
from dashboard import address, data
from dashboard.charts.over_time import latency
from dashboard.filter_bar import when_changed
from dashboard.filters import literal
from dashboard.question import (
    QUANTILES,
    Question,
    around,
    from_query,
    problem_of,
    window_in,
    with_window,
)
from dashboard.text import plain

WAYS = ("Windows", "Deployment", "Label")
LONGEST = timedelta(days=7)  # drawn at first
_STATE, _ADDRESS = "question", "question.address"
_CHART = "chart.latency"
_OF = "ask."


def chosen(choices: Choices, labels: list[str]) -> Question | None:
    """Draw what there is to choose, and return what is chosen; None, with words, while that is not two sets."""
    question = _asked()
    with st.sidebar:
        st.markdown("**hitmap**")
        _pick("metric", "Metric", list(METRICS), lambda name: METRICS[name].meaning)
        _pick("quantile", "Take apart", list(QUANTILES))
        for side in ("a", "b"):
            st.text_input(
                "A: before, control" if side == "a" else "B: after, treatment",
                key=_bound(side, getattr(question, side)),
                placeholder="-2h/-1h,server=vllm-a",
                help="Terms joined by commas, as `hitmap report` takes them: a time window, or a condition on a column"
                " or label.",
                on_change=_follow(side),
            )
        way = st.radio("Choose by", WAYS, key="ask.way", on_change=address.chose)
    if way == "Deployment":
        _by_deployment()
    elif way == "Label":
        _by_label(choices)
    _over_time(choices, brush=way == "Windows")
    _write_address()
    return _complete(st.session_state[_STATE], labels)


def _asked() -> Question:
    """What the address asks for, unless it is what we wrote there."""
    state, asked = st.session_state, address.asks(_ADDRESS)
    if _STATE not in state or asked:
        state[_STATE], problems = from_query(asked or address.query())
        for name in [name for name in state if str(name).startswith(_OF) and name != "ask.way"]:
            del state[name]
        for problem in problems:
            st.warning(plain(problem), icon=":material/link_off:")
    found: Question = state[_STATE]
    return found


def _complete(question: Question, labels: list[str]) -> Question | None:
    if not question.complete:
        st.info(
            "Choose two sets of requests: drag over two stretches of the figure, first A (before), then B (after);"
            " or take a deployment or two values of a label. What changed between them is then put down to its causes."
        )
        return None
    now = datetime.now(UTC)
    names = [label.removeprefix("label.") for label in labels]
    problems = [
        f"{side}: {problem}"
        for side, text in (("A", question.a), ("B", question.b))
        if (problem := problem_of(text, names, now))
    ]
    for problem in problems:
        st.error(plain(problem))
    return None if problems else question


def _over_time(choices: Choices, *, brush: bool) -> None:
    """The figure, on which a stretch that is dragged over becomes A or B."""
    if choices.begin is None or choices.end is None:
        return
    question: Question = st.session_state[_STATE]
    end = choices.end + timedelta(milliseconds=1)
    begin = max(choices.begin, end - LONGEST)
    now = datetime.now(UTC)
    windows = {side: window_in(text, now) for side, text in (("A", question.a), ("B", question.b))}
    if brush:
        st.segmented_control(
            "Dragging over the figure sets",
            ["A", "B"],
            key="ask.brush",
            default="A",
            required=True,
            on_change=address.chose,
        )
    try:
        found = data.course(question.metric, begin, end)
    except UserError as error:
        st.error(plain(str(error)))
        return
    if not found.bins:
        st.caption(plain(f"No request tells its {METRICS[question.metric].meaning}: take another metric."))
        return
    figure = latency(found, windows, data.markers(), METRICS[question.metric].meaning)
    st.plotly_chart(
        figure,
        key=_CHART,
        on_select=_brushed if brush else "ignore",
        selection_mode="box",
        config={"displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "autoScale2d"]},
        alt="latency over time",
    )


def _brushed() -> None:
    """A stretch was dragged over: it is A or B, and the next one is the other."""
    address.chose()
    boxes = st.session_state[_CHART].selection.box
    if not boxes:
        return
    ends = sorted(_time(x) for x in boxes[-1]["x"])
    if ends[0] == ends[-1]:
        return
    side = st.session_state["ask.brush"]
    question: Question = st.session_state[_STATE]
    _set(**{side.lower(): with_window(getattr(question, side.lower()), ends[0], ends[-1])})
    st.session_state["ask.brush"] = "B" if side == "A" else "A"


def _time(text: Any) -> datetime:
    """A time as plotly writes it."""
    time = datetime.fromisoformat(str(text))
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _by_deployment() -> None:
    found = data.markers()
    if not found:
        st.info("No deployment is marked yet:")
        st.code("hitmap deploy mark v42 --what 'new system prompt'", language=None)
        return
    left, middle, right = st.columns([4, 2, 2], vertical_alignment="bottom")
    told = left.selectbox(
        "Deployment",
        found,
        format_func=lambda m: f"{m.name}, {m.time:%Y-%m-%d %H:%M:%S} UTC {m.server}".strip(),
        on_change=address.chose,
    )
    length = middle.text_input("How long before and after", "1h", on_change=address.chose)

    def take() -> None:
        try:
            a, b = around(told, parse_duration(length))
        except UserError as error:
            st.session_state["ask.problem"] = str(error)
        else:
            _set(a=a, b=b)

    right.button("Before against after", type="primary", on_click=take, width="stretch")
    _problem()


def _by_label(choices: Choices) -> None:
    values: dict[str, list[str]] = {}
    for condition in [*choices.conditions, *(f"server={literal(name)}" for name in choices.servers)]:
        name, _, value = condition.partition("=")
        values.setdefault(name, []).append(value)
    several = [name for name, found in values.items() if len(found) > 1]
    if not several:
        st.info("No label has two values yet. Requests carry labels from a request log or their spans:")
        st.code("hitmap attach URL --log requests.jsonl", language=None)
        return
    one, two, three, four = st.columns([2, 2, 2, 2], vertical_alignment="bottom")
    name = one.selectbox("Label", several, on_change=address.chose)
    a = two.selectbox("A", values[name], index=0, on_change=address.chose)
    b = three.selectbox("B", values[name], index=1, on_change=address.chose)
    four.button(
        "Compare",
        type="primary",
        on_click=lambda: _set(a=f"{name}={a}", b=f"{name}={b}"),
        disabled=a == b,
        width="stretch",
    )


def _problem() -> None:
    if "ask.problem" in st.session_state:
        st.error(plain(st.session_state.pop("ask.problem")))


def _pick(name: str, label: str, options: list[str], words: Any = str) -> None:
    st.selectbox(
        label,
        options,
        key=_bound(name, getattr(st.session_state[_STATE], name)),
        format_func=words,
        on_change=_follow(name),
    )


def _bound(name: str, value: str) -> str:
    """The key of a widget that shows a part of the question until somebody changes it."""
    key = _OF + name
    if key not in st.session_state:
        st.session_state[key] = value
    return key


def _follow(name: str) -> Callable[[], None]:
    """The callback of the widget that shows this part of the question."""

    def use(value: str) -> None:
        st.session_state[_STATE] = replace(st.session_state[_STATE], **{name: value.strip()})

    return when_changed(_OF + name, use)


def _set(**changes: str) -> None:
    """Ask something else from now on. For callbacks."""
    address.chose()
    st.session_state[_STATE] = replace(st.session_state[_STATE], **changes)
    for name in changes:
        st.session_state.pop(_OF + name, None)


def _write_address() -> None:
    address.write(_ADDRESS, st.session_state[_STATE].query())
