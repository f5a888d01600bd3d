"""The filters in the sidebar. The address says what is chosen, and changes with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import streamlit as st

from analysis.choices import Choices
from dashboard import address
from dashboard.filters import LONGEST, Filters, from_query, known, problem_of_times
from dashboard.text import plain

RANGES = {
    "Last 15 minutes": ("-15m", "now"),
    "Last hour": ("-1h", "now"),
    "Last 6 hours": ("-6h", "now"),
    "Last 24 hours": ("-24h", "now"),
    "Last 7 days": ("-7d", "now"),
}
CUSTOM = "From … to …"
ALL = ""
BY = ("server", "model", "template", "isolation")
NO_PAGE = "page.none"
"""In the session: the path of an address at which there is no page."""
STATE, ADDRESS, OWN = "filters", "filters.address", "filters.own"
WIDGET = "filter."
Own = Mapping[str, tuple[str, ...]]
"""What an address may say for one page beside the filters: values by name, of which the first is the default."""
_NOTHING: Own = MappingProxyType({})


def chosen(choices: Choices, labels: list[str], own: Own = _NOTHING) -> Filters:
    """What the address asks for; says so on the page where it asks for what cannot be."""
    if NO_PAGE in st.session_state:
        path = plain(f"/{st.session_state.pop(NO_PAGE)[:LONGEST]}")
        st.warning(f"There is no page {path}: this is Misses.", icon=":material/link_off:")
    asked_for, state = address.asks(ADDRESS), st.session_state
    state[OWN] = {name: values[0] for name, values in own.items()} | state.get(OWN, {})
    if STATE not in state or asked_for:
        now, asked_for = datetime.now(UTC), asked_for or address.query()
        problems = _take_own(asked_for, own)
        asked, more = from_query({name: told for name, told in asked_for.items() if name not in own}, now)
        problems += more
        state[STATE] = asked
        if choices.requests:  # else nothing can be told from what there is
            state[STATE], missing = known(asked, choices.servers, choices.models, labels, now)
            problems += missing
        _forget_widgets()
        for problem in problems:
            st.warning(plain(problem), icon=":material/link_off:")
    elif asked_for is not None:  # a change of page, which keeps the filters
        _forget_widgets()
    filters: Filters = state[STATE]
    return filters


def _forget_widgets() -> None:
    """Those of a page that was left have the names of this page's and not their values."""
    for name in [name for name in st.session_state if str(name).startswith(WIDGET)]:
        del st.session_state[name]


def _take_own(asked: Mapping[str, Sequence[str]], own: Own) -> list[str]:
    """What is chosen on one page alone is as the address says; what is wrong with that."""
    problems = []
    for name, values in own.items():
        value = asked.get(name, values[:1])[-1]
        if value not in values:
            told = " or ".join(values)
            problems.append(f"{name}={value[:40]} in the address: it is {told}; {values[0]} is shown")
            value = values[0]
        st.session_state[OWN][name] = value
    return problems


def own_value(name: str) -> str:
    """What is chosen on this page alone."""
    return str(st.session_state[OWN][name])


def set_filters(**changes: object) -> None:
    """Show something else from now on; the address follows. For callbacks, and before widgets are drawn."""
    address.chose()
    state = st.session_state
    state[STATE] = dataclasses.replace(state[STATE], **changes)
    for name in changes:
        for key in (WIDGET + name, WIDGET + "range") if name in ("begin", "end") else (WIDGET + name,):
            state.pop(key, None)


def when_changed(key: str, use: Callable[[Any], None]) -> Callable[[], None]:
    """The callback of the widget with this key: use gets what it shows now.

    A widget that was put aside and is not drawn anew yet is told by a quick browser once more, as it was: that is
    nobody's choice, and Streamlit has no value of that key."""

    def changed() -> None:
        address.chose()
        if key in st.session_state:
            use(st.session_state[key])

    return changed


