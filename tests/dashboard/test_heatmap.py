"""Page Heatmap: its figure carries the aggregates, its address the choices, and names are text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from analysis.heatmap.build import build
from analysis.heatmap.model import LAYERS, Heatmap, value_of
from dashboard.charts.heatmap import grid, hover, to_html
from dashboard.export import csv_of_table
from dashboard.views import heatmap as view
from tests.analysis.heatmap.worlds import Prompt, clock, put
from tests.conftest import Database
from tests.dashboard.conftest import Served, serving, text_of
from tests.dashboard.drawn import Draw, drawer, said
from tests.dashboard.made import HOSTILE

HOUR = {"from": "2026-11-29T12:00", "to": "2026-11-29T13:00"}
T = 0xAAAAAAAA << 32


def _page() -> None:
    from dashboard.views import heatmap

    heatmap.page()


@pytest.fixture
def store(db: Database) -> Database:
    """A template with a clock at token 64, and one of a server whose name is none."""
    put(db.client, [*clock(20, T), *[Prompt([1, 2, 3], T + (1 << 60), server=HOSTILE, phase=HOSTILE)] * 5])
    return db


@pytest.fixture
def found(store: Database) -> Heatmap:
    return build(store.client, "2026-11-29T12:00/2026-11-29T13:00")


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Iterator[Draw]:
    """The page of an address on a store."""

    yield from drawer(_page, monkeypatch)


@pytest.mark.parametrize("layer", list(LAYERS))
def test_a_figure_has_the_values_of_the_cells(found: Heatmap, layer: str) -> None:
    values = [[value_of(cell, layer) for cell in row.cells] for row in found.rows]
    if not any(value is not None for row in values for value in row):
        assert all(
            trace.showscale is not True for trace in grid(found, layer).data if trace.type == "heatmap"
        )
        return
    drawn = grid(found, layer).data[0]
    lines = [list(line) for line in drawn.z][1::2]
    for line, row in zip(lines, values, strict=True):
        assert line[: len(row)] == pytest.approx(row)
        assert line[len(row) :] == [None] * (10 - len(row))
    assert len(drawn.x) == len(lines[0]) + 1
    assert len(drawn.y) == len(drawn.z) + 1


def test_zones_and_frames(found: Heatmap) -> None:
    figure = grid(found, "reuse")
    assert {trace.name for trace in figure.data if trace.type == "scatter"} == {
        "hot, above 90 %",
        "warm, 60 to 90 %",
        "below 60 %",
        "rewriting pays",
    }
    assert [(shape.x0, shape.x1) for shape in figure.layout.shapes] == [(3.5, 9.5)]


def test_hovering_tells_all_that_is_known(found: Heatmap) -> None:
    row = found.rows[0]
    text = hover(found, row, row.cells[4])
    for words in ("template <b>aaaaaaaa</b>, tokens <b>64-80</b>", "20 requests come here, 100 % of 20", "reuse 0 %",
                  "earlier prompt", "same server, salt and adapter", "volatility 4.32 bits", "no responses kept",
                  "320 tokens computed", "below 60 %", "rewriting pays"):  # fmt: skip
        assert words in text


def test_names_are_escaped(store: Database) -> None:
    page = to_html(build(store.client, f"phase={HOSTILE[:50]}*"))
    assert "<script>window.hit" not in page


def test_a_table_of_cells(found: Heatmap) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_of_table(view._table(found)))))
    assert len(rows) == 13
    assert (rows[4]["template"], rows[4]["start"], rows[4]["reuse"], rows[4]["stability"]) == (
        "aaaaaaaa",
        "64",
        "0.0",
        "",
    )


def test_an_empty_store_says_how_to_fill_it(db: Database, draw: Draw) -> None:
    assert "The store has no requests and no KV events yet" in said(draw(db.client))


def test_the_page_says_what_analysis_says(store: Database, found: Heatmap, draw: Draw) -> None:
    shown = said(draw(store.client, **HOUR))
    for text in (found.answer, "Where rewriting pays", "hitmap heatmap", HOSTILE, *found.warnings):
        assert text in shown


def test_what_the_zones_call_for_comes_with_its_template(store: Database, found: Heatmap, draw: Draw) -> None:
    assert found.treatments
    page = draw(store.client, **HOUR)
    assert [one.label for one in page.expander] == [f"{one.zone}: {one.name}" for one in found.treatments]
    assert [one.value for one in page.code][-len(found.treatments) :] == [
        one.template for one in found.treatments
    ]


def test_where_no_response_is_kept_the_layer_says_so(store: Database, draw: Draw) -> None:
    assert "No responses are kept" in said(draw(store.client, **HOUR, layer="stability"))


def test_an_address_that_cannot_be(store: Database, draw: Draw) -> None:
    shown = said(draw(store.client, **HOUR, layer="<b>", rows="x", colour="red", server="nope"))
    for text in (
        "layer=<b> in the address: it is reuse or volatility or stability or cost; reuse is shown",
        "rows=x in the address: it is template or time; template is shown",
        "the address has colour=, which means nothing here",
        "there is no such server; all are shown",
    ):
        assert text in shown


def test_requests_without_prompts(store: Database, draw: Draw) -> None:
    store.client.command("TRUNCATE TABLE chain_depths")
    assert "no prompt is known" in said(draw(store.client, **HOUR))


@pytest.fixture
def served(store: Database) -> Iterator[Served]:
    """A dashboard on that store; it outlives the pages that are opened of it."""
    with serving("hitmap", store.dsn) as running:
        yield running


def test_in_a_browser(served: Served, open_page: Callable[..., object]) -> None:
    """A link, another layer by a click, what is saved, and names that would be HTML."""
    page = open_page(f"{served.address}/heatmap?from=2026-11-29T12:00&to=2026-11-29T13:00&rows=time",
                     "Where rewriting pays", scheme="dark")  # fmt: skip
    page.get_by_role("radio", name="cost").click()
    page.get_by_text("cost: prompt tokens that the servers computed there").wait_for()
    page.wait_for_function("location.search.includes('layer=cost')")
    asked = parse_qs(urlsplit(page.url).query)
    assert (asked["rows"], asked["layer"]) == (["time"], ["cost"])
    page.locator(".js-plotly-plot .heatmaplayer image").first.wait_for(state="attached")
    assert page.evaluate("window.hit") is None
    assert "<script>window.hit=1</script>" in text_of(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="JSON", exact=True).click()
    assert json.loads(Path(download.value.path()).read_text(encoding="utf-8"))["by"] == "time"
    page.get_by_role("link", name="Misses").click()
    page.get_by_role("heading", name="Misses", exact=True).wait_for()
    page.wait_for_function("location.search.includes('from=')")
    assert "layer" not in parse_qs(urlsplit(page.url).query)
