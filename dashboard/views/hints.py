"""What to do where there is nothing to show: which command, which flag."""

from __future__ import annotations

import shlex
from datetime import timedelta

import streamlit as st

from analysis.choices import Choices
from analysis.misses.report_model import MissReport
from dashboard.filter_bar import set_filters
from dashboard.filters import Filters
from dashboard.text import plain

KV_EVENTS = """--kv-events-config '{"enable_kv_cache_events": true, "publisher": "zmq"}'"""


def nothing_at_all() -> None:
    """The store is empty."""
    st.info("The store has no requests and no KV events yet. Watch a server, or see it work on one of ours:")
    st.code("hitmap attach http://127.0.0.1:8000 --log requests.jsonl\nhitmap demo", language=None)


def nothing_in(filters: Filters, choices: Choices) -> None:
    """There is something, but not what the filters ask for."""
    st.info(f"Nothing matches {plain(filters.selection)}.")
    elsewhere(choices)


def elsewhere(choices: Choices) -> None:
    """Where there is something, and a button that goes there."""
    if choices.begin is None or choices.end is None:
        return
    begin = choices.begin.replace(microsecond=0)
    end = choices.end.replace(microsecond=0) + timedelta(seconds=1)
    servers = plain(", ".join(choices.servers))
    st.caption(f"The store has {begin:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC, of {servers}.")
    st.button(
        "Show all there is",
        type="primary",
        on_click=lambda: set_filters(
            begin=begin.isoformat(), end=end.isoformat(), server="", model="", where=()
        ),
    )


def no_prompts() -> None:
    """The ladder cannot begin."""
    st.info(
        "No prompts are known of these requests, so no cause can be told. Let hitmap read the log of requests, with "
        "the model's tokenizer; no text is kept unless asked:"
    )
    st.code("hitmap attach URL --log requests.jsonl --tokenizer FOLDER", language=None)


def no_texts() -> None:
    """The advisor cannot name anything."""
    st.info(
        "No text of these prompts is in the store, so no slot can be named. Texts are kept when asked for: `redacted` "
        "keeps messages with placeholders for what looks personal or secret, `full` keeps them as they are. What came "
        "before cannot be read later."
    )
    st.code("hitmap attach URL --log requests.jsonl --tokenizer FOLDER --capture redacted", language=None)
    st.caption("Or ask for advice on the log itself, without a store:")
    st.code("hitmap advise requests.jsonl", language=None)


def no_events() -> None:
    """Nothing tells what the caches held."""
    st.info(
        "No KV events in this range: what was evicted, held elsewhere and reachable cannot be told. vLLM publishes "
        "them with the flag below; `hitmap attach URL --check` names the one of your server:"
    )
    st.code(KV_EVENTS, language=None)


def unknown(report: MissReport) -> None:
    """What would tell the tokens that have no cause."""
    if not report.total.parts.get("unknown") and not report.unknown_needs:
        return
    st.subheader("Unknown, and what would tell", anchor=False)
    st.caption(f"{report.total.parts.get('unknown', 0):,} computed tokens have no cause.")
    for need in report.unknown_needs:
        st.markdown(f"- {plain(need)}")


def next_steps(report: MissReport, filters: Filters, choices: Choices) -> None:
    """Fixes and commands worth trying; to group what is shown by something else is a click."""
    commands = {step: _grouping(step, report, filters) for step in report.next_steps}
    steps = [step for step, by in commands.items() if by is None]
    groups = [by for by in commands.values() if by and not _one_only(by, filters, choices)]
    if steps or groups:
        st.markdown("Next:")
    for step in steps:
        if step.startswith("hitmap "):
            st.code(step, language=None)
        else:
            st.markdown(f"- {plain(step)}")
    for by in groups:
        st.button(f"Group by {plain(by)}", on_click=set_filters, kwargs={"by": by}, help="who it is")


def _grouping(step: str, report: MissReport, filters: Filters) -> str | None:
    """What a command groups by that is about the requests that are shown, or names none; None of any other step."""
    if not step.startswith("hitmap misses "):
        return None
    words = shlex.split(step, comments=True)[2:]
    if "--by" not in words[:-1]:
        return None
    at = words.index("--by")
    named = [*words[:at], *words[at + 2 :]]
    return words[at + 1] if named in ([], [report.name], [filters.selection]) else None


def _one_only(by: str, filters: Filters, choices: Choices) -> bool:
    """Whether it would be a single group, or those that are shown."""
    names = {"server": (filters.server, choices.servers), "model": (filters.model, choices.models)}
    picked, known = names.get(by, ("*", [by, ""]))
    return by == filters.by or len(known) < 2 or bool(picked and "*" not in picked)
