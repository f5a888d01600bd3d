"""Figures and files carry the report's own numbers, and names that are no names stay text."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import datetime
from html.parser import HTMLParser

import plotly.graph_objects as go
import pytest

from analysis.misses.report_model import MissLine, MissReport
from analysis.report.json import to_json
from dashboard.charts import misses, prompt
from dashboard.charts.prompt import span
from dashboard.export import to_csv, to_html
from dashboard.text import in_chart, plain
from tests.dashboard.made import HOSTILE, START, build, explain


@pytest.fixture
def report() -> MissReport:
    return build(None, "-1h/now", by="server")


def by_name(figure: go.Figure) -> dict[str, go.Bar]:
    return {trace.name: trace for trace in figure.data}


def test_a_bar_a_group(report: MissReport) -> None:
    traces = by_name(misses.groups(report.lines, "tokens"))
    assert list(traces) == [
        "served: device",
        "served: host",
        "evicted: capacity",
        "changed",
        "cold",
        "unknown",
    ]
    assert list(traces["changed"].x) == [line.parts["changed"] for line in report.lines]


def test_shares_of_a_group_add_up_to_all_of_it(report: MissReport) -> None:
    figure = misses.groups(report.lines, "share")
    for row in range(len(report.lines)):
        assert sum(trace.x[row] for trace in figure.data) == pytest.approx(1)


def test_time_without_requests_is_empty(report: MissReport) -> None:
    changed = by_name(misses.trend(report.trend, "tokens"))["changed"]
    minutes = [int((datetime.fromisoformat(x) - START).total_seconds()) // 60 for x in changed.x]
    assert minutes == [0, 1, 2, 3, 4, 10, 11, 12]
    assert [y > 0 for y in changed.y] == [True, True, True, True, False, True, True, False]
    assert sum(changed.y) == sum(line.parts["changed"] for line in report.trend)


def test_one_stretch_of_time_has_a_width(report: MissReport) -> None:
    assert len(by_name(misses.trend(report.trend[:1], "share"))["changed"].x) == 2


def test_ceilings_are_shares_of_the_prompts(report: MissReport) -> None:
    traces = by_name(misses.ceilings(report.ceilings))
    assert list(traces["achieved"].x) == pytest.approx([400 / 600, 100 / 300])
    assert list(traces["attainable"].x) == pytest.approx([520 / 600, 280 / 300])


def test_what_nothing_tells_is_not_drawn() -> None:
    told = [replace(line, reachable=None) for line in build(None, "-1h/now").ceilings]
    assert "reachable" not in by_name(misses.ceilings(told))


def test_a_strip_has_every_token_once() -> None:
    figure = prompt.strip(explain(None, "r1"))
    spans = sorted((b, b + x) for trace in figure.data for b, x in zip(trace.base, trace.x, strict=True))
    assert spans == [(0, 320), (320, 400), (400, 410)]


def test_tokens_are_counted_as_on_the_terminal() -> None:
    assert [span(run) for run in explain(None, "r1").runs] == ["0-320", "320-400", "400-410"]


def test_line_breaks_are_spaces() -> None:
    assert in_chart("a\r\n\tb") == "a b"
    assert plain("a\n\nb\u2028c") == "a b c"


def test_names_are_escaped_for_plotly(report: MissReport) -> None:
    for figure in (
        misses.groups(report.lines, "share"),
        misses.ceilings(report.ceilings),
        prompt.strip(explain(None, "r1")),
    ):
        assert "<script" not in figure.to_json().replace("\\u003c", "<")


def test_csv(report: MissReport) -> None:
    lines = [report.total, *report.lines, MissLine("=1+1", 1, 1, 5, {"cold": 5})]
    rows = list(csv.DictReader(io.StringIO(to_csv(lines))))
    assert [int(row["changed"]) for row in rows[:-1]] == [line.parts["changed"] for line in lines[:-1]]
    assert rows[2]["key"] == HOSTILE
    assert (rows[-1]["key"], rows[-1]["recomputed"]) == ("'=1+1", "")


def test_json(report: MissReport) -> None:
    assert json.loads(to_json(report))["total"]["parts"] == report.total.parts


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_needs_no_network(report: MissReport) -> None:
    page = to_html("Misses", f"About {HOSTILE}", {"Groups": misses.groups(report.lines, "share")})
    tags = Tags()
    tags.feed(page)
    assert tags.sources == []
    assert f"About {HOSTILE}" in tags.text
    assert "<script>window.hit" not in page
