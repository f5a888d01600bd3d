"""The HTML of a report: one file, opened in a real browser that has no network."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.report.model import Report
from dashboard.report_page import to_html
from tests.analysis.attributions import attributed, made, refused
from tests.analysis.sets import compared, requests
from tests.dashboard.conftest import SCREEN
from tests.dashboard.made import HOSTILE


@pytest.fixture(scope="module")
def report() -> Report:
    a, b = requests(600, 1, 30, 0.75, "e2e"), requests(700, 2, 110, 0.0, "e2e")
    return attributed(compared(a, b, "e2e", 0.99, (HOSTILE, "phase=first")), made())


def test_it_opens_without_a_network_and_fits_a_laptop(report: Report, browser, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "report.html"
    file.write_text(to_html(report), encoding="utf-8")
    errors, asked = [], []
    with browser.new_context(**SCREEN, offline=True) as context:
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        page.locator(".js-plotly-plot .main-svg").nth(2).wait_for()
        assert page.locator(".js-plotly-plot").count() == 3  # caused, shows, made of
        assert page.evaluate("document.documentElement.scrollWidth") <= SCREEN["viewport"]["width"]
        assert page.evaluate("window.hit") is None
        headings = page.locator("h2").all_inner_texts()
        first = page.locator("table").first.inner_text()
    assert errors == []
    assert asked == [file.as_uri()]
    places = [next(i for i, text in enumerate(headings) if text.startswith(start)) for start in (
        "What caused it", "Where it shows", "What P99 is made of", "Prompt tokens by source", "Since when",
        "Prompts differ", "e2e, ms", "Be wary", "How these figures", "Next")]  # fmt: skip
    assert places == sorted(places)
    assert "changed\t+240\t+215 to +265\t18.8\tnamed\t2 % -> 34 % of prompt tokens" in first


def test_names_are_text_and_the_script_is_there_once(report: Report) -> None:
    page = to_html(report)
    head, _, body = page.partition("</head>")
    assert "plotly.js v" in head
    assert "plotly.js v" not in body
    assert "<script>window.hit" not in page
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=", page)
    assert "n = 600" in body
    assert "Simulated: " in body


def test_a_view_that_was_refused_has_words_and_no_chart(report: Report) -> None:
    found = replace(report, attribution=made(refused("caused", "no layers are told <b>here</b>")))
    page = to_html(found)
    assert "no layers are told &lt;b&gt;here&lt;/b&gt;" in page
    assert page.count('class="plot"') == 2


def test_without_plotly_the_extra_is_named(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['plotly'] = None; from hitmap.cli import main; main()"
    options = ["report", "--a", "x=1", "--b", "x=2", "-o", str(tmp_path / "x.html")]
    done = subprocess.run(
        [sys.executable, "-c", hidden, *options], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr == "hitmap: this command needs plotly: pip install 'hitmap[dashboard]'\n"
