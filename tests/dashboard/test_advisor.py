"""Page Advisor: what it says is what the advisor says of the store, a decision stays, and texts of others are texts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from clickhouse_connect.driver.client import Client
from streamlit.testing.v1 import AppTest

from analysis.advisor.advice import advise
from analysis.advisor.key import key_of
from analysis.advisor.learning.cause import Cause
from analysis.advisor.stored.prompts import read_prompts
from analysis.advisor.stored.verdicts import (
    ONE_AT_A_TIME,
    Decision,
    Measured,
    Verdict,
    decide,
    decisions,
    verified,
)
from analysis.advisor.text import hangs_on
from analysis.interval import Interval
from analysis.prefix_replay.rules import BlockRule, ProviderRule, RadixRule, SlotRule
from cachemodel.errors import UserError
from collector.chains.capture import Texts
from collector.chains.settings import Capture
from dashboard import advice, data, source
from dashboard.charts.advisor import savings
from dashboard.source import Source
from hitmap.prompt_tokens import body_tokens
from store.client import connect
from store.embedded import Embedded
from store.migrate import migrate
from tests.analysis.misses.captured import SERVER, database, take_in
from tests.collector.chains.support import recorded
from tests.collector.support import HASHER
from tests.conftest import Database
from tests.dashboard.advised import DAY, fill
from tests.dashboard.conftest import Served, serving, settle, text_of
from tests.dashboard.looks import WIDTHS, faults, whole
from tests.dashboard.made import HOSTILE

SELECTION = f"{DAY['from']}/{DAY['to']}"
Draw = Callable[..., AppTest]


def _page() -> None:
    from dashboard.views import advisor

    advisor.page()


def _tokens() -> Any:
    return body_tokens("approximate")


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Iterator[Draw]:
    """The page of an address on a store. writes: whether it may write."""

    def drawn(client: Client, *, writes: bool = True, **address: str) -> AppTest:
        @contextmanager
        def opener() -> Iterator[Client]:
            yield client

        monkeypatch.setattr(source, "_source", [Source(opener, opener if writes else None, _tokens)])
        data.forget()
        page = AppTest.from_function(_page, default_timeout=120)
        for name, value in address.items():
            page.query_params[name] = value
        page.run()
        assert not page.exception
        return page

    yield drawn
    data.forget()


@pytest.fixture
def filled(db: Database) -> Database:
    fill(db.client)
    return db


def said(page: AppTest) -> str:
    """All texts of a page, without what keeps them from being Markdown."""
    kinds = (
        page.title,
        page.subheader,
        page.markdown,
        page.caption,
        page.info,
        page.warning,
        page.code,
        page.error,
    )
    return "\n".join(e.value for kind in kinds for e in kind).replace("\\", "").replace("\u2060", "")


def button(page: AppTest, label: str, at: int = 0) -> Any:
    return [one for one in page.button if one.label == label][at]


def causes(page: AppTest) -> list[str]:
    """Of the cards that are shown."""
    told = [one.value.replace("\\", "") for one in page.subheader if " at " in one.value]
    return [one.partition(". ")[2].partition(" at ")[0] for one in told]


def test_an_empty_store_says_how_to_fill_it(db: Database, draw: Draw) -> None:
    assert "The store has no requests and no KV events yet" in said(draw(db.client))


def test_without_texts_the_page_names_the_setting_and_tells_what_chains_tell(
    db: Database, draw: Draw
) -> None:
    fill(db.client, Capture.HASHES)
    page = draw(db.client, **DAY)
    assert "--capture redacted" in said(page)
    assert "No text of these prompts is in the store" in said(page)
    (table,) = page.table
    assert table.value["part there"].str.contains(" of ").all()
    assert not causes(page)


def test_the_page_says_what_the_advisor_says_of_the_store(filled: Database, draw: Draw) -> None:
    stored = read_prompts(filled.client, SELECTION)
    tokens = body_tokens("approximate")
    found = advise(
        stored.prompts,
        tokens,
        BlockRule(block_size=16),
        cache_name="vLLM's prefix cache in blocks of 16 tokens",
        tokens_by=tokens.name,
    )
    page = draw(filled.client, **DAY)
    assert sorted(causes(page)) == sorted(one.slot.cause.value for one in found.suggestions)
    assert {"clock", "nonce", "tool order"} <= set(causes(page))
    shown = said(page)
    for one in found.suggestions:
        assert one.remedy.what in shown
        assert not one.diff or one.diff.splitlines()[-1] in shown
    assert {one.label: one.value for one in page.metric}["P95 time to first token"] == "not priced"
    assert "not verified: hitmap advise LOG --verify URL" in shown
    assert "Not priced in milliseconds" in shown


def test_a_decision_stays_and_can_be_taken_back(filled: Database, draw: Draw) -> None:
    page = draw(filled.client, **DAY)
    first = causes(page)[0]
    page.text_input(key=next(one.key for one in page.text_input if one.label == "Reason")).set_value(
        "not ours"
    ).run()
    button(page, "Dismiss").click().run()
    ((key, found),) = decisions(filled.client).items()
    assert (found.verdict, found.reason) == (Verdict.DISMISSED, "not ours")
    assert "not ours" in said(page)
    again = draw(filled.client, **DAY, show="dismissed")
    assert causes(again) == [first]
    assert causes(draw(filled.client, **DAY, show="open"))[0] != first
    button(again, "Undo").click().run()
    assert decisions(filled.client)[key].verdict is Verdict.OPEN
    assert causes(again) == []
    assert "No suggestion is dismissed." in said(again)


def test_rules_are_those_of_what_was_accepted(filled: Database, draw: Draw) -> None:
    """The id is dropped, which has to be wanted; what is dismissed or open is in no file."""
    page = draw(filled.client, **DAY)
    assert "none that has a rule is yet" in said(page)
    found = advice.advised(SELECTION, "vllm")
    keys = {one.told.cause: one.key for one in found.cards}
    decide(filled.client, keys["clock"], Verdict.ACCEPTED)
    decide(filled.client, keys["nonce"], Verdict.ACCEPTED)
    decide(filled.client, keys["tool order"], Verdict.DISMISSED)
    decided = advice.decided()
    export = advice.accepted(found, decided, drop=False)
    assert export
    assert [one.slot.cause for one in export.taken] == [Cause.CLOCK]
    assert [one.slot.cause for one in export.left] == [Cause.NONCE]
    with_drop = advice.accepted(found, decided, drop=True)
    assert with_drop
    assert {one.slot.cause for one in with_drop.taken} == {Cause.CLOCK, Cause.NONCE}
    page.run()
    assert "left out because the model would see less: nonce" in said(page)


def test_who_may_only_read_sees_why_the_buttons_are_off(filled: Database, draw: Draw) -> None:
    page = draw(filled.client, writes=False, **DAY)
    for label in ("Accept", "Dismiss"):
        assert button(page, label).disabled
        assert "only reads" in button(page, label).help


def test_a_store_that_refuses_is_quoted(filled: Database, draw: Draw, store_server: Embedded) -> None:
    page = draw(filled.client, **DAY)
    name = filled.dsn.rpartition("/")[2]

    @contextmanager
    def refused() -> Iterator[Client]:
        from hitmap.commands._store_option import open_reader

        with open_reader(f"{store_server.reader_dsn.rpartition('/')[0]}/{name}") as client:
            yield client

    source._source[:] = [replace(source._source[0], writer=refused)]
    button(page, "Accept").click().run()
    assert not page.exception
    assert any("the store says" in one.value for one in page.error)
    assert decisions(filled.client) == {}


def test_an_address_that_cannot_be(filled: Database, draw: Draw) -> None:
    shown = said(draw(filled.client, **DAY, show="<b>", cache="x", layer="reuse"))
    assert "show=<b> in the address: it is all or open or accepted or dismissed; all is shown" in shown
    assert "cache=x in the address" in shown
    assert "the address has layer=, which means nothing here" in shown


def test_nothing_that_matches(filled: Database, draw: Draw) -> None:
    page = draw(filled.client, **{"from": "2020-01-01T00:00", "to": "2020-01-02T00:00"})
    assert "no request matches" in said(page)
    assert button(page, "Show all there is")


def test_without_tokens_nothing_is_made_up(
    filled: Database, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw(filled.client, **DAY)
    monkeypatch.setattr(source, "_source", [replace(source._source[0], tokens=None)])
    data.forget()
    with pytest.raises(advice.UserError, match="tells tokens"):
        advice.work_out(SELECTION, "vllm")


@pytest.mark.parametrize(
    ("dialect", "wanted", "kind"),
    [
        ("vllm", "as the server", BlockRule),
        ("", "as the server", BlockRule),
        ("sglang", "as the server", RadixRule),
        ("llama_cpp", "as the server", SlotRule),
        ("vllm", "openai", ProviderRule),
        ("sglang", "vllm", BlockRule),
    ],
)
def test_the_cache_is_the_servers_unless_another_is_wanted(dialect: str, wanted: str, kind: type) -> None:
    from analysis.advisor.stored.prompts import Stored

    rule, name = advice.cache_of(Stored("s", 1, [], dialect=dialect, block_size=32), wanted)
    assert isinstance(rule, kind)
    assert name
    if isinstance(rule, BlockRule):
        assert rule.block_size == 32


def test_the_newest_decision_counts(db: Database) -> None:
    for at, (verdict, reason) in enumerate(
        [(Verdict.ACCEPTED, "a"), (Verdict.DISMISSED, HOSTILE), (Verdict.OPEN, "")]
    ):
        decide(db.client, "k", verdict, reason, datetime(2026, 11, 29, 12, at, tzinfo=UTC))
        assert decisions(db.client) == {
            "k": Decision(verdict, reason, datetime(2026, 11, 29, 12, at, tzinfo=UTC))
        }
    decide(db.client, "other", Verdict.ACCEPTED, "x" * 2000)
    assert len(decisions(db.client)["other"].reason) == 500
    assert set(decisions(db.client)) == {"k", "other"}


def test_a_store_without_the_table_has_no_decisions(empty_db: Database) -> None:
    assert decisions(empty_db.client) == {}


def test_what_was_measured_comes_from_findings(db: Database) -> None:
    measure(
        db.client,
        (1, "k", 3.0, 1.0, "the demo's load"),
        (2, "k", 5.0, None, ""),
        (1, "", 9.0, 8.0, "the load"),
    )
    assert verified(db.client) == {
        "k": Measured(Interval(5.0, None, None), ONE_AT_A_TIME),
        "": Measured(Interval(9.0, 8.0, None), "the load"),
    }


def test_stores_from_before_the_tables_say_what_to_do(empty_db: Database) -> None:
    assert verified(empty_db.client) == {}
    with pytest.raises(UserError, match="hitmap store migrate"):
        decide(empty_db.client, "k", Verdict.ACCEPTED)


def test_a_card_says_that_the_store_is_older_than_decisions(filled: Database, draw: Draw) -> None:
    page = draw(filled.client, **DAY)
    filled.client.command("DROP TABLE advice_verdicts")
    button(page, "Accept").click().run()
    assert not page.exception
    assert any("hitmap store migrate" in one.value for one in page.error)


def measure(client: Client, *told: tuple[int, str, float, float | None, str]) -> None:
    """Findings of hours, keys, milliseconds, their lower bounds, and what they were measured by."""
    columns = ["time", "origin", "name", "subject", "value", "low", "high", "inputs"]
    rows = [
        [
            datetime(2026, 11, 29, hour, tzinfo=UTC),
            *("advise", "advise.saved_ms", key, value, low, None),
            json.dumps({"by": by} if by else {"model": "m"}),
        ]
        for hour, key, value, low, by in told
    ]
    client.insert("findings", rows, column_names=columns)


def test_what_was_measured_one_at_a_time_refutes_no_prediction(filled: Database, draw: Draw) -> None:
    """It stands on its card with how it was measured, and only what was measured under load is drawn."""
    page = draw(filled.client, **DAY)
    first, second = (one.key for one in advice.advised(SELECTION, "vllm").cards[:2])
    measure(filled.client, (1, first, 3.0, 1.0, ONE_AT_A_TIME), (1, "", 4.0, 2.0, ONE_AT_A_TIME))
    page.run()
    shown = said(page)
    assert "mean 3.0 ms" in shown
    assert "one request at a time, where nobody waits" in shown
    assert "Measured one request at a time is not in the figure" in shown
    measure(filled.client, (2, first, 3.0, 1.0, "the load"), (2, second, 3.0, 1.0, "the load"))
    page.run()
    assert "not in the figure" not in said(page)
    assert "by the load" in said(page)


def test_what_was_accepted_elsewhere_is_counted(filled: Database, draw: Draw) -> None:
    page = draw(filled.client, **DAY)
    assert "accepted before" not in said(page)
    for key, verdict in (("x", Verdict.ACCEPTED), ("y", Verdict.ACCEPTED), ("z", Verdict.DISMISSED)):
        decide(filled.client, key, verdict)
    page.run()
    assert "2 accepted before, but not found in this selection" in said(page)


def test_a_card_says_what_a_saving_hangs_on_as_the_terminal_does(filled: Database, draw: Draw) -> None:
    shown = said(draw(filled.client, **DAY))
    told = [one.told for one in advice.advised(SELECTION, "vllm").cards]
    assert all(hangs_on(one) in shown for one in told)
    near = replace(told[0], saves=1000, alone=950, needed=1000)
    assert hangs_on(near) == ""
    assert hangs_on(replace(near, alone=100)) == "alone it saves 100: what stands before it has to go first"


def test_a_figure_has_what_cards_have(filled: Database, draw: Draw) -> None:
    draw(filled.client, **DAY)
    told = [one.told for one in advice.advised(SELECTION, "vllm").cards]
    bars = savings(told, {}).data[0]
    assert list(bars.x) == [
        None if one.saves is None else max(one.saves, one.needed or 0, one.alone or 0) for one in told
    ]
    ms = [replace(told[0], mean_ms=Interval(12.0, 10.0, 15.0)), replace(told[1], mean_ms=None)]
    figure = savings(ms, {0: Interval(11.0, 9.0, 12.0)})
    predicted, measured = figure.data
    assert (list(predicted.x), predicted.error_x.array[0], predicted.error_x.arrayminus[0]) == (
        [12.0, None],
        3.0,
        2.0,
    )
    assert (list(measured.x), list(measured.y), measured.error_x.arrayminus[0]) == ([11.0], [0], 2.0)
    assert [note.text for note in figure.layout.annotations] == ["ms of the mean time to first token saved"]


@pytest.fixture
def served(filled: Database) -> Iterator[Served]:
    """A dashboard on that store; it outlives the pages that are opened of it."""
    with serving("hitmap", filled.dsn) as running:
        yield running


def test_in_a_browser(
    served: Served, open_page: Callable[..., Any], filled: Database, tmp_path: Path
) -> None:
    """Hostile prompts, a click that decides, files that do what they say, and a link to what is shown."""
    page = open_page(f"{served.address}/advisor?from={DAY['from']}&to={DAY['to']}", "Files", scheme="dark")
    page.locator(".js-plotly-plot .barlayer .point").first.wait_for(state="attached")
    main = page.get_by_test_id("stMain")
    main.get_by_text("<script>window.hit=1</script>").first.wait_for()
    assert "**bold**" in text_of(page)
    assert page.evaluate("window.hit") is None
    assert main.locator("a[href]").count() == 0
    for width in reversed(WIDTHS):
        page.set_viewport_size({"width": width, "height": 900})
        whole(page)
        assert faults(page) == [], width
    clock = (
        page.get_by_test_id("stVerticalBlock")
        .filter(has=page.get_by_text("clock at messages[0].content"))
        .last
    )
    clock.get_by_placeholder("why, for those").fill(HOSTILE)
    clock.get_by_role("button", name="Accept").click()
    main.get_by_text("accepted 1", exact=True).wait_for()
    main.get_by_role("button", name="Undo").wait_for()
    (found,) = decisions(filled.client).values()
    assert (found.verdict, found.reason) == (Verdict.ACCEPTED, HOSTILE)
    assert page.evaluate("window.hit") is None
    page.get_by_role("radio", name="accepted 1").click()
    page.wait_for_function("location.search.includes('show=accepted')")
    page.locator("[data-test-script-state=notRunning]").wait_for()
    main.get_by_role("heading", name="tool order at").wait_for(state="detached")
    assert parse_qs(urlsplit(page.url).query)["show"] == ["accepted"]
    for name in ("rewriter.py", "rules.yaml", "advice.json", "advice.md"):
        settle(page)
        with page.expect_download() as download:
            page.get_by_role("button", name=name, exact=True).click()
        Path(download.value.path()).rename(tmp_path / name)
    assert len(json.loads((tmp_path / "advice.json").read_text(encoding="utf-8"))["suggestions"]) >= 3
    rules = yaml.safe_load((tmp_path / "rules.yaml").read_text(encoding="utf-8"))["rules"]
    assert {rule["cause"] for rule in rules} == {"clock"}
    assert "# Advice" in (tmp_path / "advice.md").read_text(encoding="utf-8")
    assert _rewritten(tmp_path) == "Be kind to everybody."


def _rewritten(folder: Path) -> str:
    """The system message of a request once the downloaded module has moved its clock."""
    code = (
        "from rewriter import rewrite; import json;"
        "print(json.dumps(rewrite({'messages': [{'role': 'system', 'content': 'Now: 10:11:12\\nBe kind to everybody.'},"
        " {'role': 'user', 'content': 'hi'}]})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    return str(json.loads(done.stdout)["messages"][0]["content"])


def test_reads_with_a_readers_rights_only(filled: Database, store_server: Embedded, draw: Draw) -> None:
    """All but a decision is asked by a client that cannot write."""
    name = filled.dsn.rpartition("/")[2]
    with connect(f"{store_server.reader_dsn.rpartition('/')[0]}/{name}") as reader:
        page = draw(reader, **DAY)
        assert {"clock", "nonce"} <= set(causes(page))


def test_a_key_is_the_suggestions_own(filled: Database, draw: Draw) -> None:
    draw(filled.client, **DAY)
    found = advice.advised(SELECTION, "vllm")
    assert found.advice
    assert {one.key for one in found.cards} == {key_of(one) for one in found.advice.suggestions}
    assert all(one.told.cause == one.suggestion.slot.cause.value for one in found.cards)
    assert found.stored.prompts == []


@pytest.fixture(scope="module")
def recorded_store(
    store_server: Embedded, run1: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """A real vLLM with its spans, events and chains, and the texts that --capture full keeps."""
    with database(store_server, "advisor_capture") as dsn:
        with connect(dsn) as client:
            migrate(client)
        client = take_in(dsn, run1, tmp_path_factory.mktemp("capture"))
        texts = Texts(Capture.FULL, HASHER)
        for _, prompt in recorded(run1):
            entries, new = texts.entries(replace(prompt, server=SERVER), None)
            texts.stored(new)
            for entry in entries:
                client.raw_insert(entry.kind, insert_block=entry.payload, fmt="JSONEachRow")
        yield client
        client.close()


def test_what_a_real_server_took_prices_it(recorded_store: Client, draw: Draw) -> None:
    page = draw(recorded_store, **{"from": "2026-11-29T00:00", "to": "2026-11-30T00:00"})
    assert "clock" in causes(page)
    found = advice.advised("2026-11-29T00:00/2026-11-30T00:00", "as the server")
    assert found.stored.block_size == 32
    assert found.report
    assert found.report.price
    assert {one.label: one.value for one in page.metric}["P95 time to first token"].endswith(" ms")
    shown = said(page)
    first = found.cards[0].told
    assert first.p95_ms
    assert f"Predicted: P95 {first.p95_ms.value:.1f} ms (95 %:" in shown.replace("*", "")
    ranks = [one.told.p95_ms.value for one in found.cards if one.told.p95_ms]
    assert ranks == sorted(ranks, reverse=True)
