"""Pages as Streamlit draws them, without a browser, on what analysis itself says of a store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from analysis.misses import report as reports
from analysis.misses.explain import explain
from analysis.misses.report import build
from dashboard import words
from tests.conftest import Database
from tests.dashboard.drawn import Draw, drawer, said
from tests.dashboard.made import build as made
from tests.dashboard.made import line

HOUR = {"from": "2026-11-29T12:00", "to": "2026-11-29T13:00"}


def _page() -> None:
    from dashboard.views import misses

    misses.page()


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Iterator[Draw]:
    """The page of an address on a store."""

    yield from drawer(_page, monkeypatch)


def test_an_empty_store_says_how_to_fill_it(db: Database, draw: Draw) -> None:
    shown = said(draw(db.client))
    assert "The store has no requests and no KV events yet" in shown
    assert "hitmap attach http://127.0.0.1:8000" in shown


def test_analysis_answers_and_what_it_lacks_is_named(filled: Database, draw: Draw) -> None:
    page = draw(filled.client, **HOUR, by="phase", request="r1")
    report = build(filled.client, "2026-11-29T12:00/2026-11-29T13:00", by="phase")
    tiles = {tile.label: tile.value for tile in page.metric}
    assert tiles["Served"] == words.served(report.total)
    assert tiles["Requests"] == words.tokens(report.total.requests)
    shown = said(page)
    for text in (
        report.answer,
        "No prompts are known of these requests",
        "No KV events in this range",
        "--kv-events-config",
        "r1** on vllm-a",
        f"{explain(filled.client, 'r1').prompt:,} prompt tokens",
    ):
        assert text in shown


def test_a_chart_that_leaves_some_out_says_so(
    filled: Database, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = replace(made(None, "-1h/now"), lines=[line(f"group {n}", 0.01) for n in range(39)])
    monkeypatch.setattr(reports, "build", lambda *_, **__: many)
    assert "The first 20 of 39; the table has all." in said(draw(filled.client, **HOUR))
    few = replace(many, lines=many.lines[:20])
    monkeypatch.setattr(reports, "build", lambda *_, **__: few)
    assert "The first 20" not in said(draw(filled.client, **HOUR))


def test_where_nothing_could_be_served_there_are_words_and_no_blank_chart(
    filled: Database, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = made(None, "-1h/now")
    none = [replace(line, achieved=0, reachable=0, attainable=0, routing_loss=0) for line in report.ceilings]
    monkeypatch.setattr(reports, "build", lambda *_, **__: replace(report, ceilings=none))
    shown = said(draw(filled.client, **HOUR))
    assert "What each server could have served" in shown
    assert "Nothing was served, and nothing could have been" in shown


@pytest.mark.parametrize(
    ("step", "address", "groups"),
    [
        ("hitmap misses --by template    # who it is", {}, ["template"]),
        ("hitmap misses --by template    # who it is", {"server": "vllm-a"}, ["template"]),
        ("hitmap misses --by server    # who it is", {"by": "template"}, ["server"]),
        ("hitmap misses --by server    # who it is", {"by": "template", "server": "vllm-a"}, []),
        ("hitmap misses --by server    # who it is", {"by": "template", "server": "vllm-*"}, ["server"]),
        ("hitmap misses --by model    # who it is", {}, []),  # there is one
        (
            "hitmap misses 2026-11-29T12:00/2026-11-29T13:00,server=vllm-a --by template",
            {"server": "vllm-a"},
            ["template"],
        ),
    ],
)
def test_to_group_by_something_else_is_a_click_and_keeps_the_filters(
    filled: Database,
    draw: Draw,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    address: dict[str, str],
    groups: list[str],
) -> None:
    report = replace(made(None, "-1h/now"), next_steps=[step])
    monkeypatch.setattr(reports, "build", lambda *_, **__: report)
    page = draw(filled.client, **HOUR, **address)
    buttons = [button for button in page.button if button.label.startswith("Group by ")]
    assert [button.label.removeprefix("Group by ") for button in buttons] == groups
    assert step not in said(page), "it is a command, about other requests than those that are shown"
    assert ("Next:" in said(page)) == bool(groups)
    for button in buttons:
        before = dict(page.query_params)
        button.click().run()
        assert not page.exception
        kept = {name: value for name, value in before.items() if name != "by"}
        by = (
            {} if groups == ["server"] else {"by": groups[0]}
        )  # what is the default does not stand in an address
        assert dict(page.query_params) == kept | by


def test_a_command_about_other_requests_stays_one(
    filled: Database, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [
        "hitmap misses server=vllm-b --by template",
        "hitmap misses server=vllm-a    # the group with most of it",
    ]
    report = replace(made(None, "-1h/now"), next_steps=steps)
    monkeypatch.setattr(reports, "build", lambda *_, **__: report)
    shown = [code.value for code in draw(filled.client, **HOUR).code]
    assert [code for code in shown if code in steps] == steps
