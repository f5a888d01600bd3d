"""The page Attribution: which two sets, and what is shown of them; in a real browser and without one."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from streamlit.testing.v1 import AppTest

from analysis.attribution.model import Verdict
from analysis.over_time import Bin, Course, Marker
from analysis.report.compare import Asked, compare
from analysis.report.metrics import METRICS
from analysis.report.model import Report
from dashboard import data, source
from dashboard.charts.attribution import FAINT, SLOWER, composition, waterfall
from dashboard.charts.over_time import latency
from dashboard.question import Question, around, from_query, window_in, with_window
from dashboard.views.attribution import CELL, CHARACTER, LEAST, ROOM, fitted
from tests.analysis.attributions import CAUSED, SHOWS, share, view
from tests.analysis.sets import compared, requests
from tests.conftest import Database
from tests.dashboard.conftest import Served, settle, text_of
from tests.dashboard.made import HOSTILE, START, WIDE
from tests.dashboard.test_browser import saved

Open = Callable[..., object]
PAIR = "a=phase%3Dwarm&b=phase%3Dcold&metric=e2e&quantile=P99"
END = "The same on a terminal:"
MADE_OF = "What P50 is made of; not a cause"


def test_figures_are_there_before_their_causes_and_replaced_by_them(site: Served, open_page: Open) -> None:
    """The first of these tests: whoever asks for anything else lets `phase=slow` go."""
    page = open_page(f"{site.address}/attribution?a=phase%3Dslow&b=phase%3Dcold", MADE_OF)
    page.get_by_text("Looking for causes").wait_for()
    page.locator(".js-plotly-plot", has_text="B: phase=cold").wait_for()
    shown = page.get_by_test_id("stMain").inner_text()  # as far as it is, while causes are looked for
    assert "Where it shows: prefill +" in shown
    assert END not in shown
    a = page.get_by_role("textbox", name="A: before")
    a.fill("phase=warm")
    a.press("Enter")
    page.get_by_text(END).wait_for()
    settle(page)
    assert page.get_by_text(MADE_OF).count() == 1
    assert page.get_by_text("Looking for causes").count() == 0
    assert "240 ± 25 because prompts changed" in text_of(page)


def test_a_link_shows_the_causes_and_saves_them(site: Served, open_page: Open) -> None:
    page = open_page(f"{site.address}/attribution?{PAIR}", END)
    page.get_by_text("hitmap report --a phase=warm --b phase=cold --metric e2e --quantile 0.99").wait_for()
    shown = text_of(page)
    for text in (
        "P99 end-to-end time rose by 276 ms",
        "240 ± 25 because prompts changed",
        "False blame on your fleet: 0.83 %, 1 of 120 pairs",
        "Prompts differ near their beginning",
        "What caused it",
        "Where it shows",
    ):
        assert text in shown
    page.locator(".js-plotly-plot", has_text="workload (noise)").get_by_text("+240", exact=True).wait_for()
    rows = {(row["view"], row["name"]): row for row in csv.DictReader(saved(page, "CSV").splitlines())}
    assert float(rows["caused", "changed"]["ms"]) == CAUSED.shares[0].value
    assert rows["shows", "prefill"]["verdict"] == "undecided"
    assert json.loads(saved(page, "JSON"))["attribution"]["placebo"]["pairs"] == 120
    assert "<h2>What caused it" in saved(page, "HTML")
    assert "phase=warm" in query(page)["a"]


def test_no_column_of_a_wide_table_is_out_of_sight(site: Served, open_page: Open) -> None:
    page = open_page(f"{site.address}/attribution?a=phase%3Dwide&b=phase%3Dcold", END)
    table = page.get_by_test_id("stDataFrame").first
    for name in ("sigmas", "by sigmas"):
        table.locator("th", has_text=re.compile(f"^{name}$")).wait_for(state="attached")
    shown, whole = table.locator(".dvn-scroller").evaluate("it => [it.clientWidth, it.scrollWidth]")
    assert whole <= shown
    cells = table.locator("td").all_text_contents()
    assert WIDE in cells


def test_columns_of_words_give_way_to_figures() -> None:
    assert fitted([10, 6, 20], [True, False, False]) == ([88, 62, 154], 1)
    widths, lines = fitted([14, 10, 20, 6, 9, 85, 9], [True, False, False, False, True, True, False])
    assert sum(widths) <= ROOM
    assert lines == 3
    assert widths[1] == CELL + math.ceil(10 * CHARACTER), "figures keep their room"
    both, lines = fitted([200, 200, 10], [True, True, False])
    assert sum(both) <= ROOM
    assert both[0] == both[1]
    assert lines == 5
    assert fitted([400, 10] + [30] * 5, [True] + [False] * 6)[0][0] == LEAST, "words stay readable"


def query(page) -> dict[str, list[str]]:  # type: ignore[no-untyped-def]
    return parse_qs(urlsplit(page.url).query)


def test_two_stretches_are_brushed_and_compared(site: Served, open_page: Open) -> None:
    page = open_page(f"{site.address}/attribution", "Choose by")
    page.get_by_text("Choose two sets of requests").wait_for()
    for stretch, side in (((0.0, 0.4), "a"), ((0.6, 1.0), "b")):
        _drag(page, *stretch)
        page.wait_for_function("side => new URL(location).searchParams.has(side)", arg=side)
    page.get_by_text(END).wait_for()
    asked = query(page)
    a, b = (window_in(asked[side][0], datetime.now(UTC)) for side in ("a", "b"))
    assert a is not None
    assert b is not None
    assert START - timedelta(seconds=1) <= a[0] < a[1] < b[0] < b[1] <= START + timedelta(seconds=3)
    page.locator(".js-plotly-plot").first.get_by_text("A", exact=True).wait_for()


def _drag(page, begin: float, end: float) -> None:  # type: ignore[no-untyped-def]
    area = page.locator(".js-plotly-plot .nsewdrag").first
    area.wait_for()
    box = area.bounding_box()
    y = box["y"] + box["height"] / 2
    at = [box["x"] + 2 + share * (box["width"] - 4) for share in (begin, (begin + end) / 2, end)]
    page.mouse.move(at[0], y)
    page.mouse.down()
    page.mouse.move(at[1], y, steps=4)
    page.mouse.move(at[2], y, steps=4)
    page.mouse.up()


def test_what_cannot_be_told_says_why_and_hostile_names_are_text(site: Served, open_page: Open) -> None:
    page = open_page(f"{site.address}/attribution?a=server%3Dvllm-a&b=phase%3Dcold&colour=red", END)
    shown = text_of(page)
    assert f"the layers of {HOSTILE} are not told" in shown
    assert "the address has colour=, which means nothing here" in shown
    assert page.evaluate("window.hit") is None
    page.get_by_text("Label", exact=True).click()
    page.get_by_role("button", name="Compare").click()
    page.wait_for_function("() => new URL(location).searchParams.get('b')?.startsWith('phase=') === false"
                           " || new URL(location).searchParams.get('a') !== 'server=vllm-a'")  # fmt: skip


def _page() -> None:
    from dashboard.views import attribution

    attribution.page()


@pytest.fixture
def drawn(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., AppTest]]:
    """The page of an address on a store, as Streamlit draws it."""
    monkeypatch.setattr(source, "_source", [source.Source(lambda: nullcontext(db.client))])

    def draw(**address: str) -> AppTest:
        data.forget()
        page = AppTest.from_function(_page, default_timeout=120)
        for name, value in address.items():
            page.query_params[name] = value
        page.run()
        assert not page.exception
        return page

    yield draw
    data.forget()


def test_an_empty_store_says_how_to_fill_it(drawn: Callable[..., AppTest]) -> None:
    assert "The store has no requests and no KV events yet" in drawn().info[0].value


def test_analysis_answers(db: Database, drawn: Callable[..., AppTest]) -> None:
    """Real requests through the real report."""
    columns = ["time", "server", "request_id", "span_id", "ttft_us", "queue_us", "prefill_us", "labels"]
    db.client.insert(
        "requests",
        [
            [START + timedelta(seconds=i), "s", f"r{i}", i + 1, 9_000 + (i // 60) * 90_000 + 31 * (i % 7),
             4_000 + 31 * (i % 7), 5_000 + (i // 60) * 90_000, {"phase": "ab"[i // 60]}]
            for i in range(120)
        ],
        column_names=columns,
    )  # fmt: skip
    page = drawn(a="phase=a", b="phase=b")
    shown = "\n".join(e.value for e in page.markdown).replace("\\", "")
    assert "P50 time to first token rose by 90.0 ms" in shown
    assert "What caused it cannot be told" in shown
    assert any("hitmap report --a phase=a --b phase=b" in code.value for code in page.code)
    first = [str(cell) for frame in page.dataframe for cell in frame.value.iloc[:, 0]]
    assert "P50 ●" in first, "what is bold elsewhere"
    told = "\n".join(c.value for c in page.caption).replace("\\", "")
    assert "●: the interval of the change leaves zero out" in told
    early: list[Report] = []
    found = compare(db.client, "phase=a", "phase=b", Asked(early=early.append))
    assert early[0].attribution is None
    assert [c.a.value for c in early[0].quantiles] == [c.a.value for c in found.quantiles]
    wrong = drawn(a="phase=a", b="fase=b")
    assert "B: requests have no column or label 'fase'; did you mean phase?" in wrong.error[0].value.replace(
        "\\", ""
    )


def test_a_waterfall_begins_where_the_last_bar_ended_and_ends_at_the_change() -> None:
    figure = waterfall(CAUSED)
    begins = [bar.base[0] for bar in figure.data]
    values = [bar.x[0] for bar in figure.data]
    assert values == [240.0, 20.0, 9.0, 7.0, 276.0]
    assert begins == [0.0, 240.0, 260.0, 269.0, 0.0]
    assert [bar.marker.color for bar in figure.data[:4]] == [SLOWER, SLOWER, FAINT, FAINT]
    assert figure.data[0].error_x.array[0] == 25.0
    assert figure.layout.yaxis.ticktext == (
        "changed",
        "decode speed",
        "workload (noise)",
        "not explained",
        "change",
    )
    assert [bar.x[0] for bar in waterfall(SHOWS).data[:3]] == [178.0, 50.0, 48.0]


def test_what_is_made_of_layers_has_their_colours() -> None:
    report = compared(requests(60, 1, 30, 0.7), requests(60, 2, 90, 0.1))
    mine = [replace(line, colour="#123456") for line in report.layers]
    assert [bar.marker.color for bar in composition(mine, ("a", "b")).data] == ["#123456"] * len(mine)
    colours = {layer.name: layer.colour for layer in METRICS["ttft"].layers}
    assert all(line.colour == colours[line.layer] for line in report.layers)


def test_what_is_slight_is_faint_and_says_so() -> None:
    figure = waterfall(view("caused", [share("changed", 240.0, 25.0, Verdict.NAMED),
                                       share("decode speed", 2.0, 0.1, Verdict.SLIGHT)]))  # fmt: skip
    assert [bar.marker.color for bar in figure.data[:2]] == [SLOWER, FAINT]
    assert figure.layout.yaxis.ticktext[1] == "decode speed (slight)"


def test_lines_are_not_drawn_over_what_is_not_there() -> None:
    bins = [Bin(START + timedelta(seconds=s), 3, 10.0, 20.0) for s in (0, 1, 2, 60, 61)]
    figure = latency(
        Course(1.0, bins), {"A": (START, START + timedelta(seconds=2)), "B": None},
        [Marker(START + timedelta(seconds=30), HOSTILE, "", ""), Marker(START - timedelta(days=9), "old", "", "")], "x",
    )  # fmt: skip
    assert None in figure.data[0].y
    assert len(figure.data[0].y) == len(bins) + 1
    texts = [note.text for note in figure.layout.annotations]
    assert (texts[0], texts[2:]) == ("<b>A</b>", ["time, UTC"])
    assert "<script" not in texts[1]


def test_sets_are_written_as_a_person_would() -> None:
    begin, end = START, START + timedelta(minutes=5)
    assert with_window("-2h/-1h, server=vllm-a", begin, end) == (
        "2026-11-29T12:00:00.000/2026-11-29T12:05:00.000, server=vllm-a"
    )
    assert window_in("server=a/b", end) is None
    assert window_in("x=1,-2h/-1h", end) == (end - timedelta(hours=2), end - timedelta(hours=1))
    a, b = around(Marker(end, "v42", "vllm,a", ""), timedelta(minutes=5))
    assert a == "2026-11-29T12:00:00.000/2026-11-29T12:05:00.000,server=vllm*a"
    assert b.startswith("2026-11-29T12:05:00.000/2026-11-29T12:10")
    for spelling in ("P50", "p50", "0.5", "50"):
        question, problems = from_query({"quantile": [spelling], "a": ["x=1"]})
        assert (question.quantile, problems) == ("P50", [])
        assert question.query() == {"a": ["x=1"]}, "the default is not in a link, however it was written"
    for spelling, name in (("Mean", "mean"), ("0.95", "P95"), ("99", "P99"), ("p90.0", "P90")):
        assert from_query({"quantile": [spelling]})[0].query() == {"quantile": [name]}
    for spelling in ("P0.5", "0.42", "1", "pp50", "nan", "-0.5"):
        assert from_query({"quantile": [spelling]}) == (
            Question(),
            [f"quantile={spelling} in the address: it is one of mean, P50, P90, P95, P99"],
        )
    asked = Question("x=1", "x=2", "e2e", "P99")
    assert from_query(asked.query()) == (asked, [])
    assert from_query({"metric": ["speed"], "a": ["x" * 501]}) == (
        Question(),
        ["a= in the address is too long: left out",
         "metric=speed in the address: it is one of ttft, e2e, tpot, client_ttft, client_e2e"],
    )  # fmt: skip
