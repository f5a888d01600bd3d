"""What a person sees: real pages in a real browser, compared with the report they are drawn from."""

from __future__ import annotations

import csv
import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from analysis.misses.explain import explain
from analysis.misses.report import build as build_report
from analysis.misses.report_model import MissReport
from dashboard import words
from tests.conftest import Database
from tests.dashboard.conftest import Served, start, stop
from tests.dashboard.made import HOSTILE, build
from tests.dashboard.test_colours import contrast

Open = Callable[..., object]
HOUR = "from=2026-11-29T12:00&to=2026-11-29T13:00"
WHOLE = "From KV events alone"  # the heading of the last part that every report has


def tiles(page) -> dict[str, str]:  # type: ignore[no-untyped-def]
    """The figures at the top by name."""
    page.get_by_test_id("stMetric").nth(5).wait_for()
    found = page.get_by_test_id("stMetric").all()
    return {
        tile.get_by_test_id("stMetricLabel").inner_text(): tile.get_by_test_id("stMetricValue").inner_text()
        for tile in found
    }


def figures(report: MissReport) -> dict[str, str]:
    attainable, reachable, prompts = words.ceiling_sums(report)
    return {
        "Served": words.share(words.hits(report.total), report.total.prompt),
        "Attainable": words.share(attainable, prompts),
        "Reachable": words.share(reachable, prompts),
        "Computed": words.tokens(words.computed(report.total)),
        "Unknown": words.share(report.total.parts.get("unknown", 0), words.computed(report.total)),
        "Requests": words.tokens(report.total.requests),
    }


def saved(page, name: str) -> str:  # type: ignore[no-untyped-def]
    with page.expect_download() as download:
        page.get_by_role("button", name=name, exact=True).click()
    return Path(download.value.path()).read_text(encoding="utf-8")


def assert_legible(page, scheme: str) -> None:  # type: ignore[no-untyped-def]
    """Texts stand out from their ground (WCAG 1.4.3), which is light or dark as the browser asked."""
    ground = page.get_by_test_id("stApp").evaluate("e => getComputedStyle(e).backgroundColor")
    small = ("[data-testid=stMetricLabel] p", "[data-testid=stCaptionContainer] p")
    for what in ("h1", "[data-testid=stMetricValue]", *small):
        ink = page.locator(what).first.evaluate("e => getComputedStyle(e).color")
        assert contrast(hexed(ink, ground), hexed(ground, ground)) >= 4.5, what
    lightness = sum(int(x) for x in re.findall(r"\d+", ground)[:3])
    assert (lightness > 600) == (scheme == "light")


def hexed(colour: str, ground: str) -> str:
    """A computed colour on its ground, as #rrggbb."""
    levels, below = ([float(x) for x in re.findall(r"[\d.]+", c)] for c in (colour, ground))
    opacity = levels[3] if len(levels) > 3 else 1.0
    return "#" + "".join(
        f"{round(a * opacity + b * (1 - opacity)):02x}" for a, b in zip(levels[:3], below[:3], strict=True)
    )


def query(page) -> dict[str, list[str]]:  # type: ignore[no-untyped-def]
    return parse_qs(urlsplit(page.url).query)


def test_a_report_as_it_is_and_names_as_text(site: Served, open_page: Open) -> None:
    page = open_page(f"{site.address}/?{HOUR}&request=r1", WHOLE)
    report = build(None, "2026-11-29T12:00/2026-11-29T13:00")
    page.get_by_text("a note on").wait_for()
    assert urlsplit(page.url).path == "/misses"
    assert tiles(page) == figures(report)
    shown = page.get_by_test_id("stMain").inner_text().replace("\u2060", "")
    for text in (
        report.answer,
        report.warnings[0],
        report.unknown_needs[0],
        f"a note on {HOSTILE}",
    ):
        assert text in shown
    page.get_by_text(report.next_steps[1], exact=True).wait_for()
    assert page.evaluate("window.hit") is None
    assert page.locator("a[href*='example'], a[href^='javascript']").count() == 0
    assert page.locator("script", has_text="window.hit").count() == 0
    assert_legible(page, "light")
    rows = list(csv.DictReader(saved(page, "CSV").splitlines()))
    assert [int(row["changed"]) for row in rows[:2]] == [
        report.total.parts["changed"],
        report.lines[0].parts["changed"],
    ]
    assert json.loads(saved(page, "JSON"))["total"]["parts"] == report.total.parts
    assert "<script>window.hit" not in saved(page, "HTML")


