"""Charts can be read at the width of a desk and of a telephone: nothing lies on a tick, on a name or on the chart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.misses.parts import PARTS
from analysis.misses.report_model import MissLine
from dashboard.charts import misses
from dashboard.text import beside_bar, in_chart
from tests.analysis.heatmap.worlds import Prompt, clock, put
from tests.conftest import Database
from tests.dashboard.conftest import Served, serving, settle
from tests.dashboard.looks import WIDTHS, faults, whole
from tests.dashboard.made import HOSTILE
from tests.dashboard.probed import DAY, planted

HOUR = "from=2026-11-29T12:00&to=2026-11-29T13:00"
SETS = "a=2026-11-29T12:00/2026-11-29T12:30&b=2026-11-29T12:30/2026-11-29T13:00"


@given(st.text(max_size=80))
def test_a_name_beside_a_bar_is_that_of_the_hover_on_at_most_two_short_lines(text: str) -> None:
    lines = beside_bar(text).split("<br>")
    assert "".join(lines) == in_chart(text, 40)
    assert len(lines) <= 2


def test_a_name_beside_a_bar_is_broken_where_words_end() -> None:
    assert beside_bar("127.0.0.1:40483") == "127.0.0.1:40483"
    assert beside_bar("vllm-with-a-long-name-eu-west-1") == "vllm-with-a-long-name-<br>eu-west-1"
    assert beside_bar("x" * 30) == "x" * 24 + "<br>" + "x" * 6
    assert beside_bar("<b>" * 9) == "&lt;b&gt;" * 8 + "<br>&lt;b&gt;"


def test_there_is_room_for_a_long_legend() -> None:
    short = MissLine("a", 1, 1, 2, {"cold": 1, "changed": 1})
    long = replace(short, parts=dict.fromkeys(PARTS, 1))
    few, many = (misses.groups([line], "share") for line in (short, long))
    assert many.layout.height - few.layout.height >= 19 * (len(PARTS) - 4)


@pytest.fixture
def served(db: Database) -> Iterator[Served]:
    """Prompts for the heatmap, and a server under probes."""
    put(db.client, [*clock(20, 0xAAAAAAAA << 32), *[Prompt([1, 2, 3], 7, server=HOSTILE, phase=HOSTILE)] * 5])
    planted(db.client)
    with serving("hitmap", db.dsn) as running:
        yield running


def test_in_a_browser_on_reports_that_are_made(site: Served, open_page: Callable[..., object]) -> None:
    for path, last in (
        (f"misses?{HOUR}&request=r1", "a note on"),
        (f"misses?{HOUR}&unit=tokens", "From KV events alone"),
        (f"attribution?{SETS}", "Where it shows"),
    ):
        _legible(open_page(f"{site.address}/{path}", ""), last)


def test_in_a_browser_on_a_store(served: Served, open_page: Callable[..., object]) -> None:
    day = f"from={DAY['from']}&to={DAY['to']}"
    for path, last in (
        (f"heatmap?{HOUR}", "Where rewriting pays"),
        (f"request?{day}&request=r1", "Everything observed"),
        (f"hosts?{day}", "GPUs over time"),
        (f"hosts?{day}&process=node-1:4711", "Requests in flight"),
    ):
        _legible(open_page(f"{served.address}/{path}", ""), last)


def _legible(page, last: str) -> None:  # type: ignore[no-untyped-def]
    page.get_by_text(last).first.wait_for()
    settle(page)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        whole(page)
        assert faults(page) == [], f"{page.url} at {width}"
