"""Page Request: its figure carries what was counted, on one axis with the spans; the address says which request."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.observed import words
from analysis.observed.model import Observed, Trace
from analysis.observed.request import trace
from analysis.observed.worth import worth_a_look
from analysis.selection import parse_set
from cachemodel.layers import SERVING_LAYERS, ObservationLayer
from dashboard.charts.counters import PROCESS, THREAD, Strip, strips, summed
from dashboard.charts.waterfall import MOST_ROWS, waterfall
from dashboard.export import csv_of_table
from dashboard.views.request_tables import as_rows
from tests.analysis.observed.world import MAJOR, START, put_points, put_request, put_span
from tests.conftest import Database
from tests.dashboard.conftest import Served, choose_first_row, serving, text_of
from tests.dashboard.drawn import Draw, drawer, said
from tests.dashboard.made import HOSTILE
from tests.dashboard.probed import DAY


def _page() -> None:
    from dashboard.views import request

    request.page()


@pytest.fixture
def told(store: Database) -> Trace:
    return trace(store.client, "r1")


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Iterator[Draw]:
    yield from drawer(_page, monkeypatch)


def strip_of(told: Trace, title: str) -> Strip:
    (found,) = [strip for strip in strips(told) if strip.title == title]
    return found


def test_spans_are_bars_in_time_in_the_colour_of_their_layer(told: Trace) -> None:
    figure = waterfall(told, [])
    colours = {layer.name: layer.colour for layer in SERVING_LAYERS}
    bars = {bar.name: bar for bar in figure.data}
    assert list(bars) == ["prefix", "decode", "no layer of its own"]
    for name, row, base, long in (("prefix", 2, 0, 100), ("decode", 3, 100, 300)):
        bar = bars[name]
        assert (bar.y[0], bar.base[0], bar.x[0]) == (row, base, long)
        assert bar.marker.color == colours[name]
    assert list(bars["no layer of its own"].base) == [-10, 0], (
        "the client's is drawn from before its arrival on"
    )
    assert figure.layout.xaxis.range == (0, 400)


def test_what_was_counted_stands_on_the_same_axis(told: Trace) -> None:
    shown = [strip for strip in strips(told) if strip.highest > 0]
    figure = waterfall(told, shown)
    axes = [axis for axis in figure.layout if axis.startswith("xaxis")]
    assert len(axes) == 1 + len(shown)
    matched = {figure.layout[axis].matches or "itself" for axis in axes}
    assert len(matched - {"itself"}) == 1, "zooming one zooms all"
    domains = {figure.layout[axis].domain for axis in axes}
    assert domains == {(0, 1)}, "the same milliseconds stand below each other"


def test_a_bar_is_as_wide_as_its_time_and_as_large_as_what_was_counted(told: Trace) -> None:
    major = strip_of(told, "major page faults/s")
    assert (major.layer, [line.whose for line in major.lines]) == (ObservationLayer.KERNEL, [PROCESS, THREAD])
    process, thread = major.lines
    assert list(thread.points) == [(0, 100, 2560)], "of the innermost span alone"
    assert [point for point in process.points if point[2]] == [(0, 100, 3000)]
    bars = [bar for bar in waterfall(told, [major]).data if bar.width is not None]
    areas = [sum(w * y / 1000 for w, y in zip(bar.width, bar.y, strict=True)) for bar in bars]
    assert areas == pytest.approx([300, 256])


def test_time_is_in_threads_and_a_gauge_is_a_line(told: Trace) -> None:
    (on,) = [line for line in strip_of(told, "threads on and off CPU").lines if line.whose == THREAD]
    assert list(on.points) == [(100, 400, pytest.approx(0.1))]
    memory = strip_of(told, "resident memory")
    (line,) = [t for t in waterfall(told, [memory]).data if isinstance(t, go.Scatter)]
    assert {value for value in line.y if value is not None} == {2e9}
    assert line.x[1] <= 0, "it covers the request"
    assert line.x[-1] >= 400
    assert strip_of(told, "GPU memory and caches").layer == ObservationLayer.HARDWARE


def test_of_two_sources_the_one_that_counted_more_is_drawn(store: Database) -> None:
    put_points(store.client, [(1000, 1400, 290)], attributes=MAJOR, source="perf")
    process = strip_of(trace(store.client, "r1"), "major page faults/s").lines[0]
    assert sum(
        (end - begin) * rate / 1000 for begin, end, rate in process.points if end <= 400
    ) == pytest.approx(300)


def test_a_gauge_that_was_not_told_for_long_is_not_bridged() -> None:
    points = [(0.0, 0.0, 1.0), (1e6, 1e6, 2.0), (60e6, 60e6, 3.0)]
    one = Observed(
        ObservationLayer.KERNEL, "process.memory.usage", {}, "By", "", "p (1)", 2.0, None, "procfs", 3, 1.0, 3.0, points
    )  # fmt: skip
    made = Trace("r", "s", "", START.isoformat(), 60e6, None, {}, {}, [], [], [], [one], [], None)
    (line,) = [t for t in waterfall(made, strips(made)).data if isinstance(t, go.Scatter)]
    gap = [x for x, y in zip(line.x, line.y, strict=True) if y is None]
    assert any(1000 < x < 60_000 for x in gap)


SERIES = st.lists(st.tuples(st.integers(0, 500), st.integers(1, 1000), st.integers(0, 1000)), max_size=8)


def series_of(steps: list[tuple[int, int, int]]) -> list[tuple[float, float, float]]:
    """Points of one series, us: each a pause after the one before, so long and with so much."""
    at, points = 0, []
    for pause, long, value in steps:
        points.append((float(at + pause), float(at + pause + long), float(value)))
        at += pause + long
    return points


@given(st.lists(SERIES, max_size=4))
def test_a_sum_of_series_has_the_area_of_all_and_only_their_time(
    steps: list[list[tuple[int, int, int]]],
) -> None:
    series = [series_of(one) for one in steps]
    found = summed(series)
    area = sum((end - begin) * rate / 1000 for begin, end, rate in found)
    assert area == pytest.approx(sum(v for one in series for *_, v in one), rel=1e-6, abs=1e-6)
    assert all(begin < end and rate >= 0 for begin, end, rate in found)
    assert all(a[1] <= b[0] for a, b in pairwise(found))
    for begin, end, _ in found:
        middle = 500 * (begin + end)
        assert any(b <= middle < e for one in series for b, e, _ in one)
    # a second probe that tells the same adds nothing
    twice = sum((end - begin) * rate / 1000 for begin, end, rate in summed([one * 2 for one in series]))
    assert twice == pytest.approx(area, rel=1e-6, abs=1e-6)


def test_texts_of_others_are_text_in_the_figure(told: Trace) -> None:
    figure = waterfall(told, strips(told))
    hovers = [hover for bar in figure.data for hover in bar.customdata]
    texts = [*hovers, *(note.text for note in figure.layout.annotations)]
    assert not any("<script" in text or "<b>long" in text for text in texts)
    (lookup,) = [hover for hover in hovers if "prefix_lookup" in hover]
    assert "its thread: page faults major 256" in lookup
    assert "&lt;b&gt;long" in lookup
    assert len(lookup) < 2000


def test_of_many_spans_the_first_are_drawn(store: Database) -> None:
    for number in range(MOST_ROWS):
        put_span(store.client, f"{0xF00 + number:016x}", f"{0xB:016x}", "step", 1100 + number, 1101 + number)
    told = trace(store.client, "r1")
    figure = waterfall(told, [])
    assert sum(len(bar.x) for bar in figure.data) == MOST_ROWS < len(told.spans)


def test_requests_to_choose_from(store: Database) -> None:
    chosen = parse_set("2026-11-30T12:00/2026-11-30T13:00", now=START, labels=[], prefix="t")
    names = {order: [line.request_id for line in worth_a_look(store.client, chosen, order)] for order in
             ("slowest", "latest", "page faults")}  # fmt: skip
    assert names == {
        "slowest": ["r2", "r1", HOSTILE],
        "latest": [HOSTILE, "r2", "r1"],
        "page faults": ["r1", "r2", HOSTILE],
    }
    line = worth_a_look(store.client, chosen, "page faults")[0]
    assert (line.major, line.minor, line.e2e_ms, line.cached) == (256, None, 400, 64)
    put_request(store.client, "no end", 9000, 9001, e2e_us=None)
    assert worth_a_look(store.client, chosen, "slowest")[-1].request_id == "no end"


def test_without_an_id_there_is_a_choice(store: Database, draw: Draw) -> None:
    page = draw(store.client, **DAY)
    assert list(page.dataframe[0].value["request"]) == ["r2", "r1", HOSTILE]
    page = draw(store.client, **DAY, order="page faults")
    assert page.dataframe[0].value["request"].iloc[0] == "r1"
    assert page.dataframe[0].value["major faults"].iloc[0] == 256
    assert "order=fastest in the address: it is slowest or" in said(
        draw(store.client, **DAY, order="fastest")
    )


def test_the_page_says_what_the_terminal_says(store: Database, told: Trace, draw: Draw) -> None:
    shown = said(draw(store.client, **DAY, request="r1", server="vllm-a"))
    lines = [words.answer(told), *words.described(told), "hitmap trace r1 --server vllm-a"]
    lines += words.missing(told)
    for text in (*lines, "0 all the time: lock waits, GPU memory and caches.", "its prompt is not known"):
        assert text in shown
    assert "Its spans, and what was counted meanwhile" in shown
    assert "python3 (4711): futex waits" in shown, "zeros are one line"


def test_the_table_has_what_was_counted_and_its_share(store: Database, told: Trace, draw: Draw) -> None:
    table = draw(store.client, **DAY, request="r1").dataframe[0].value
    told_rows = {(row["what"], row["of"]): row for row in table.to_dict("records")}
    assert told_rows["page faults, major", "the request"]["its part"] == "256"
    assert told_rows["page faults, major", "the request"]["share"] == "all, counted for it"
    assert told_rows["page faults, major", "python3 (4711)"]["meanwhile"] == "300"
    assert not any(row["meanwhile"] == "0" for row in told_rows.values())
    saved = list(csv.DictReader(io.StringIO(csv_of_table(as_rows(told)))))
    assert len(saved) == len(told.observed)
    (line,) = [
        row for row in saved if row["of"] == "the request" and row["metric"] == "process.paging.faults"
    ]
    assert (line["value"], line["share"], line["attributes"]) == (
        "256.0",
        "1.0",
        "system.paging.fault.type=major",
    )


def test_the_beginning_of_an_id_is_enough_and_one_that_is_none_says_so(store: Database, draw: Draw) -> None:
    shown = said(draw(store.client, **DAY, request="<script>window"))
    assert f"{HOSTILE} on {HOSTILE}" in shown
    page = draw(store.client, **DAY, request="<b>nobody")
    assert "no request '<b>nobody'" in said(page)
    assert list(page.dataframe[0].value["request"]) == ["r2", "r1", HOSTILE], "and there is a choice"
    assert "several requests are called so: " in said(draw(store.client, **DAY, request="r"))


def test_a_request_without_spans_says_what_would_tell(store: Database, draw: Draw) -> None:
    page = draw(store.client, **DAY, request="r2")
    shown = said(page)
    assert "no span of it came, only a log tells of it" in shown
    assert "Its spans, and" not in shown
    assert not page.get("imgs")


def test_a_server_without_a_probe_says_which_command_to_run(db: Database, draw: Draw) -> None:
    put_request(db.client, "r1", 0, 100)
    shown = said(draw(db.client, **DAY, request="r1"))
    assert "sudo hitmap probe --port PORT" in shown
    assert "Nothing beside its spans was observed" in shown
    page = draw(db.client, **DAY, order="page faults")
    assert "No server of these requests counts the page faults of each." in said(page)
    assert "major faults" not in page.dataframe[0].value


def test_nothing_to_show(db: Database, draw: Draw) -> None:
    assert "The store has no requests and no KV events yet" in said(draw(db.client))
    put_request(db.client, "r1", 0, 100)
    page = draw(db.client, **{"from": "2026-11-01T00:00", "to": "2026-11-02T00:00"})
    assert "Nothing matches 2026-11-01T00:00/2026-11-02T00:00." in said(page)
    assert [button.label for button in page.button][-1] == "Show all there is"


@pytest.fixture
def served(store: Database) -> Iterator[Served]:
    with serving("hitmap", store.dsn) as running:
        yield running


RANGES = """() => {
    const l = document.querySelector('.js-plotly-plot')._fullLayout;
    return Object.keys(l).filter(k => /^xaxis/.test(k)).map(k => l[k].range.map(v => Math.round(v)));
}"""


def test_in_a_browser(served: Served, open_page: Callable[..., object]) -> None:
    """A request by a click, all its lanes zoomed by one, what is saved, and names that would be HTML."""
    page = open_page(f"{served.address}/request?from={DAY['from']}&to={DAY['to']}", "slowest", scheme="dark")
    page.get_by_role("radio", name="page faults").click()
    page.wait_for_function("location.search.includes('order=page')")
    choose_first_row(page, "request=r1")
    page.get_by_text("Its spans, and what was counted meanwhile").wait_for()
    page.locator(".js-plotly-plot").first.locator(".barlayer path").first.wait_for(state="attached")
    assert {tuple(range) for range in page.evaluate(RANGES)} == {(0, 400)}
    page.evaluate("Plotly = window.Plotly; document.querySelector('.js-plotly-plot').scrollIntoView()")
    plot = page.locator(".js-plotly-plot").first
    box = plot.locator(".nsewdrag").last.bounding_box()  # the lowest lane
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, y, steps=4)
    page.mouse.up()
    page.wait_for_function(f"() => ({RANGES})().every(r => r[0] > 50 && r[1] < 250)")
    assert len({tuple(range) for range in page.evaluate(RANGES)}) == 1
    assert page.evaluate("window.hit") is None
    assert page.locator("script", has_text="window.hit").count() == 0
    assert f"labels: phase={HOSTILE}" in text_of(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="JSON", exact=True).click()
    assert json.loads(Path(download.value.path()).read_text(encoding="utf-8"))["request_id"] == "r1"
    with page.expect_download() as download:
        page.get_by_role("button", name="HTML", exact=True).click()
    assert "<script>window.hit" not in Path(download.value.path()).read_text(encoding="utf-8")
    page.get_by_role("button", name="Choose another").click()
    page.get_by_text("Tick a row or type an id").wait_for()
    asked = parse_qs(urlsplit(page.url).query)
    assert "request" not in asked
    page.get_by_role("textbox", name="Request id").fill("r2")
    page.keyboard.press("Enter")
    page.get_by_text("no span of it came").wait_for()


def test_a_link_shows_somebody_else_the_same(served: Served, open_page: Callable[..., object]) -> None:
    page = open_page(f"{served.address}/request?request=r1&server=vllm-a", "Everything observed")
    page.locator(".js-plotly-plot").first.locator(".barlayer path").first.wait_for(state="attached")
    ground = page.get_by_test_id("stApp").evaluate("e => getComputedStyle(e).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    widest = page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
    assert widest <= 1280, "nothing is out of sight"