def test_filters_go_into_the_address_and_come_back(site: Served, open_page: Open) -> None:
    page = open_page(f"{site.address}/misses?{HOUR}", WHOLE)
    page.get_by_role("radio", name="tokens").click()
    page.get_by_role("combobox", name="Server").click()
    page.get_by_role("option", name="vllm-a").click()
    conditions = page.get_by_role("combobox", name="Labels and conditions")
    conditions.fill("prompt_tokens>1")
    conditions.press("Enter")
    page.wait_for_url(re.compile("where="))
    expected = figures(build(None, "2026-11-29T12:00/2026-11-29T13:00,server=vllm-a,prompt_tokens>1"))
    page.get_by_text(expected["Computed"], exact=True).wait_for()
    assert tiles(page) == expected
    assert query(page) == {
        "from": ["2026-11-29T12:00"],
        "to": ["2026-11-29T13:00"],
        "server": ["vllm-a"],
        "where": ["prompt_tokens>1"],
        "unit": ["tokens"],
    }
    sent = page.url
    page.close()
    other = open_page(sent, WHOLE, fresh={"color_scheme": "dark"})
    assert tiles(other) == expected
    assert other.get_by_role("radio", name="tokens").get_attribute("aria-checked") == "true"
    assert other.url == sent
    assert_legible(other, "dark")


def test_a_broken_address_says_what_is_wrong_with_it(site: Served, open_page: Open) -> None:
    page = open_page(f"{site.address}/misses?from=<b>soon</b>&by=server&colour=red&where=phase=nothing", "")
    page.get_by_text("no request matches <b>nothing</b>").wait_for()
    shown = page.get_by_test_id("stMain").inner_text().replace("\u2060", "")
    assert "'<b>soon</b>' is no time; write now, -2h or 2026-11-29T10:00; the last hour is shown" in shown
    assert "the address has colour=, which means nothing here" in shown
    assert "Traceback" not in shown
    page.get_by_role("button", name="Show all there is").click()
    page.get_by_text(WHOLE, exact=True).wait_for()
    assert query(page) == {"from": ["2026-11-29T12:00:00+00:00"], "to": ["2026-11-29T12:00:03+00:00"]}


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Served]:
    served = start("hitmap", home=tmp_path)
    yield served
    assert stop(served, signal.SIGTERM) == ""
    assert served.process.returncode == 0
    assert not (tmp_path / "store/server.json").exists(), "its store ends with it"


def test_an_empty_store_says_how_to_fill_it(empty: Served, open_page: Open) -> None:
    page = open_page(empty.address, "")
    page.get_by_text("The store has no requests and no KV events yet").wait_for()
    page.get_by_text("hitmap attach http://127.0.0.1:8000").wait_for()


@pytest.fixture
def real(filled: Database) -> Iterator[Served]:
    """The pages on what analysis itself says."""
    served = start("hitmap", "--store", filled.dsn)
    yield served
    assert stop(served) == ""


def test_analysis_answers_and_what_it_lacks_is_named(real: Served, filled: Database, open_page: Open) -> None:
    page = open_page(f"{real.address}/misses?{HOUR}&by=phase&request=r1", WHOLE)
    report = build_report(filled.client, "2026-11-29T12:00/2026-11-29T13:00", by="phase")
    assert tiles(page) == figures(report)
    page.get_by_text("No prompts are known of these requests").wait_for()
    page.get_by_text("No KV events in this range").wait_for()
    page.get_by_text("--kv-events-config").first.wait_for()
    page.get_by_text("r1 on vllm-a").wait_for()
    shown = page.get_by_test_id("stMain").inner_text().replace("\u2060", "")
    assert report.answer in shown
    assert f"{explain(filled.client, 'r1').prompt:,} prompt tokens" in shown
