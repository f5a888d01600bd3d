"""A suggestion as a card: cause, place, evidence, what to write instead, what it saves, and what people decided."""

from __future__ import annotations

from typing import Literal

import streamlit as st

from analysis.advisor.report import Told
from analysis.advisor.stored.verdicts import MAX_REASON, Decision, Measured, Verdict
from analysis.advisor.text import hangs_on, where, with_interval
from analysis.interval import Interval
from cachemodel.errors import UserError
from cachemodel.printable import printable
from dashboard import address, advice, source
from dashboard.advice import Card
from dashboard.text import plain

NOT_VERIFIED = "not verified: hitmap advise LOG --verify URL --keep"
READ_ONLY = (
    "This dashboard only reads: it was started without a client of the store that may write. `hitmap dashboard` on the "
    "embedded store brings one."
)
LONG_DIFF, DIFF_HEIGHT = 1500, 300  # characters; pixels, with a bar to scroll
_PROBLEM = "advice.problem"
_COLOURS: dict[Verdict, Literal["gray", "green", "red"]] = {
    Verdict.OPEN: "gray",
    Verdict.ACCEPTED: "green",
    Verdict.DISMISSED: "red",
}
_LOOKS = {"canonicalise": "green", "move": "blue", "drop": "orange", "none": "gray"}


def card(number: int, one: Card, decision: Decision, verified: Measured | None) -> None:
    """number: its place among all, from 1."""
    told = one.told
    with st.container(border=True):
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            st.subheader(
                f"{number}\\. {plain(told.cause)} at {plain(told.path)}", anchor=False, width="content"
            )
            st.badge(decision.verdict.value, color=_COLOURS[decision.verdict])
        saves, place = st.columns([2, 3])
        with saves:
            _saves(told, verified)
        with place:
            _where(told)
        if told.values:
            st.caption("Such as")
            st.code(
                "\n".join(printable(value, lines=False) for value in told.values),
                language=None,
                wrap_lines=True,
            )
        look = _LOOKS.get(told.safety, "gray")
        st.markdown(f":{look}-badge[{plain(told.safety)}] **{plain(told.what)}**: {plain(told.why)}.")
        if told.diff:
            tall = len(told.diff) > LONG_DIFF
            st.code(
                printable(told.diff),
                language="diff",
                wrap_lines=True,
                height=DIFF_HEIGHT if tall else "content",
            )
        else:
            st.caption(
                "No rule can write this: it is put right where the prompt is made, or in its template."
            )
        _decide(one, number, decision)


def _saves(told: Told, verified: Measured | None) -> None:
    lines = []
    if told.p95_ms and told.mean_ms:
        part = "" if told.p95_share is None else f", {told.p95_share:.0%} of it"
        lines += [
            f"**Predicted**: P95 {plain(interval(told.p95_ms, 'ms'))} less{part}",
            f"mean {plain(interval(told.mean_ms, 'ms'))} less",
        ]
    much = plain(f"{_most(told):,} tokens, {told.share:.0%} of what is computed")
    lines.append(f"{'' if lines else '**Predicted**: '}{'up to ' if told.saves is None else ''}{much}")
    if hangs := hangs_on(told):
        lines.append(plain(hangs))
    measured = measured_as(verified) if verified else NOT_VERIFIED
    lines.append(f"**Measured**: {plain(measured)}")
    st.markdown("  \n".join(lines))


def _most(told: Told) -> int:
    return told.at_most if told.saves is None else max(told.saves, told.needed or 0, told.alone or 0)


def _where(told: Told) -> None:
    lines = [f"**Where**: {plain(f'{told.path} ({told.role})')}"]
    if place := where(told):
        lines.append(plain(place))
    lines.append(f"**Seen**: {plain(told.evidence)}")
    st.markdown("  \n".join(lines))


def interval(of: Interval, unit: str) -> str:
    """As on the terminal."""
    return with_interval(of, unit)


def measured_as(of: Measured) -> str:
    """What was measured, and by what."""
    by = f"{of.by}, where nobody waits" if not of.under_load else f"by {of.by}"
    return f"mean {interval(of.ms, 'ms')} less, {by}"


def _decide(one: Card, number: int, decision: Decision) -> None:
    """number: two suggestions that are one under their key, in two templates, are two cards."""
    if problem := st.session_state.get(_PROBLEM, {}).pop(f"{number}.{one.key}", None):
        st.error(plain(problem))
    if decision.time:
        why = f": {decision.reason}" if decision.reason else ""
        if decision.verdict is not Verdict.OPEN:
            st.caption(plain(f"{decision.verdict.value} {decision.time:%Y-%m-%d %H:%M} UTC{why}"))
    able = source.may_write()
    name, help_ = f"{number}.{one.key}", None if able else READ_ONLY
    if decision.verdict is not Verdict.OPEN:
        st.button(
            "Undo",
            key=f"undo.{name}",
            on_click=_write,
            args=(one.key, name, Verdict.OPEN),
            disabled=not able,
            help=help_,
        )
        return
    reason, accept, dismiss = st.columns([4, 1, 1], vertical_alignment="bottom")
    reason.text_input(
        "Reason",
        key=f"reason.{name}",
        placeholder="why, for those who come after you",
        max_chars=MAX_REASON,
        label_visibility="collapsed",
        disabled=not able,
        on_change=address.chose,
    )
    for column, label, verdict in (
        (accept, "Accept", Verdict.ACCEPTED),
        (dismiss, "Dismiss", Verdict.DISMISSED),
    ):
        column.button(
            label,
            key=f"{label}.{name}",
            on_click=_write,
            args=(one.key, name, verdict),
            width="stretch",
            disabled=not able,
            help=help_,
        )


def _write(key: str, name: str, verdict: Verdict) -> None:
    """What failed is told on the card, on the next run."""
    address.chose()
    try:
        advice.write(key, verdict, str(st.session_state.get(f"reason.{name}", "")))
    except UserError as error:
        st.session_state.setdefault(_PROBLEM, {})[name] = str(error)
