"""Advisor: which part of the prompts breaks the cache, what to write instead, and what people decided about it."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from analysis.advisor.export import module, rules_yaml
from analysis.advisor.learning.cause import Safety
from analysis.advisor.report import AdviceReport
from analysis.advisor.stored.chains import Parting
from analysis.advisor.stored.verdicts import Verdict
from analysis.advisor.text import to_markdown
from analysis.choices import Choices
from analysis.report.json import to_json
from cachemodel.errors import UserError
from dashboard import address, advice, data
from dashboard.advice import CACHES, Advised, Card, Decided
from dashboard.charts import advisor as charts
from dashboard.filter_bar import bar, own_value, pick
from dashboard.filters import Filters
from dashboard.text import plain
from dashboard.views import hints
from dashboard.views.advice_card import card, interval, measured_as
from dashboard.views.link import link
from dashboard.words import share, tokens

CHART = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}
ALL = "all"
SHOW = (ALL, *(verdict.value for verdict in Verdict))
_OWN = {"show": SHOW, "cache": CACHES}  # what an address may say here beside the filters
_WRITTEN_BY = "hitmap dashboard"


def page() -> None:
    """The whole page."""
    st.title("Advisor", anchor=False)
    try:
        choices, labels = data.choices(), data.labels()
    except UserError as error:
        st.error(plain(str(error)), icon=":material/database_off:")
        return
    filters = bar(choices, labels, _OWN, _sidebar)
    if not choices.requests:
        hints.nothing_at_all()
        return
    try:
        found = advice.advised(filters.selection, own_value("cache"))
        decided = advice.decided()
    except UserError as error:
        st.error(plain(str(error)))
        hints.elsewhere(choices)
        return
    _show(found, decided, filters, choices)


def _sidebar() -> None:
    pick(
        st.selectbox,
        "cache",
        CACHES,
        label="Found again by the rules of",
        help="How prompts that begin alike are found again is replayed by the rules of this cache, without limits.",
    )


def _show(found: Advised, decided: Decided, filters: Filters, choices: Choices) -> None:
    left, right = st.columns([5, 2], vertical_alignment="center")
    left.caption(plain(f"{found.stored.name}, read {found.made:%H:%M:%S}"))
    link(right, found.made, filters)
    told = found.report
    if told is None:
        hints.no_texts()
        _partings(found.stored.partings, open_=True)
        return
    st.markdown(f"**{plain(told.answer)}**")
    _tiles(told, decided)
    if found.cards:
        _chart(found.cards, decided)
        _cards(found.cards, decided)
    _exports(found, decided)
    _beside(told)
    _partings(found.stored.partings, open_=False)


def _tiles(told: AdviceReport, decided: Decided) -> None:
    tiles = st.columns([2, 2, 3, 3])
    tiles[0].metric(
        "Computed",
        share(told.computed_tokens, told.prompt_tokens),
        help=f"{told.computed_tokens:,} of {told.prompt_tokens:,} prompt tokens, by the replay",
    )
    tiles[1].metric(
        "With all of it",
        share(told.computed_after, told.prompt_tokens),
        help=f"{told.computed_after:,} tokens: with every suggestion that a rule can write in place",
    )
    price = told.price
    tiles[2].metric(
        "P95 time to first token",
        f"-{price.p95_ms.value:,.0f} of {price.p95_before_ms:,.0f} ms" if price else "not priced",
        help=plain(
            f"predicted: {interval(price.p95_ms, 'ms')} less" if price else told.no_price or "no price"
        ),
    )
    measured = decided.verified.get("")
    tiles[3].metric(
        "Measured, mean",
        f"-{measured.ms.value:,.1f} ms" if measured else "not verified",
        help=plain(
            measured_as(measured) if measured else "hitmap advise LOG --verify URL --keep measures it"
        ),
    )
    if measured and not measured.under_load:
        tiles[3].caption(measured.by)
    if price:
        less = f"P95 {interval(price.p95_ms, 'ms')} less, mean {interval(price.mean_ms, 'ms')} less"
        st.caption(plain(f"Predicted of {price.requests:,} requests of {', '.join(price.servers)}: {less}."))


def _chart(cards: tuple[Card, ...], decided: Decided) -> None:
    known = {at: decided.verified[one.key] for at, one in enumerate(cards) if one.key in decided.verified}
    measured = {at: one.ms for at, one in known.items() if one.under_load}
    figure = charts.savings([one.told for one in cards], measured)
    st.plotly_chart(figure, config=CHART, key="chart.savings", alt="what each suggestion saves")
    if any(one.told.mean_ms for one in cards) and not all(one.told.mean_ms for one in cards):
        st.caption("No bar: what no rule can write is not priced.")
    if len(measured) < len(known):
        st.caption(
            "Measured one request at a time is not in the figure: bars predict requests that wait for each other."
        )
    if len(cards) > charts.MOST_BARS:
        st.caption(f"The first {charts.MOST_BARS} of {len(cards)}; all are below.")


def _cards(cards: tuple[Card, ...], decided: Decided) -> None:
    pick(
        st.segmented_control,
        "show",
        SHOW,
        label="Show",
        required=True,
        format_func=lambda name: f"{name} {sum(_is_shown(one, decided, name) for one in cards)}",
        label_visibility="collapsed",
    )
    wanted = own_value("show")
    shown = [(at, one) for at, one in enumerate(cards, start=1) if _is_shown(one, decided, wanted)]
    if not shown:
        st.caption(f"No suggestion is {wanted}.")
    for at, one in shown:
        card(at, one, decided.of(one.key), decided.verified.get(one.key))


def _is_shown(one: Card, decided: Decided, wanted: str) -> bool:
    return wanted == ALL or decided.of(one.key).verdict == wanted


def _exports(found: Advised, decided: Decided) -> None:
    """Files of the report, and of the rules of what was accepted."""
    told, worked_out = found.report, found.advice
    if told is None or worked_out is None:
        return
    st.subheader("Files", anchor=False)
    drop = st.checkbox(
        "Rules that leave something out, too",
        help="By default files have the rules of accepted suggestions that canonicalise or move. With this, also those "
        "by which the model sees less.",
        key="advice.drop",
        on_change=address.chose,
    )
    export = advice.accepted(found, decided, drop=drop)
    files: dict[str, tuple[Callable[[], str], str, bool]] = {
        "advice.json": (lambda: to_json(told), "application/json", True),
        "advice.md": (lambda: to_markdown(told), "text/markdown", True),
    }
    ruled = export is not None and bool(export.rules)
    cache, by = worked_out.cache, worked_out.tokens_by
    files["rewriter.py"] = (lambda: module(export) if export else "", "text/x-python", ruled)
    files["rules.yaml"] = (
        lambda: rules_yaml(export, cache=cache, tokens_by=by, by=_WRITTEN_BY) if export else "",
        "application/yaml",
        ruled,
    )
    for column, (name, (make, mime, there)) in zip(st.columns(len(files)), files.items(), strict=True):
        column.download_button(
            name, make, name, mime, on_click="ignore", width="stretch", disabled=not there, key=f"file.{name}"
        )
    if others := advice.elsewhere(found, decided):
        st.caption(
            f"{others:,} accepted before, but not found in this selection: their rules are in no file here."
        )
    if export is None:
        st.caption(
            "rewriter.py and rules.yaml have the rules of accepted suggestions: none that has a rule is yet."
        )
    elif export.left and export.most is not Safety.DROP:
        names = ", ".join(one.slot.cause.value for one in export.left)
        st.caption(plain(f"Accepted, but left out because the model would see less: {names}."))


def _beside(told: AdviceReport) -> None:
    if told.beside:
        st.subheader("Not a fault of the prompts", anchor=False)
        for one in told.beside:
            much = f"{tokens(one.tokens)} tokens ({one.share:.0%} of what is computed), {one.requests:,} requests"
            st.markdown(f"- {plain(f'{one.cause}: {much}; {one.detail}')}")
    with st.expander("How this was worked out"):
        sentences = [*told.notes, *(told.price.notes if told.price else [])]
        if told.no_price:
            sentences.append(f"Not priced in milliseconds: {told.no_price}")
        for sentence in sentences:
            st.markdown(f"- {plain(sentence)}")
    if told.left_out:
        st.warning("\n".join(f"- {plain(sentence)}" for sentence in told.left_out))


def _partings(partings: list[Parting], *, open_: bool) -> None:
    """What chains of hashes tell without text."""
    if not partings:
        if open_:
            st.caption("Chains of hashes tell of no place where prompts part and lose what was sent before.")
        return
    with st.expander("Where prompts part, by their hashes alone", expanded=open_):
        st.caption(
            "Prompts of one template that part there from all before them, and the tokens behind that had been sent "
            "before: what they would find if nothing were in front. What stands there is not known without text."
        )
        st.table(
            {
                "template": [one.template for one in partings],
                "token": [f"{one.start:,}-{one.end:,}" for one in partings],
                "part there": [f"{one.requests:,} of {one.of:,}" for one in partings],
                "lost tokens": [f"{one.lost:,} ({one.share:.0%})" for one in partings],
                "what stands there is": [one.behaviour for one in partings],
            },
            hide_index=True,
        )
        if partings[0].sampled > 1:
            st.caption(f"One prompt in {partings[0].sampled:,} was read; counts are estimates.")