def follow(name: str, **beside: object) -> Callable[[], None]:
    """The callback of a filter's own widget: the filter is what it shows. beside: filters that change with it. The
    widget is not put aside, or the second of two quick choices would be lost."""

    def use(value: Any) -> None:
        set_filters(**beside)
        text = value.strip() if isinstance(value, str) else value
        st.session_state[STATE] = dataclasses.replace(st.session_state[STATE], **{name: text})

    return when_changed(WIDGET + name, use)


def write_address(own: Own = _NOTHING) -> None:
    """Make the address say what is shown."""
    query = st.session_state[STATE].query()
    query |= {name: [own_value(name)] for name, values in own.items() if own_value(name) != values[0]}
    address.write(ADDRESS, query)


def bar(
    choices: Choices, labels: list[str], own: Own = _NOTHING, draw: Callable[[], None] | None = None
) -> Filters:
    """Draw the filters and return what is chosen now. labels: all there are. own: what the page has besides; draw:
    draws that, in place of what lines are grouped by."""
    filters = chosen(choices, labels, own)
    with st.sidebar:
        st.markdown("**hitmap**")
        changes = shared(filters, choices)
        if draw:
            draw()
        else:
            options = list(dict.fromkeys([*BY, *choices.labels, filters.by]))
            changes["by"] = widget(st.selectbox, "by", filters.by, label="Group by", options=options)
    filters = dataclasses.replace(filters, **changes)  # type: ignore[arg-type]
    st.session_state[STATE] = filters
    write_address(own)
    return filters


def pick(kind: Callable[..., Any], name: str, options: Sequence[str], **look: object) -> None:
    """A choice of a page's own; the next run of the page has it."""

    def use(value: Any) -> None:
        st.session_state[OWN][name] = value

    widget(kind, name, own_value(name), options=options, on_change=when_changed(WIDGET + name, use), **look)


def shared(filters: Filters, choices: Choices) -> dict[str, object]:
    """The filters of all pages: times, server, model, labels and conditions; what is chosen now."""
    changes = times(filters, choices)
    changes["server"] = one_of("Server", "server", filters.server, choices.servers)
    changes["model"] = one_of("Model", "model", filters.model, choices.models)
    changes["where"] = tuple(
        widget(
            st.multiselect,
            "where",
            list(filters.where),
            label="Labels and conditions",
            options=list(dict.fromkeys([*filters.where, *choices.conditions])),
            accept_new_options=True,
            placeholder="phase=control",
            help="All of them must hold. Choose a label's value or type a condition: `phase=control`, "
            "`tenant!=internal`, `prompt_tokens>1000`; `*` stands for any characters.",
        )
    )
    return changes


def times(filters: Filters, choices: Choices) -> dict[str, object]:
    now = (filters.begin, filters.end)
    preset = next((name for name, times in RANGES.items() if times == now), CUSTOM)
    options = [*RANGES, CUSTOM]
    picked = widget(st.selectbox, "range", preset, label="Time range", options=options)
    if picked != CUSTOM:
        for name in ("begin", "end"):
            st.session_state.pop(WIDGET + name, None)
        return {"begin": RANGES[picked][0], "end": RANGES[picked][1]}
    begin = widget(st.text_input, "begin", filters.begin, label="From", help="`-2h`, or a time, UTC")
    end = widget(st.text_input, "end", filters.end, label="To", help="`now`, `-1h`, or a time, UTC")
    if problem := problem_of_times(begin, end, datetime.now(UTC)):
        st.error(plain(problem))
        return {}
    return {"begin": begin, "end": end}


def one_of(label: str, name: str, value: str, options: list[str]) -> object:
    known = list(dict.fromkeys([ALL, *options, value]))
    return widget(st.selectbox, name, value, label=label, options=known, format_func=lambda v: v or "all")


def widget(kind: Callable[..., Any], name: str, value: object, **arguments: object) -> Any:
    """A widget whose value is the filter's until somebody changes it."""
    key = WIDGET + name
    if key not in st.session_state:
        st.session_state[key] = value
    return kind(key=key, **{"on_change": address.chose, **arguments})
